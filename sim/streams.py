# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The streams of the hardware for cocotb benches: beats go in and out under schedules fixed beforehand, and the rules are checked.

It acts at falling edges, like the benches. Outputs depend on registers alone, so what is seen there holds until the rising edge, and
every handshake of the cycle is known; inputs change there.
"""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from haan.sim.jobs import Beat, Seen, SeenStatistics, StreamJob, StreamRecord
from haan.sim.ports import BrokenRule, Port

RESET_CYCLES = 4
DRAIN_CYCLES = 100
"""How long a bench looks for beats that nobody asked for, after all that were."""
PAYLOAD = ("tdata", "tkeep", "tlast", "tid", "tuser")
STATISTICS = ("tdata", "tid", "tuser", "tlast")
_ALL = 0b111
"""Source, sink, and sink of the statistics stream."""


class Output:
    """An output stream: what it offers holds until it is taken.

    Members
    -------
    held : payload that waits, None: none does
    """

    def __init__(self, dut: Any, name: str, payload: Sequence[str]) -> None:
        self.name = name
        self.payload = [Port(dut, f"{name}_{part}") for part in payload]
        self.valid, self.ready = Port(dut, f"{name}_tvalid"), Port(dut, f"{name}_tready")
        self.held: list[int] | None = None

    def take(self, now: int, takes: int) -> list[int] | None:
        """What happens at one falling edge; the payload that was taken, if the sink does and there is one."""
        self.ready.write(takes)
        if not self.valid.read():
            if self.held is not None:
                raise BrokenRule(f"{self.valid.name} fell in cycle {now} before the beat was taken")
            return None
        payload = [port.read() for port in self.payload]
        if self.held is not None and payload != self.held:
            raise BrokenRule(f"the beat on {self.name} changed in cycle {now} while it waited")
        self.held = None if takes else payload
        return payload if takes else None


class Streams:
    """Source and sink, and the sink of the statistics stream where there is one.

    Parameters
    ----------
    dut : the hardware
    job, record : what to do, and where to note what happens
    beside : called with each beat when it is offered
    """

    def __init__(
        self,
        dut: Any,
        job: StreamJob,
        record: StreamRecord,
        beside: Callable[[Beat], None] | None = None,
    ) -> None:
        self.job, self.record, self.beside = job, record, beside
        self.s_payload = [Port(dut, f"s_axis_{name}") for name in PAYLOAD]
        self.s_valid, self.s_ready = Port(dut, "s_axis_tvalid"), Port(dut, "s_axis_tready")
        self.rows = Output(dut, "m_axis", PAYLOAD)
        self.outputs = [self.rows]
        self.statistics: Output | None = None
        if job.statistics_sink is not None:
            self.statistics = Output(dut, "m_stat", STATISTICS)
            self.outputs.append(self.statistics)
        self.beats = iter(job.beats)
        self.beat = next(self.beats, None)
        self.source, self.sink = cycle(job.source), cycle(job.sink)
        self.statistics_sink = cycle(job.statistics_sink or b"\1")
        self.offered = False
        self.willing = 0
        self.accepted = self.packets = self.told = self.length = self.still = self.drained = 0

    def idle(self) -> None:
        """All inputs at rest."""
        for port in (self.s_valid, *self.s_payload, *(each.ready for each in self.outputs)):
            port.write(0)

    def check_reset(self) -> None:
        """In reset nothing is offered and nothing taken."""
        for port in (self.s_ready, *(each.valid for each in self.outputs)):
            if port.read():
                raise BrokenRule(f"{port.name} is high in reset")

    def step(self, now: int, *, may_offer: bool = True, ends: bool = True) -> None:
        """What happens at one falling edge. A beat that isn't offered yet may be; `ends`: nothing else is to be waited for."""
        willing, takes, told = next(self.source), next(self.sink), next(self.statistics_sink)
        # A bit for each side that has been willing since the last count.
        self.willing |= (willing or self.offered or self.beat is None) | takes << 1 | told << 2
        moved = self._offer(now, willing and may_offer) | self._take(now, takes)
        moved |= self._note(now, told)
        if moved or self.willing == _ALL:
            self.still = 0 if moved else self.still + 1
            self.willing = 0
        done = self.beat is None and self.packets == self.job.packets
        done = done and (self.statistics is None or self.told == self.job.packets)
        self.drained = self.drained + 1 if done and ends else 0
        if self.still > self.job.patience and not self.drained:
            raise BrokenRule(
                f"nothing moved for {self.job.patience} cycles: {self.accepted} of {len(self.job.beats)} beats went in, "
                f"{self.packets} of {self.job.packets} packets came out"
                + f", and {self.told} beats of statistics"
                * (self.statistics is not None)
            )

    @property
    def finished(self) -> bool:
        """All is done, and nothing followed."""
        return self.drained >= DRAIN_CYCLES

    def check_end(self) -> None:
        """No packet is left in part."""
        if self.length or self.rows.held is not None:
            raise BrokenRule("beats without TLAST followed the last packet")
        if self.statistics is not None and self.statistics.held is not None:
            raise BrokenRule("statistics followed those of the last packet")

    def _offer(self, now: int, starts: bool | int) -> bool:
        """The source's part; whether a beat was accepted."""
        beat = self.beat
        if beat is None or not (self.offered or starts):
            self.s_valid.write(0)
            return False
        if not self.offered:
            for port, value in zip(self.s_payload, beat, strict=False):
                port.write(value)
            if self.beside is not None:
                self.beside(beat)
            self.s_valid.write(1)
        if not self.s_ready.read():
            self.offered = True
            self.record.waited_in.append(now)
            return False
        self.offered = False
        self.accepted += 1
        self.record.accepted.append(now)
        self.beat = next(self.beats, None)
        return True

    def _take(self, now: int, takes: int) -> bool:
        """The sink's part; whether a beat was taken."""
        payload = self.rows.take(now, takes)
        if payload is None:
            if self.rows.held is not None:
                self.record.waited_out.append(now)
            return False
        self.record.seen.append(Seen(now, *payload))
        last = payload[2]
        self.length = 0 if last else self.length + 1
        self.packets += last
        if self.length >= self.job.longest:
            raise BrokenRule(f"a packet has more than {self.job.longest} beats at cycle {now}")
        if self.packets > self.job.packets:
            raise BrokenRule(f"a packet too many came out in cycle {now}")
        return True

    def _note(self, now: int, takes: int) -> bool:
        """The part of the statistics stream's sink; whether a beat was taken."""
        payload = None if self.statistics is None else self.statistics.take(now, takes)
        if payload is None:
            return False
        seen = SeenStatistics(now, *payload)
        self.record.statistics.append(seen)
        self.told += 1
        if not seen.last:
            raise BrokenRule(f"the beat on m_stat in cycle {now} has no TLAST")
        if self.told > self.job.packets:
            raise BrokenRule(f"statistics of a row too many came out in cycle {now}")
        return True
