# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Both streams of the hardware for cocotb benches: beats go in and out under schedules fixed beforehand, and the rules are checked.

It acts at falling edges, like the benches. Outputs depend on registers alone, so what is seen there holds until the rising edge, and
every handshake of the cycle is known; inputs change there.
"""

from collections.abc import Callable
from itertools import cycle
from typing import Any

from haan.sim.jobs import Beat, Seen, StreamJob, StreamRecord
from haan.sim.ports import BrokenRule, Port

RESET_CYCLES = 4
DRAIN_CYCLES = 100
"""How long a bench looks for beats that nobody asked for, after all that were."""
PAYLOAD = ("tdata", "tkeep", "tlast", "tid", "tuser")


class Streams:
    """Source and sink.

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
        self.m_payload = [Port(dut, f"m_axis_{name}") for name in PAYLOAD]
        self.s_valid, self.s_ready = Port(dut, "s_axis_tvalid"), Port(dut, "s_axis_tready")
        self.m_valid, self.m_ready = Port(dut, "m_axis_tvalid"), Port(dut, "m_axis_tready")
        self.beats = iter(job.beats)
        self.beat = next(self.beats, None)
        self.source, self.sink = cycle(job.source), cycle(job.sink)
        self.offered = False
        self.held: list[int] | None = None
        self.accepted = self.packets = self.length = self.still = self.drained = 0

    def idle(self) -> None:
        """All inputs at rest."""
        for port in (self.s_valid, self.m_ready, *self.s_payload):
            port.write(0)

    def check_reset(self) -> None:
        """In reset nothing is offered and nothing taken."""
        for port in (self.m_valid, self.s_ready):
            if port.read():
                raise BrokenRule(f"{port.name} is high in reset")

    def step(self, now: int, *, may_offer: bool = True, ends: bool = True) -> None:
        """What happens at one falling edge. A beat that isn't offered yet may be; `ends`: nothing else is to be waited for."""
        willing, takes = next(self.source), next(self.sink)
        moves = takes and (willing or self.offered or self.beat is None)
        moved = self._offer(now, willing and may_offer) | self._take(now, takes)
        self.still = 0 if moved else self.still + bool(moves)
        done = self.beat is None and self.packets == self.job.packets
        self.drained = self.drained + 1 if done and ends else 0
        if self.still > self.job.patience and not self.drained:
            raise BrokenRule(
                f"nothing moved for {self.job.patience} cycles: {self.accepted} of {len(self.job.beats)} beats went in, "
                f"{self.packets} of {self.job.packets} packets came out"
            )

    @property
    def finished(self) -> bool:
        """All is done, and nothing followed."""
        return self.drained >= DRAIN_CYCLES

    def check_end(self) -> None:
        """No packet is left in part."""
        if self.length or self.held is not None:
            raise BrokenRule("beats without TLAST followed the last packet")

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
        self.m_ready.write(takes)
        if not self.m_valid.read():
            if self.held is not None:
                raise BrokenRule(f"m_axis_tvalid fell in cycle {now} before the beat was taken")
            return False
        payload = [port.read() for port in self.m_payload]
        if self.held is not None and payload != self.held:
            raise BrokenRule(f"the beat on m_axis changed in cycle {now} while it waited")
        if not takes:
            self.held = payload
            self.record.waited_out.append(now)
            return False
        self.held = None
        self.record.seen.append(Seen(now, *payload))
        last = payload[2]
        self.length = 0 if last else self.length + 1
        self.packets += last
        if self.length >= self.job.longest:
            raise BrokenRule(f"a packet has more than {self.job.longest} beats at cycle {now}")
        if self.packets > self.job.packets:
            raise BrokenRule(f"a packet too many came out in cycle {now}")
        return True
