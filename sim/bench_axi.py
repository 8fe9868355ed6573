# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""cocotb bench for `haan_axi`: streams rows while registers are written and read, and checks the rules of all interfaces.

It wakes once a cycle, at the falling edge, like `haan.sim.bench_rows`.
"""

from itertools import cycle
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from haan.sim import jobs
from haan.sim.axil import Access, AxilMaster
from haan.sim.jobs import AxiJob, AxiRecord, Moment, Seen
from haan.sim.ports import BrokenRule, Port

RESET_CYCLES = 4
DRAIN_CYCLES = 100
"""How long the bench looks for beats that nobody asked for, after all that was."""
PAYLOAD = ("tdata", "tkeep", "tlast", "tid", "tuser")


class Bench:
    def __init__(self, dut: Any, job: AxiJob, record: AxiRecord) -> None:
        self.dut, self.job, self.record = dut, job, record
        self.edge = FallingEdge(dut.aclk)
        self.master = AxilMaster(dut, self.edge, "s_axil_")
        self.s_payload = [Port(dut, f"s_axis_{name}") for name in PAYLOAD]
        self.m_payload = [Port(dut, f"m_axis_{name}") for name in PAYLOAD]
        self.s_valid, self.s_ready = Port(dut, "s_axis_tvalid"), Port(dut, "s_axis_tready")
        self.m_valid, self.m_ready = Port(dut, "m_axis_tvalid"), Port(dut, "m_axis_tready")
        self.beats = iter(job.beats)
        self.beat = next(self.beats, None)
        self.source, self.sink = cycle(job.source), cycle(job.sink)
        self.offered = False
        self.held: list[int] | None = None
        self.moments: list[Moment] = list(job.moments)
        self.begun: list[list[Access]] = []
        self.holds = False
        self.packets = 0

    async def reset(self) -> None:
        self.master.idle()
        for port in (self.s_valid, self.m_ready, *self.s_payload):
            port.write(0)
        self.dut.aresetn.value = 0
        await self.edge
        for _ in range(RESET_CYCLES):
            await self.edge
            self.master.check_reset()
            for port in (self.m_valid, self.s_ready):
                if port.read():
                    raise BrokenRule(f"{port.name} is high in reset")
        self.dut.aresetn.value = 1

    @property
    def unanswered(self) -> bool:
        return any(access.response < 0 for each in self.begun for access in each)

    def control(self) -> None:
        """Begins what is due on the bus."""
        self.holds = self.holds and self.unanswered
        while self.moments and not self.holds:
            due = self.moments[0]
            if len(self.record.accepted) < due.beats or self.packets < due.packets:
                return
            if due.holds and self.offered:
                return
            self.moments.pop(0)
            self.begun.append([self.begin(access) for access in due.bus])
            self.holds = due.holds and bool(due.bus)

    def waits(self) -> bool:
        """Whether the next beat waits for accesses, begun or due after the beats so far."""
        due = self.moments[0] if self.moments else None
        before = due is not None and due.holds and len(self.record.accepted) >= due.beats
        return self.holds or before

    def begin(self, access: jobs.BusAccess) -> Access:
        if access.data is None:
            return self.master.begin_read(access.address, access.delays)
        return self.master.begin_write(access.address, access.data, access.strobe, access.delays)

    def offer(self) -> bool:
        """The input's part of a cycle; whether a beat was accepted."""
        may_offer = next(self.source) and not self.waits()
        if not self.offered and (self.beat is None or not may_offer):
            self.s_valid.write(0)
            return False
        if not self.offered:
            assert self.beat is not None
            for port, value in zip(self.s_payload, self.beat, strict=True):
                port.write(value)
            self.s_valid.write(1)
        ready = self.s_ready.read()
        self.offered = not ready
        if not ready:
            self.record.waited_in.append(self.master.cycle)
            return False
        self.record.accepted.append(self.master.cycle)
        self.beat = next(self.beats, None)
        return True

    def take(self) -> bool:
        """The output's part of a cycle; whether a beat was taken."""
        valid, takes = self.m_valid.read(), next(self.sink)
        self.m_ready.write(takes)
        if not valid:
            if self.held is not None:
                raise BrokenRule("m_axis_tvalid fell before the beat was taken")
            return False
        payload = [port.read() for port in self.m_payload]
        if self.held is not None and payload != self.held:
            raise BrokenRule("the beat on m_axis changed while it waited")
        self.held = None if takes else payload
        if not takes:
            self.record.waited_out.append(self.master.cycle)
            return False
        self.record.seen.append(Seen(self.master.cycle, *payload))
        self.packets += payload[2]
        if self.packets > self.job.packets:
            raise BrokenRule("a packet too many came out")
        return True

    @property
    def finished(self) -> bool:
        return (
            self.beat is None
            and self.packets == self.job.packets
            and not self.moments
            and not self.unanswered
        )

    async def run(self, end: int | None = None) -> None:
        """From a reset until all is done, or until a cycle."""
        await self.reset()
        still = drained = 0
        while drained < DRAIN_CYCLES and self.master.cycle != end:
            self.control()
            busy = self.unanswered
            moved = self.offer() | self.take()
            self.master.step()
            still = 0 if moved or busy != self.unanswered else still + 1
            drained = drained + 1 if self.finished else 0
            if still > self.job.patience:
                raise BrokenRule(
                    f"nothing moved for {still} cycles: {len(self.record.accepted)} of {len(self.job.beats)} beats went in, "
                    f"{self.packets} of {self.job.packets} packets came out, {len(self.moments)} moments are left"
                )
            await self.edge
        self.record.answers = [
            [(access.response, access.data, access.cycle) for access in each] for each in self.begun
        ]


@cocotb.test()
async def axi(dut: Any) -> None:
    """Runs the job; a broken rule ends up in the record."""
    record, job = AxiRecord(), jobs.load()
    Clock(dut.aclk, 2, unit="ns").start()
    try:
        if job.reset_at is not None:
            await Bench(dut, job, AxiRecord()).run(job.reset_at)
        await Bench(dut, job, record).run()
    except BrokenRule as rule:
        record.fault = str(rule)
    jobs.store(record)
