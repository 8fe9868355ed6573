# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Simulation of the whole core on rows, under idle and backpressure that are fixed beforehand."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..config import Configuration, ConfigurationError
from ..flags import RowFlag
from ..layer import LayerSettings, float32_bits, record_layout
from . import runner
from .jobs import Beat, RowsJob, RowsRecord, Seen
from .runner import SimulationError, Simulator

TOP: Literal["haan_core"] = "haan_core"
_SCHEDULE_CYCLES = 8191
"""Length of a random schedule; it repeats then. A prime, so that it does not keep step with rows."""

Bits = NDArray[np.uint16]


@dataclass(frozen=True)
class StallPattern:
    """When a side of a stream is willing to move a beat.

    `probability` of a cycle in which it isn't, in bursts of about `burst` cycles; or, with `period`, unwilling in the first
    `busy` of every `period` cycles.
    """

    probability: float = 0.0
    burst: int = 1
    period: int = 0
    busy: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.probability < 1 or self.burst < 1:
            raise ConfigurationError(
                f"stall probability = {self.probability}, burst = {self.burst}: allowed are 0 ≤ probability < 1, burst ≥ 1"
            )
        if self.period and not 0 <= self.busy < self.period:
            raise ConfigurationError(
                f"stall busy = {self.busy} of period = {self.period}: allowed is 0 ≤ busy < period"
            )

    def schedule(self, seed: int) -> NDArray[np.bool_]:
        """Per cycle, whether the side is willing; to be repeated without end. At least one cycle is True."""
        if self.period:
            return np.arange(self.period) >= self.busy
        if not self.probability:
            return np.ones(1, dtype=np.bool_)
        random = np.random.default_rng(seed)
        bursts = random.random(_SCHEDULE_CYCLES) >= self.probability
        willing = np.repeat(bursts, random.integers(1, 2 * self.burst, _SCHEDULE_CYCLES))
        willing[0] = True
        return willing


FLOWING = StallPattern()


@dataclass(frozen=True, eq=False)
class Row:
    """One row, as a packet into the core.

    `bits` are its elements, float16 or uint16 bit patterns. A packet with a fault is made by giving fewer or more elements than
    `settings.n`, or by the overrides.
    """

    bits: Bits
    settings: LayerSettings | None
    """What the layer asks for; None: a layer that the table doesn't know."""
    layer: int = 0
    """TID."""
    token: int = 0
    """Token slot, in TUSER."""
    x_scale: float = 1.0
    """Scale of the input, in TUSER."""
    fields: Mapping[str, int] = field(default_factory=dict)
    """Fields of the layer record that are driven with other values than the settings give."""
    keep: Mapping[int, int] = field(default_factory=dict)
    """Beat -> TKEEP in its place."""
    ids: Mapping[int, int] = field(default_factory=dict)
    """Beat -> TID in its place."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", _half_bits(self.bits, "a row's elements"))

    def record(self, configuration: Configuration) -> dict[str, int]:
        """The layer record that is driven beside the row (`haan.layer.record_layout`)."""
        layout = record_layout(configuration)
        fields = dict.fromkeys(layout, 0)
        if self.settings is not None:
            fields |= self.settings.record(configuration)
        fields |= self.fields
        unknown = sorted(fields.keys() - layout.keys())
        if unknown:
            raise ConfigurationError(
                f"the layer record has no field {unknown[0]!r}; it has: {', '.join(layout)}"
            )
        return fields

    def packet(self, p_n: int) -> tuple[Bits, NDArray[np.bool_], NDArray[np.int64]]:
        """Its beats: elements (beats, p_n), with zeros after the last one; TKEEP (beats, 2·p_n), bit 0 first; TID (beats,).
        A row without elements is one beat."""
        beats = max(1, -(-len(self.bits) // p_n))
        beyond = [beat for beat in (*self.keep, *self.ids) if not 0 <= beat < beats]
        if beyond:
            raise ConfigurationError(
                f"keep or ids for beat {beyond[0]}, but the row has beats 0 to {beats - 1}"
            )
        data = np.zeros(beats * p_n, dtype=np.uint16)
        data[: len(self.bits)] = self.bits
        keep = np.arange(beats * 2 * p_n).reshape(beats, -1) < 2 * len(self.bits)
        for beat, value in self.keep.items():
            keep[beat] = [value >> i & 1 for i in range(2 * p_n)]
        tid = np.full(beats, self.layer)
        for beat, value in self.ids.items():
            tid[beat] = value
        return data.reshape(beats, p_n), keep, tid


@dataclass(frozen=True, eq=False)
class ParameterVector:
    """Gamma or beta of one slot: float16 or float32 numbers, or uint16/uint32 bit patterns, from element 0."""

    kind: Literal["gamma", "beta"]
    bits: NDArray[np.uint16] | NDArray[np.uint32]
    slot: int = 0
    one_plus: bool = False
    """Gamma is given as an offset from one."""

    def __post_init__(self) -> None:
        values = np.asarray(self.bits)
        if values.dtype == np.float16 or values.dtype == np.float32:
            values = values.view(np.uint16 if values.dtype == np.float16 else np.uint32)
        if values.ndim != 1 or values.dtype not in (np.uint16, np.uint32):
            raise ConfigurationError(
                f"a parameter vector of {values.dtype}, {values.ndim} axes: allowed are float16, float32, uint16, uint32, one axis"
            )
        object.__setattr__(self, "bits", values)


@dataclass(frozen=True, eq=False)
class RowResult:
    """One row, as a packet out of the core. Cycles count from the end of reset and parameter writes."""

    bits: Bits
    """FP16 bits of the elements, N or, after bad settings, none."""
    flags: RowFlag
    layer: int
    """TID."""
    token: int
    in_cycles: list[int]
    """The cycle in which each beat was accepted."""
    out_cycles: list[int]
    """The cycle in which each beat was taken."""

    @property
    def latency(self) -> int:
        """Cycles from the first beat in to the last beat out."""
        return self.out_cycles[-1] - self.in_cycles[0]


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """What came out: as many rows as went in, in order."""

    rows: list[RowResult]
    cycles: int
    """Length of the simulation, with some cycles after the last row."""
    source: NDArray[np.bool_]
    """Whether the source was willing, per cycle, repeated without end."""
    sink: NDArray[np.bool_]
    ready_from: int
    """The first cycle in which `s_axis_tready` could be high."""


def simulate(
    configuration: Configuration,
    rows: Sequence[Row],
    parameters: Sequence[ParameterVector] = (),
    *,
    simulator: Simulator = "verilator",
    source_idle: StallPattern = FLOWING,
    sink_stall: StallPattern = FLOWING,
    seed: int = 0,
    reset_at: int | None = None,
    waves: Path | None = None,
    build_root: Path | None = None,
    verilog: str | None = None,
) -> SimulationResult:
    """Runs rows through the generated Verilog, back to back.

    Parameters
    ----------
    rows : packets into the core
    parameters : gamma and beta vectors, written before the first row
    source_idle, sink_stall : idle cycles of the source, backpressure of the sink; `seed` fixes the random ones
    reset_at : cycle in which a reset breaks off everything; then the rows are sent again, and only those are reported
    waves : file to record waves into (Verilator: VCD, Icarus: FST)
    build_root : folder that keeps compiled Verilog (default: in the user's cache)
    verilog : text to simulate instead of what `haan.hdl.generate` gives for the configuration

    Raises ConfigurationError for rows or parameters that the build can't take, and SimulationError if the hardware broke a rule: VALID
    and payload hold until READY, VALID and READY are low in reset, no unknown bit, one packet a row, no hang.
    """
    # The core knows beats of p_n elements only; a narrow bus is a matter of the top around it.
    configuration = configuration.with_(bus_bytes=None)
    source = source_idle.schedule(seed)
    sink = sink_stall.schedule(seed + 1)
    job = _job(configuration, rows, parameters, source, sink, reset_at)
    text = _generated(configuration) if verilog is None else verilog
    made = runner.build(
        text,
        TOP,
        _ports(configuration),
        simulator,
        waves=waves is not None,
        build_root=build_root,
    )
    record: RowsRecord = runner.run(made, "haan.sim.bench_rows", job, waves=waves)
    if record.fault:
        raise SimulationError(record.fault)
    results = _results(configuration, rows, job, record)
    # Right after a reset, without parameter writes in between, TREADY still is low.
    return SimulationResult(results, record.cycles, source, sink, int(reset_at is not None))


@lru_cache(maxsize=8)
def _generated(configuration: Configuration) -> str:
    # Imported here: with `verilog` given, Amaranth isn't needed.
    from ..hdl import generate

    return generate(configuration, TOP)


def _ports(configuration: Configuration) -> list[str]:
    """The core's ports, as far as the bench uses them."""
    stream = ("tdata", "tkeep", "tlast", "tid", "tuser", "tvalid", "tready")
    write = ("valid", "beta", "slot", "index", "data", "one_plus")
    return [
        "clk",
        "rst",
        *(f"{side}_axis_{name}" for side in "sm" for name in stream),
        *(f"layer_{name}" for name in record_layout(configuration)),
        *(f"parameter_write_{name}" for name in write),
    ]


def _half_bits(values: ArrayLike, what: str) -> Bits:
    array = np.asarray(values)
    if array.dtype == np.float16:
        array = array.view(np.uint16)
    if array.ndim != 1 or array.dtype != np.uint16:
        raise ConfigurationError(
            f"{what} are {array.dtype} with {array.ndim} axes: allowed are float16 or uint16, one axis"
        )
    return array


def _job(
    configuration: Configuration,
    rows: Sequence[Row],
    parameters: Sequence[ParameterVector],
    source: NDArray[np.bool_],
    sink: NDArray[np.bool_],
    reset_at: int | None,
) -> RowsJob:
    if not rows:
        raise ConfigurationError("there are no rows to simulate")
    what, how = configuration.what, configuration.how
    records: list[dict[str, int]] = []
    beats: list[Beat] = []
    for row in rows:
        fields = row.record(configuration)
        record = {f"layer_{name}": value for name, value in fields.items()}
        if record not in records:
            records.append(record)
        beats += _beats(configuration, row, records.index(record))
    longest = -(-what.max_n // how.p_n)
    return RowsJob(
        writes=parameter_elements(configuration, parameters),
        records=records,
        beats=beats,
        packets=len(rows),
        longest=longest,
        source=source.astype(np.uint8).tobytes(),
        sink=sink.astype(np.uint8).tobytes(),
        patience=1000 + 2 * -(-what.max_n // how.p_d),
        reset_at=reset_at,
    )


def _beats(configuration: Configuration, row: Row, record: int) -> list[Beat]:
    what, p_n = configuration.what, configuration.how.p_n
    for name, value, count in (
        ("layer", row.layer, what.layers),
        ("token", row.token, what.token_slots),
    ):
        if not 0 <= value < count:
            raise ConfigurationError(f"{name} = {value}, but this build has 0 to {count - 1}")
    user = float32_bits(row.x_scale) << what.token_bits | row.token
    # Only the first beat's TUSER counts: the others carry its opposite.
    other = ~user & ((1 << what.token_bits + 32) - 1)
    data, keep, tid = row.packet(p_n)
    return [
        Beat(
            data=int.from_bytes(data[i].astype("<u2").tobytes(), "little"),
            keep=int.from_bytes(np.packbits(keep[i], bitorder="little").tobytes(), "little"),
            last=int(i == len(data) - 1),
            id=int(tid[i]),
            user=other if i else user,
            record=-1 if i else record,
        )
        for i in range(len(data))
    ]


def parameter_elements(
    configuration: Configuration, parameters: Sequence[ParameterVector]
) -> list[tuple[int, int, int, int, int]]:
    """Parameters one by one: beta, slot, index, data, one_plus."""
    what = configuration.what
    writes: list[tuple[int, int, int, int, int]] = []
    for vector in parameters:
        if vector.bits.dtype.itemsize * 8 != what.parameters.width:
            raise ConfigurationError(
                f"{vector.kind} has {vector.bits.dtype.itemsize * 8} bits an element, "
                f"but this build has parameter_format = {what.parameter_format!r}"
            )
        if not (what.gamma if vector.kind == "gamma" else what.beta):
            raise ConfigurationError(
                f"{vector.kind} is given, but this build has affine = {what.affine!r}"
            )
        if vector.one_plus and not what.one_plus_gamma:
            raise ConfigurationError("one_plus = true, but this build has one_plus_gamma = false")
        if not 0 <= vector.slot < what.slots:
            raise ConfigurationError(
                f"slot = {vector.slot}, but this build has slots 0 to {what.slots - 1}"
            )
        if len(vector.bits) > what.max_n:
            raise ConfigurationError(
                f"{vector.kind} has {len(vector.bits)} elements, more than this build's max_n = {what.max_n}"
            )
        beta, one_plus = int(vector.kind == "beta"), int(vector.one_plus)
        writes += [
            (beta, vector.slot, index, data, one_plus)
            for index, data in enumerate(vector.bits.tolist())
        ]
    return writes


def _results(
    configuration: Configuration, rows: Sequence[Row], job: RowsJob, record: RowsRecord
) -> list[RowResult]:
    results = []
    seen, accepted = iter(record.seen), iter(record.accepted)
    beats = iter(job.beats)
    for index in range(len(rows)):
        packet = _packet(seen)
        taken = []
        for beat in beats:
            taken.append(next(accepted))
            if beat.last:
                break
        results.append(_result(configuration, index, packet, taken))
    return results


def _packet(seen: Iterator[Seen]) -> list[Seen]:
    packet = []
    for beat in seen:
        packet.append(beat)
        if beat.last:
            break
    return packet


def _result(
    configuration: Configuration, index: int, packet: list[Seen], in_cycles: list[int]
) -> RowResult:
    what, size = configuration.what, 2 * configuration.how.p_n
    last = packet[-1]
    for beat in packet[:-1]:
        if beat.keep != (1 << size) - 1:
            raise SimulationError(
                f"row {index}: TKEEP is partial before the last beat, in cycle {beat.cycle}"
            )
    count = last.keep.bit_length()
    if last.keep != (1 << count) - 1 or count % 2:
        raise SimulationError(f"row {index}: TKEEP of the last beat is {last.keep:#x}")
    for beat in packet:
        if beat.id != last.id or (beat.user ^ last.user) & ((1 << what.token_bits) - 1):
            raise SimulationError(
                f"row {index}: TID or token slot changed inside the row, in cycle {beat.cycle}"
            )
    data = b"".join(beat.data.to_bytes(size, "little") for beat in packet)
    kept = size * (len(packet) - 1) + count
    return RowResult(
        bits=np.frombuffer(data[:kept], dtype="<u2").astype(np.uint16),
        flags=RowFlag(last.user >> what.token_bits),
        layer=last.id,
        token=last.user & ((1 << what.token_bits) - 1),
        in_cycles=in_cycles,
        out_cycles=[beat.cycle for beat in packet],
    )
