# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""cocotb bench for `haan_core`: parameters, then rows with their layers' records beside them."""

from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from haan.sim import jobs
from haan.sim.jobs import Beat, RowsJob, StreamRecord
from haan.sim.ports import BrokenRule, Port
from haan.sim.streams import RESET_CYCLES, Streams

PARAMETER_CYCLES = 16
"""From the last parameter write to the first row."""


class Bench:
    def __init__(self, dut: Any, job: RowsJob, record: StreamRecord) -> None:
        self.job = job
        self.edge = FallingEdge(dut.clk)
        self.rst = Port(dut, "rst")
        self.streams = Streams(dut, job, record, self.drive_record)
        self.record = {name: Port(dut, name) for name in job.records[0]}
        self.masks = {name: (1 << len(port.handle)) - 1 for name, port in self.record.items()}
        names = ("beta", "slot", "index", "data", "one_plus")
        self.parameters = [Port(dut, f"parameter_write_{name}") for name in names]
        self.parameter_valid = Port(dut, "parameter_write_valid")
        self.unused = [Port(dut, "isd_clear")] if hasattr(dut, "isd_clear") else []

    async def reset(self) -> None:
        self.streams.idle()
        for port in (
            self.parameter_valid,
            *self.record.values(),
            *self.parameters,
            *self.unused,
        ):
            port.write(0)
        self.rst.write(1)
        await self.edge
        for _ in range(RESET_CYCLES):
            await self.edge
            self.streams.check_reset()
        self.rst.write(0)
        for _ in range(self.job.clears):
            await self.edge

    async def write_parameters(self) -> None:
        for write in self.job.writes:
            for port, value in zip(self.parameters, write, strict=True):
                port.write(value)
            self.parameter_valid.write(1)
            await self.edge
        self.parameter_valid.write(0)
        for _ in range(PARAMETER_CYCLES):
            await self.edge

    def drive_record(self, beat: Beat) -> None:
        """The layer's record is there with a row's first beat, and its opposite with any other, so that a record that isn't latched
        shows."""
        record = self.job.records[beat.record]
        for name, port in self.record.items():
            port.write(record[name] if beat.record >= 0 else self.masks[name] & ~record[name])

    async def stream(self, end: int | None) -> None:
        """Streams until all packets are out and nothing follows, or until a cycle."""
        now = 0
        while not self.streams.finished and now != end:
            self.streams.step(now)
            now += 1
            await self.edge


@cocotb.test()
async def rows(dut: Any) -> None:
    """Runs the job; a broken rule ends up in the record."""
    record, job = StreamRecord(), jobs.load()
    Clock(dut.clk, 2, unit="ns").start()
    try:
        bench = Bench(dut, job, record if job.reset_at is None else StreamRecord())
        await bench.reset()
        await bench.write_parameters()
        if job.reset_at is not None:
            await bench.stream(job.reset_at)
            bench = Bench(dut, job, record)
            await bench.reset()
        await bench.stream(None)
        bench.streams.check_end()
    except BrokenRule as rule:
        record.fault = str(rule)
    jobs.store(record)
