# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""cocotb bench for `haan_core`: streams rows in and out under schedules fixed beforehand, and checks the rules of the streams.

It wakes once a cycle, at the falling edge. Outputs depend on registers alone, so what is seen there holds until the rising edge, and
every handshake of the cycle is known; inputs change there.
"""

from itertools import cycle
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from haan.sim import jobs
from haan.sim.jobs import RowsJob, RowsRecord, Seen
from haan.sim.ports import BrokenRule, Port

RESET_CYCLES = 4
DRAIN_CYCLES = 100
"""How long the bench looks for beats that nobody asked for, after the last packet."""
PARAMETER_CYCLES = 16
"""From the last parameter write to the first row."""


class Bench:
    def __init__(self, dut: Any, job: RowsJob) -> None:
        self.job = job
        self.edge = FallingEdge(dut.clk)
        self.rst = Port(dut, "rst")
        payload = ("tdata", "tkeep", "tlast", "tid", "tuser")
        self.s_payload = [Port(dut, f"s_axis_{name}") for name in payload]
        self.s_valid, self.s_ready = Port(dut, "s_axis_tvalid"), Port(dut, "s_axis_tready")
        self.m_payload = [Port(dut, f"m_axis_{name}") for name in payload]
        self.m_valid, self.m_ready = Port(dut, "m_axis_tvalid"), Port(dut, "m_axis_tready")
        self.record = {name: Port(dut, name) for name in job.records[0]}
        self.masks = {name: (1 << len(port.handle)) - 1 for name, port in self.record.items()}
        names = ("beta", "slot", "index", "data", "one_plus")
        self.parameters = [Port(dut, f"parameter_write_{name}") for name in names]
        self.parameter_valid = Port(dut, "parameter_write_valid")

    def idle(self) -> None:
        """All inputs at rest."""
        self.s_valid.write(0)
        self.m_ready.write(0)
        self.parameter_valid.write(0)
        for port in (*self.s_payload, *self.record.values(), *self.parameters):
            port.write(0)

    async def reset(self) -> None:
        self.idle()
        self.rst.write(1)
        await self.edge
        for _ in range(RESET_CYCLES):
            await self.edge
            for port in (self.m_valid, self.s_ready):
                if port.read():
                    raise BrokenRule(f"{port.name} is high in reset")
        self.rst.write(0)

    async def write_parameters(self) -> None:
        for write in self.job.writes:
            for port, value in zip(self.parameters, write, strict=True):
                port.write(value)
            self.parameter_valid.write(1)
            await self.edge
        self.parameter_valid.write(0)
        for _ in range(PARAMETER_CYCLES):
            await self.edge

    def offer(self, beat: jobs.Beat) -> None:
        """Puts a beat on the input. The layer's record is there with a row's first beat, and its opposite with any other, so that
        a record that isn't latched shows."""
        for port, value in zip(self.s_payload, beat[:-1], strict=True):
            port.write(value)
        record = self.job.records[beat.record]
        for name, port in self.record.items():
            port.write(record[name] if beat.record >= 0 else self.masks[name] & ~record[name])
        self.s_valid.write(1)

    async def stream(self, record: RowsRecord, end: int | None) -> None:
        """Streams until all packets are out and nothing follows, or until a cycle."""
        job, accepted, seen = self.job, record.accepted, record.seen
        beats, source, sink = iter(job.beats), cycle(job.source), cycle(job.sink)
        beat = next(beats, None)
        offered = False
        held: list[int] | None = None
        packets = length = still = drained = now = 0
        while drained < DRAIN_CYCLES and now != end:
            ready, valid, may_offer, take = (
                self.s_ready.read(),
                self.m_valid.read(),
                next(source),
                next(sink),
            )
            still += 1 if take and (may_offer or offered or beat is None) else 0
            if offered or may_offer and beat is not None:
                if not offered:
                    assert beat is not None
                    self.offer(beat)
                offered = not ready
                if ready:
                    accepted.append(now)
                    beat = next(beats, None)
                    still = 0
            else:
                self.s_valid.write(0)
            self.m_ready.write(take)
            if held is not None and not valid:
                raise BrokenRule(f"m_axis_tvalid fell in cycle {now} before the beat was taken")
            if valid:
                payload = [port.read() for port in self.m_payload]
                if held is not None and payload != held:
                    raise BrokenRule(f"the beat on m_axis changed in cycle {now} while it waited")
                held = None if take else payload
                if take:
                    seen.append(Seen(now, *payload))
                    still = 0
                    length = 0 if payload[2] else length + 1
                    packets += payload[2]
                    if length >= job.longest:
                        raise BrokenRule(
                            f"a packet has more than {job.longest} beats at cycle {now}"
                        )
                    if packets > job.packets:
                        raise BrokenRule(f"a packet too many came out in cycle {now}")
            if packets == job.packets and beat is None:
                drained += 1
            elif still > job.patience:
                raise BrokenRule(
                    f"nothing moved for {job.patience} cycles: {len(accepted)} of {len(job.beats)} beats went in, "
                    f"{packets} of {job.packets} packets came out"
                )
            now += 1
            await self.edge
        if now != end and (length or held is not None):
            raise BrokenRule("beats without TLAST followed the last packet")
        record.cycles = now


@cocotb.test()
async def rows(dut: Any) -> None:
    """Runs the job; a broken rule ends up in the record."""
    bench = Bench(dut, jobs.load())
    record = RowsRecord()
    Clock(dut.clk, 2, unit="ns").start()
    try:
        await bench.reset()
        await bench.write_parameters()
        if bench.job.reset_at is not None:
            await bench.stream(RowsRecord(), bench.job.reset_at)
            await bench.reset()
        await bench.stream(record, None)
    except BrokenRule as rule:
        record.fault = str(rule)
    jobs.store(record)
