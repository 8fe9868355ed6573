# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What passes between a caller and the bench that it starts: plain numbers in a file named by the plusarg `job`."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import cocotb


class Beat(NamedTuple):
    """A beat that the source offers."""

    data: int
    keep: int
    last: int
    id: int
    user: int
    record: int = -1
    """For the core: an index into the job's records on a row's first beat, else −1."""


class Seen(NamedTuple):
    """A beat that the sink took, and the cycle in which it did."""

    cycle: int
    data: int
    keep: int
    last: int
    id: int
    user: int


class SeenStatistics(NamedTuple):
    """A beat that the sink of the statistics stream took, and the cycle in which it did."""

    cycle: int
    data: int
    id: int
    user: int
    last: int


@dataclass(frozen=True, kw_only=True)
class StreamJob:
    """What goes through the streams."""

    beats: list[Beat]
    packets: int
    """Packets that must come out."""
    longest: int
    """Beats in the longest packet that may come out."""
    source: bytes
    """Per cycle, 1: the source may start to offer a beat. Repeated without end."""
    sink: bytes
    """Per cycle, 1: the sink is ready. Repeated without end."""
    statistics_sink: bytes | None = None
    """Likewise of the statistics stream; None: there is none."""
    patience: int
    """How often source and sinks are willing without a handshake, after which the hardware hangs."""
    clears: int = 0
    """Cycles after a reset that the bench lets pass: until one before the first in which TREADY may be high."""
    reset_at: int | None = None
    """Cycle at which the run is broken off by a reset, and started again."""


@dataclass
class StreamRecord:
    """What was seen of the streams."""

    accepted: list[int] = field(default_factory=list)
    """The cycle of each input beat's handshake."""
    seen: list[Seen] = field(default_factory=list)
    statistics: list[SeenStatistics] = field(default_factory=list)
    waited_in: list[int] = field(default_factory=list)
    """Cycles in which a beat of the input waited."""
    waited_out: list[int] = field(default_factory=list)
    """Cycles in which a beat of the output waited."""
    fault: str = ""
    """A sentence: the rule that the hardware broke."""


@dataclass(frozen=True, kw_only=True)
class RowsJob(StreamJob):
    """Work for `haan.sim.bench_rows`."""

    writes: list[tuple[int, int, int, int, int]]
    """Parameter writes: beta, slot, index, data, one_plus."""
    records: list[dict[str, int]]
    """Different layer records, by port."""


@dataclass(frozen=True)
class VectorsJob:
    """Work for `haan.sim.bench_vectors`."""

    inputs: dict[str, list[int]]
    outputs: list[str]
    cycles: int


class Delays(NamedTuple):
    """Cycles by which a master of AXI4-Lite is late on each channel: before VALID for what it sends, before READY for what it gets."""

    aw: int = 0
    w: int = 0
    b: int = 0
    ar: int = 0
    r: int = 0


class BusAccess(NamedTuple):
    """A read (data is None) or a write."""

    address: int
    data: int | None = None
    strobe: int = 0xF
    delays: Delays = Delays()


Bus = Sequence[BusAccess]


@dataclass(frozen=True)
class BlockStep:
    """Inputs are driven, or are 1 for one cycle; then accesses go over the bus."""

    drive: dict[str, int] = field(default_factory=dict)
    pulse: tuple[str, ...] = ()
    bus: Bus = ()


@dataclass(frozen=True)
class BlockJob:
    """Work for `haan.sim.bench_axil`."""

    steps: list[BlockStep]
    inputs: list[str]
    outputs: list[str]
    externals: list[str]
    """Registers that the bench answers for."""
    answers: list[tuple[int, int]]
    """Their answers in turn, repeated without end: delay, error."""
    watch: list[str]
    """Outputs that are recorded after each step."""
    pulses: list[str]
    """Outputs each of whose cycles at 1 is recorded."""
    quiet_in_reset: bool
    """VALID and READY must be low in reset."""


@dataclass
class BlockRecord:
    """What `haan.sim.bench_axil` saw."""

    answers: list[tuple[int, int, int]] = field(default_factory=list)
    """Response, data and cycle of each access."""
    asked: list[tuple[str, int]] = field(default_factory=list)
    """External registers that were written, and with what."""
    pulses: list[str] = field(default_factory=list)
    outputs: list[dict[str, int]] = field(default_factory=list)
    fault: str = ""
    """A sentence: the rule that the hardware broke."""


@dataclass(frozen=True)
class Moment:
    """Accesses that begin when so many beats have been accepted and so many packets have come out."""

    bus: Bus
    beats: int = 0
    packets: int = 0
    holds: bool = True
    """After these beats no further one is offered until all accesses are answered."""


@dataclass(frozen=True, kw_only=True)
class AxiJob(StreamJob):
    """Work for `haan.sim.bench_axi`."""

    setup: Bus = ()
    """Accesses that are answered before the schedules begin."""
    moments: Sequence[Moment] = ()
    """In order: one begins after the one before, or, where that holds, after its end."""


Answer = tuple[int, int, int]
"""Response, data and cycle of an access. Cycles count from the end of the reset."""


@dataclass
class AxiRecord(StreamRecord):
    """What `haan.sim.bench_axi` saw."""

    start: int = 0
    """The first cycle of the schedules."""
    setup: list[Answer] = field(default_factory=list)
    answers: list[list[Answer]] = field(default_factory=list)
    """By moment."""


def load() -> Any:
    """The job of this simulation."""
    return pickle.loads(Path(str(cocotb.plusargs["job"])).read_bytes())


def store(result: object) -> None:
    """Leaves the bench's result for the caller."""
    job = Path(str(cocotb.plusargs["job"]))
    unfinished = job.with_name("unfinished")
    unfinished.write_bytes(pickle.dumps(result))
    unfinished.rename(job.with_name("result"))


@dataclass(frozen=True)
class LinkJob:
    """Work for `haan.sim.bench_link`."""

    address: str
    """Where the host listens, as of `multiprocessing.connection`."""
    key: bytes
    """What it knows the bench by."""
    bit_cycles: int
    """Clock cycles to a bit."""
