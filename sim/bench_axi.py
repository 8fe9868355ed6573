# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""cocotb bench for `haan_axi`: streams rows while registers are written and read, and checks the rules of all interfaces."""

from collections import deque
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from haan.sim import jobs
from haan.sim.axil import Access, AxilMaster
from haan.sim.jobs import AxiJob, AxiRecord, Bus, Moment
from haan.sim.ports import BrokenRule
from haan.sim.streams import RESET_CYCLES, Streams

SETTLE_CYCLES = 16
"""From the answer to the last access of the setup to the first row."""


class Bench:
    def __init__(self, dut: Any, job: AxiJob, record: AxiRecord) -> None:
        self.dut, self.job, self.record = dut, job, record
        self.edge = FallingEdge(dut.aclk)
        self.master = AxilMaster(dut, self.edge, "s_axil_")
        self.streams = Streams(dut, job, record)
        self.moments: deque[Moment] = deque(job.moments)
        self.begun: list[list[Access]] = []
        self.holds = False

    async def reset(self) -> None:
        self.master.idle()
        self.streams.idle()
        self.dut.aresetn.value = 0
        await self.edge
        for _ in range(RESET_CYCLES):
            await self.edge
            self.master.check_reset()
            self.streams.check_reset()
        self.dut.aresetn.value = 1

    def begin(self, bus: Bus) -> list[Access]:
        return [self.master.begin(access) for access in bus]

    async def set_up(self) -> None:
        """Accesses before the first row, while the streams rest."""
        for _ in range(self.job.clears):
            self.master.step()
            await self.edge
        begun = self.begin(self.job.setup)
        answered, still = 0, 0
        while self.master.unanswered and still <= self.job.patience:
            self.master.step()
            still = still + 1 if answered == self.master.answered else 0
            answered = self.master.answered
            await self.edge
        if self.master.unanswered:
            raise BrokenRule(f"an access was not answered in {self.job.patience} cycles")
        for _ in range(SETTLE_CYCLES if begun else 0):
            self.master.step()
            await self.edge
        self.record.setup = [access.answer for access in begun]
        self.record.start = self.master.cycle

    def control(self) -> None:
        """Begins what is due on the bus."""
        self.holds = self.holds and self.master.unanswered > 0
        while self.moments and not self.holds:
            due = self.moments[0]
            if self.streams.accepted < due.beats or self.streams.packets < due.packets:
                return
            if due.holds and self.streams.offered:
                return
            self.moments.popleft()
            self.begun.append(self.begin(due.bus))
            self.holds = due.holds and bool(due.bus)

    def may_offer(self) -> bool:
        """The next beat doesn't wait for accesses, begun or due after the beats so far."""
        due = self.moments[0] if self.moments else None
        before = due is not None and due.holds and self.streams.accepted >= due.beats
        return not (self.holds or before)

    async def run(self, end: int | None = None) -> None:
        """From a reset until all is done, or until a cycle."""
        await self.reset()
        await self.set_up()
        master, streams = self.master, self.streams
        while not streams.finished and master.cycle != end:
            self.control()
            answered = master.answered
            streams.step(
                master.cycle,
                may_offer=self.may_offer(),
                ends=not self.moments and not master.unanswered,
            )
            master.step()
            if answered != master.answered:
                streams.still = 0
            await self.edge
        self.record.answers = [[access.answer for access in each] for each in self.begun]
        if master.cycle != end:
            streams.check_end()


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
