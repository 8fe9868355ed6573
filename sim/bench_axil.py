# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""cocotb bench for a register block: accesses over AXI4-Lite, with the hardware's side of the registers in the bench's hands."""

from itertools import cycle
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from haan.sim import jobs
from haan.sim.axil import AxilMaster
from haan.sim.jobs import BlockJob, BlockRecord, Bus
from haan.sim.ports import BrokenRule, Port

RESET_CYCLES = 4
PATIENCE = 200
"""Cycles in which an access must be answered."""
AFTER = 4
"""Cycles in which nothing may happen that wasn't asked for."""


class Bench:
    def __init__(self, dut: Any, job: BlockJob, record: BlockRecord) -> None:
        self.dut, self.job, self.record = dut, job, record
        self.edge = FallingEdge(dut.clk)
        self.master = AxilMaster(dut, self.edge)
        self.inputs = {name: Port(dut, name) for name in job.inputs}
        self.outputs = {name: Port(dut, name) for name in job.outputs}
        self.answers = cycle(job.answers)
        self.pending: dict[str, tuple[int, int]] = {}

    async def reset(self) -> None:
        self.master.idle()
        for port in self.inputs.values():
            port.write(0)
        self.dut.rst.value = 1
        await self.edge
        for _ in range(RESET_CYCLES):
            await self.edge
            if self.job.quiet_in_reset:
                self.master.check_reset()
        self.dut.rst.value = 0

    def answer(self) -> None:
        """Acts as the external registers: what was asked is told and answered, late, or in the same cycle."""
        for name in self.job.externals:
            ack, error = self.inputs[f"{name}_ack"], self.inputs[f"{name}_error"]
            if self.outputs[f"{name}_write"].read():
                if name in self.pending:
                    raise BrokenRule(f"{name} was asked again before it had answered")
                self.record.asked.append((name, self.outputs[f"{name}_data"].read()))
                self.pending[name] = next(self.answers)
            delay, fault = self.pending.get(name, (1, 0))
            ack.write(int(delay == 0))
            error.write(fault if delay == 0 else 1 - fault)
            if name in self.pending:
                self.pending[name] = (delay - 1, fault)
                if delay == 0:
                    del self.pending[name]

    async def tick(self) -> None:
        """A cycle."""
        self.master.step()
        self.answer()
        for name in self.job.pulses:
            if self.outputs[name].read():
                self.record.pulses.append(name)
        await self.edge

    async def perform(self, bus: Bus) -> None:
        """All accesses of a step, back to back."""
        begun = [self.master.begin(access) for access in bus]
        for _ in range(PATIENCE + 20 * len(begun)):
            if all(access.response >= 0 for access in begun):
                break
            await self.tick()
        else:
            raise BrokenRule("an access was never answered")
        self.record.answers += [(each.response, each.data, each.cycle) for each in begun]
        for _ in range(AFTER):
            await self.tick()

    async def run(self) -> None:
        await self.reset()
        for step in self.job.steps:
            for name, value in step.drive.items():
                self.inputs[name].write(value)
            for name in step.pulse:
                self.inputs[name].write(1)
            await self.tick()
            for name in step.pulse:
                self.inputs[name].write(0)
            await self.perform(step.bus)
            self.record.outputs.append({name: self.outputs[name].read() for name in self.job.watch})


@cocotb.test()
async def block(dut: Any) -> None:
    """Runs the job; a broken rule ends up in the record."""
    record = BlockRecord()
    Clock(dut.clk, 2, unit="ns").start()
    try:
        await Bench(dut, jobs.load(), record).run()
    except BrokenRule as rule:
        record.fault = str(rule)
    jobs.store(record)
