# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""When beats move: from schedules of source and sink, fixed beforehand, to the cycle of every beat. `docs/timing.md` gives the rules.

The rules say, for each event, which earlier events it waits for; so every beat costs a few comparisons, however long it waits.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..config import Configuration
from ..latency import (
    CHOICE_LATENCY,
    STATISTICS_STREAM_DEPTH,
    STATISTICS_STREAM_LATENCY,
    RowTimes,
    buffer_depth,
    feeds_wait,
    normalization_latency,
    order_depth,
    output_depth,
    prediction_delay,
    statistics_latency,
    window_push_time,
)
from ..layer import LayerSettings

_NEVER = -(1 << 62)
"""A cycle before all others."""


@dataclass(frozen=True)
class Packet:
    """What the timing of a packet depends on."""

    beats: int
    """Up to the one with TLAST; those of the narrow bus, if there is one."""
    settings: LayerSettings | None
    """None: settings that are refused."""
    keeps: bool = False
    """The row's record has `valid` and `keep_isd`, even if it is refused. Need not be told of settings."""
    skips: bool = False
    """Likewise `skip`."""
    predicted: bool = False
    """Its ISD is predicted or held (`OutputRow.predicted`)."""
    inside: int | None = None
    """Beats that INT8 input beside FP16 is inside (`ReceivedRow.halves`), even if the row is refused; None: it isn't that."""

    def __post_init__(self) -> None:
        if self.settings is not None:
            object.__setattr__(self, "keeps", self.settings.keep_isd)
            object.__setattr__(self, "skips", self.settings.skip)

    @property
    def needs_statistics(self) -> bool:
        return not (self.settings is None or (self.predicted and self.settings.mode == "rmsnorm"))


@dataclass(frozen=True)
class Passage:
    """The cycles in which a packet's beats are accepted, and those in which its answer's beats are taken."""

    in_cycles: list[int]
    out_cycles: list[int]
    statistics_cycle: int | None = None
    """The cycle in which its mean and ISD are taken; None: the build has no stream for them."""


def passages(
    configuration: Configuration,
    packets: Iterable[Packet],
    source: ArrayLike,
    sink: ArrayLike,
    start: int = 0,
    statistics_sink: ArrayLike | None = None,
) -> list[Passage]:
    """The passage of every packet.

    Parameters
    ----------
    packets : in order
    source, sink : (cycles,) truth values, repeated without end: whether the source is willing to offer a beat (once offered, a beat stays),
        and whether the sink takes one
    start : first cycle in which `s_axis_tready` is high
    statistics_sink : likewise whether the sink of the statistics stream takes a beat (default: always); only for builds with that stream
    """
    told = _Schedule([True] if statistics_sink is None else statistics_sink)
    core = _Core(configuration, _Schedule(source), _Schedule(sink), told, start)
    return core.run(packets)


class _Schedule:
    """A repeated sequence of willing and unwilling cycles."""

    def __init__(self, willing: ArrayLike) -> None:
        array = np.asarray(willing, dtype=np.bool_)
        assert array.any(), "a side that never moves a beat"
        at = np.flatnonzero(np.concatenate([array, array]))
        cycles = np.arange(array.size)
        self._wait: list[int] = (at[np.searchsorted(at, cycles)] - cycles).tolist()

    def next(self, cycle: int) -> int:
        """The first willing cycle, from one on."""
        return cycle + self._wait[cycle % len(self._wait)]


class _Queue:
    """Rule Q, with one place at the output, or, `late`, with two."""

    def __init__(self, *, late: bool = False) -> None:
        self.late = late
        self.fetched = self.moved = self.left = self.left_before = _NEVER

    def enter(self, written: int) -> int:
        """An entry comes in; the one before it has left. Returns the first cycle in which this one can leave."""
        self.fetched = max(written + 1, self.moved)
        self.moved = max(self.fetched + 1, self.left_before + 1 if self.late else self.left)
        return max(self.moved, self.left) + 1

    def leave(self, cycle: int) -> None:
        self.left_before, self.left = self.left, cycle


class _Level:
    """Rule L: `most` things at most may be inside for another one to come. What came counts `delay` cycles later, what went
    `release` cycles later."""

    def __init__(self, most: int, delay: int, release: int) -> None:
        self.most, self.delay, self.release = most, delay, release
        self.came = 0
        self.last = _NEVER
        self.gone: list[int] = []

    def enter(self, cycle: int) -> None:
        self.came += 1
        self.last = cycle

    def room(self, cycle: int) -> int:
        """The cycle if there is room in it, else the first one later in which there may be."""
        over = self.came - (self.last > cycle - self.delay) - self.most
        return max(cycle, self.gone[over - 1] + self.release) if over > 0 else cycle


def _first_with_room(cycle: int, *levels: _Level) -> int:
    while True:
        later = max(level.room(cycle) for level in levels)
        if later == cycle:
            return cycle
        cycle = later


class _Framed(NamedTuple):
    """How a packet came in."""

    in_cycles: list[int]
    cycles: list[int]
    """E of each beat of its row."""
    ordered: int
    """When its order stands at its queue's output."""
    settled: bool


@dataclass(frozen=True)
class _Row:
    """A row as it is framed: for each beat, the cycles for which the statistics unit is fed (0: no samples in it)."""

    null: bool
    feeds: list[int]
    complete: int
    """The beat with the last sample."""
    gives: list[int]
    """Beats of the bus in which each beat leaves; 0: it leaves together with the next one."""


class _Core:
    def __init__(
        self,
        configuration: Configuration,
        source: _Schedule,
        sink: _Schedule,
        statistics_sink: _Schedule,
        start: int,
    ) -> None:
        self.what, self.how = configuration.what, configuration.how
        self.source, self.sink, self.statistics_sink = source, sink, statistics_sink
        self.waits = feeds_wait(configuration)
        self.to_window = statistics_latency(configuration) + window_push_time(configuration)
        self.to_isd = statistics_latency(configuration) + RowTimes(configuration).isd
        self.through_lanes = normalization_latency(configuration)
        self.late = prediction_delay(configuration)
        self.buffered = _Level(buffer_depth(configuration) - 2, 2, 1)
        self.ordered = _Level(order_depth(configuration) - 2, 2, 1)
        self.sent = _Level(output_depth(configuration) - 2, 2, 2)
        self.told = _Level(STATISTICS_STREAM_DEPTH - 2, 2, 2)
        self.feeds, self.results, self.statistics = _Queue(), _Queue(), _Queue()
        self.orders, self.windows, self.ends, self.choices = (_Queue(late=True) for _ in range(4))
        self.ratio = configuration.beat_bytes // configuration.bus
        self.collected = self.accepted = self.seen = self.seen_before = self.taken = _NEVER
        self.left = _NEVER
        self.start = start
        self.framed = self.fed = self.summed = self.issued = self.pending = _NEVER
        self.rows: dict[LayerSettings | None, _Row] = {}

    def run(self, packets: Iterable[Packet]) -> list[Passage]:
        return [self._pass(packet) for packet in packets]

    def _pass(self, packet: Packet) -> Passage:
        if packet.settings not in self.rows:
            self.rows[packet.settings] = self._row(packet.settings)
        row = self.rows[packet.settings]
        framed = self._take(packet, row)
        end = self.ends.enter(framed.cycles[-1] + 1)
        known, queues = framed.ordered, [self.orders, self.ends]
        if not row.null and (packet.needs_statistics or not framed.settled):
            known = max(known, self.windows.enter(self.summed + self.to_window))
            queues.append(self.windows)
        choice = self._pend(packet, row, framed)
        if choice is not None:
            known = max(known, self.choices.enter(choice))
            queues.append(self.choices)
        out_cycles: list[int] = []
        last = len(framed.cycles) - 1
        for beat, cycle in enumerate(framed.cycles):
            ready = max(known, end) if beat == last else known
            tells = beat == last and self.what.statistics_stream
            out_cycles += self._give(ready, cycle, row.gives[beat], null=row.null, tells=tells)
        for queue in queues:
            queue.leave(self.issued)
        return Passage(
            framed.in_cycles, out_cycles, self._tell() if self.what.statistics_stream else None
        )

    def _take(self, packet: Packet, row: _Row) -> _Framed:
        """A packet comes in, its row is framed and fed."""
        in_cycles: list[int] = []
        framed: list[int] = []
        order = _NEVER
        settled = False
        parts = 1 if packet.inside is None else 2
        beats, length = packet.inside or -(-packet.beats // self.ratio), len(row.feeds)
        for beat in range(max(beats, length)):
            cycle = self.framed + 1
            if beat < beats:
                if beat % parts == 0:
                    in_cycles += self._accept(min(self.ratio, packet.beats - len(in_cycles)))
                # Rule M.
                self.seen = max(self.accepted + 1, self.seen + 1, self.taken)
                cycle = max(cycle, self.seen + 1)
            if beat >= length:
                self.taken = max(self.taken + 1, self.seen + 1)
                continue
            cycle = self._frame(cycle, row, first=beat == 0)
            framed.append(cycle)
            if beat < beats:
                self.taken = cycle
            if beat == 0:
                settled = self.pending < self.accepted
                order = self.orders.enter(cycle + 1)
                self.ordered.gone.append(self.orders.fetched)
            if row.feeds[beat] and (packet.needs_statistics or not settled):
                self._feed(cycle, row.feeds[beat], beat == row.complete)
        return _Framed(in_cycles, framed, order, settled)

    def _row(self, settings: LayerSettings | None) -> _Row:
        if settings is None:
            return _Row(null=True, feeds=[0], complete=0, gives=[1])
        p_n, n = self.how.p_n, settings.n
        # Elements of a beat of the bus, and of what leaves together.
        parts = 2 if settings.int8_output and self.what.mixed else 1
        size, wide = parts * p_n // self.ratio, parts * p_n
        stride = settings.stride
        group = self.how.p_d * min(stride, p_n // self.how.p_d)
        samples = settings.first + stride * np.arange(settings.samples)
        feeds = [
            np.unique(samples[samples // p_n == beat] % p_n // group).size
            for beat in range(-(-n // p_n))
        ]
        gives = [0] * len(feeds)
        for first in range(0, n, wide):
            beyond = min(first + wide, n)
            gives[(beyond - 1) // p_n] = -(-(beyond - first) // size)
        return _Row(False, feeds, int(samples[-1] // p_n), gives)

    def _accept(self, count: int) -> list[int]:
        """Rules C and A: `count` beats of the bus, one as wide as those inside: collected, and into the register slice."""
        cycles = []
        for _ in range(count):
            offered = max(self.source.next(max(self.collected + 1, 0)), self.start)
            free = self.accepted if self.ratio > 1 else self.seen_before + 1
            self.collected = max(offered, free)
            cycles.append(self.collected)
        self.accepted = self.collected
        if self.ratio > 1:
            self.accepted = max(self.collected + 1, self.seen_before + 1)
        self.seen_before = self.seen
        return cycles

    def _frame(self, cycle: int, row: _Row, *, first: bool) -> int:
        """Rule E: a beat of a row is framed."""
        if not self.waits:
            cycle = max(cycle, self.fed)
        cycle = _first_with_room(cycle, self.buffered, self.ordered)
        self.framed = cycle
        if first:
            self.ordered.enter(cycle)
        if not row.null:
            self.buffered.enter(cycle)
        return cycle

    def _feed(self, framed: int, cycles: int, completes: bool) -> None:
        """Rule F: samples to the statistics unit."""
        if self.waits:
            framed = max(self.feeds.enter(framed), self.fed)
            self.feeds.leave(framed)
        self.fed = framed + cycles
        if completes:
            self.fed = self.summed = max(self.fed, self.summed + self.how.isd_interval)

    def _pend(self, packet: Packet, row: _Row, framed: _Framed) -> int | None:
        """Rules P and S, after the row was fed: when its choice is written, if it has one."""
        waits = packet.skips and not framed.settled
        if not self.what.skipping:
            return None
        if self.late and framed.settled and packet.predicted:
            return framed.cycles[0] + 1 + self.late
        if not (packet.keeps or waits):
            return None
        known = framed.cycles[0] + 1 if row.null else self.summed + self.to_isd
        self.pending = max(self.pending, known)
        # A null row has no ISD to choose.
        return known + CHOICE_LATENCY + self.late if waits and not row.null else None

    def _tell(self) -> int:
        """Rule V: mean and ISD of the row whose last beat was sent just now leave."""
        self.told.enter(self.issued)
        leaves = self.statistics.enter(self.issued + STATISTICS_STREAM_LATENCY)
        leaves = self.statistics_sink.next(leaves)
        self.statistics.leave(leaves)
        self.told.gone.append(leaves)
        return leaves

    def _give(self, ready: int, framed: int, count: int, *, null: bool, tells: bool) -> list[int]:
        """Rules I, V, Y, G and D: a beat goes through the lanes, and leaves, as `count` beats of the bus. `tells`: its row's mean and ISD
        follow."""
        cycle = max(ready, self.issued + 1)
        if self.what.starts_early and not null:
            cycle = max(cycle, framed + 2)
        levels = [self.sent, self.told] if tells else [self.sent]
        self.issued = cycle = _first_with_room(cycle, *levels)
        self.sent.enter(cycle)
        if not null:
            self.buffered.gone.append(cycle)
        leaves = self.results.enter(cycle + self.through_lanes)
        cycles: list[int] = []
        if count == 0:
            # The first of two INT8 beats beside FP16: it waits for the second one.
            pass
        elif self.ratio > 1:
            leaves = max(leaves, self.left)
            self.left = leaves
            for _ in range(count):
                self.left = self.sink.next(self.left + 1)
                cycles.append(self.left)
        else:
            leaves = self.sink.next(leaves)
            cycles = [leaves]
        self.results.leave(leaves)
        self.sent.gone.append(leaves)
        return cycles
