# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Rows, parameters and stalls for simulations, and what comes out; and both as beats of the streams."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..config import Configuration, ConfigurationError
from ..flags import RowFlag
from ..formats import FP16
from ..latency import clear_cycles
from ..layer import LayerSettings, float32_bits, record_layout
from .jobs import Beat, Seen, SeenStatistics, StreamRecord
from .runner import SimulationError

_SCHEDULE_CYCLES = 8191
"""Length of a random schedule; it repeats then. A prime, so that it does not keep step with rows."""

Elements = NDArray[Any]
Willing = NDArray[np.bool_]


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

    def schedule(self, seed: int) -> Willing:
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


@dataclass(frozen=True, eq=False)
class Schedule:
    """In which cycles a side of a stream is willing to move a beat, each by itself; repeated without end. At least one is True."""

    willing: Willing

    def schedule(self, seed: int) -> Willing:
        """As of a `StallPattern`."""
        return self.willing


FLOWING = StallPattern()


@dataclass(frozen=True, eq=False)
class Row:
    """One row, as a packet that goes in.

    `bits` are its elements: float16 or int8 numbers, or their uint16 or uint8 bit patterns. A packet with a fault is made by giving fewer or more elements than
    `settings.n`, or by the overrides.
    """

    bits: Elements
    settings: LayerSettings | None
    """What the layer asks for; None: a layer that the table doesn't know."""
    layer: int = 0
    """TID."""
    token: int = 0
    """Token slot, in TUSER."""
    x_scale: float = 1.0
    """Scale of the input, in TUSER."""
    fields: Mapping[str, int] = field(default_factory=dict)
    """Fields of the layer record that have other values than the settings give; for `simulate_core`."""
    keep: Mapping[int, int] = field(default_factory=dict)
    """Beat -> TKEEP in its place."""
    ids: Mapping[int, int] = field(default_factory=dict)
    """Beat -> TID in its place."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", _element_bits(self.bits, "a row's elements"))

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

    def packet(
        self, p_n: int, width: int = FP16.width
    ) -> tuple[Elements, NDArray[np.bool_], NDArray[np.int64]]:
        """Its beats of p_n words of `width` bits, with zeros after its last element: (beats, p_n) uint16, FP16 elements or pairs of INT8
        ones, or uint8, INT8 elements; TKEEP (beats, bytes), bit 0 first; TID (beats,). A row without elements is one beat."""
        given = self.bits.view(np.uint8)
        octets = p_n * width // 8
        beats = max(1, -(-given.size // octets))
        beyond = [beat for beat in (*self.keep, *self.ids) if not 0 <= beat < beats]
        if beyond:
            raise ConfigurationError(
                f"keep or ids for beat {beyond[0]}, but the row has beats 0 to {beats - 1}"
            )
        data = np.zeros(beats * octets, dtype=np.uint8)
        data[: given.size] = given
        keep = (np.arange(data.size) < given.size).reshape(beats, -1)
        for beat, value in self.keep.items():
            keep[beat] = [value >> i & 1 for i in range(octets)]
        tid = np.full(beats, self.layer)
        for beat, value in self.ids.items():
            tid[beat] = value
        words = data.view(f"<u{width // 8}").astype(f"u{width // 8}")
        return words.reshape(beats, p_n), keep, tid


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
    """One row, as a packet that came out. Cycles count from the end of reset and of writes before the first row."""

    bits: Elements
    """Bits of the elements, N or, after bad settings, none: uint16 FP16 or uint8 INT8 patterns; uint8 bytes of either where a build
    with INT8 isn't told which."""
    flags: RowFlag
    layer: int
    """TID."""
    token: int
    in_cycles: list[int]
    """The cycle in which each beat was accepted."""
    out_cycles: list[int]
    """The cycle in which each beat was taken."""
    mean: int | None = None
    """FP32 bits of the mean, from the statistics stream; None: the build has none."""
    isd: int | None = None
    """Likewise of the ISD."""
    statistics_cycle: int | None = None
    """The cycle in which both were taken."""

    @property
    def latency(self) -> int:
        """Cycles from the first beat in to the last beat out."""
        return self.out_cycles[-1] - self.in_cycles[0]


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """What came out: as many rows as went in, in order."""

    rows: list[RowResult]
    source: NDArray[np.bool_]
    """Whether the source was willing, per cycle, repeated without end."""
    sink: NDArray[np.bool_]
    ready_from: int
    """The first cycle in which `s_axis_tready` could be high."""
    registers: Mapping[str, int] = field(default_factory=dict)
    """Register -> its value after the last row, of those that were to be read."""
    statistics_sink: NDArray[np.bool_] = field(default_factory=lambda: FLOWING.schedule(0))
    """As `sink`, of the statistics stream."""


def _element_bits(values: ArrayLike, what: str) -> Elements:
    array = np.asarray(values)
    if array.dtype in (np.float16, np.int8):
        array = array.view(np.uint16 if array.dtype == np.float16 else np.uint8)
    if array.ndim != 1 or array.dtype not in (np.uint16, np.uint8):
        raise ConfigurationError(
            f"{what} are {array.dtype} with {array.ndim} axes: allowed are float16, uint16, int8 or uint8, one axis"
        )
    return np.ascontiguousarray(array)


def bus_elements(configuration: Configuration) -> int:
    """Elements of a beat on the bus outside, of the widest format."""
    return configuration.bus * 8 // configuration.what.element.width


def row_packet(
    configuration: Configuration, row: Row
) -> tuple[Elements, NDArray[np.bool_], NDArray[np.int64]]:
    """A row's beats on the bus outside, in words as wide as the build's elements (`Row.packet`)."""
    return row.packet(bus_elements(configuration), configuration.what.element.width)


def row_beats(configuration: Configuration, row: Row, record: int = -1) -> list[Beat]:
    """A row's beats on the bus outside. Raises ConfigurationError for a layer or a token slot that the build hasn't."""
    what = configuration.what
    for name, value, count in (
        ("layer", row.layer, what.layers),
        ("token", row.token, what.token_slots),
    ):
        if not 0 <= value < count:
            raise ConfigurationError(f"{name} = {value}, but this build has 0 to {count - 1}")
    user = float32_bits(row.x_scale) << what.token_bits | row.token
    # Only the first beat's TUSER counts: the others carry its opposite.
    other = ~user & ((1 << what.token_bits + 32) - 1)
    data, keep, tid = row_packet(configuration, row)
    packed = np.packbits(keep, axis=1, bitorder="little")
    last = len(data) - 1
    return [
        Beat(
            data=int.from_bytes(values.tobytes(), "little"),
            keep=int.from_bytes(kept.tobytes(), "little"),
            last=int(index == last),
            id=number,
            user=other if index else user,
            record=-1 if index else record,
        )
        for index, (values, kept, number) in enumerate(
            zip(data.astype(data.dtype.newbyteorder("<")), packed, tid.tolist(), strict=True)
        )
    ]


def stream_fields(
    configuration: Configuration,
    rows: Sequence[Row],
    source: Willing,
    sink: Willing,
    statistics_sink: Willing | None = None,
) -> dict[str, Any]:
    """The fields of a `StreamJob` that are the same for all tops, without `beats`. The sink of a statistics stream: None: always ready."""
    if not rows:
        raise ConfigurationError("there are no rows to simulate")
    what, how = configuration.what, configuration.how
    told = FLOWING.schedule(0) if statistics_sink is None else statistics_sink
    return {
        "packets": len(rows),
        "longest": -(-what.max_n // bus_elements(configuration)),
        "source": source.astype(np.uint8).tobytes(),
        "sink": sink.astype(np.uint8).tobytes(),
        "statistics_sink": told.astype(np.uint8).tobytes() if what.statistics_stream else None,
        "patience": 1000 + 2 * -(-what.max_n // how.p_d),
        "clears": max(0, clear_cycles(configuration) - 1),
    }


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


def row_results(
    configuration: Configuration, beats: Sequence[Beat], record: StreamRecord, start: int = 0
) -> list[RowResult]:
    """The packets that came out, with the cycles of those that went in; cycles from `start` on.

    Raises SimulationError for a fault that the bench saw, or for a packet that breaks a rule."""
    if record.fault:
        raise SimulationError(record.fault)
    results: list[RowResult] = []
    taken: list[int] = []
    seen = iter(record.seen)
    for beat, cycle in zip(beats, record.accepted, strict=True):
        taken.append(cycle - start)
        if beat.last:
            packet = list(_packet(seen))
            results.append(_result(configuration, len(results), packet, taken, start))
            taken = []
    if configuration.what.statistics_stream:
        each = enumerate(zip(results, record.statistics, strict=True))
        return [_with_statistics(configuration, at, row, seen, start) for at, (row, seen) in each]
    return results


def told(rows: Sequence[Row], results: Sequence[RowResult]) -> list[RowResult]:
    """Results with elements of the formats that the rows' settings ask for."""
    return [
        result
        if row.settings is None or row.settings.int8_output or result.bits.dtype == np.uint16
        else replace(result, bits=result.bits.view("<u2").astype(np.uint16))
        for row, result in zip(rows, results, strict=True)
    ]


def _packet(seen: Iterator[Seen]) -> Iterator[Seen]:
    for beat in seen:
        yield beat
        if beat.last:
            return


def _result(
    configuration: Configuration, index: int, packet: list[Seen], in_cycles: list[int], start: int
) -> RowResult:
    size, token_bits = configuration.bus, configuration.what.token_bits
    full, token_mask = (1 << size) - 1, (1 << token_bits) - 1
    last = packet[-1]
    labels = (last.id, last.user & token_mask)
    for beat in packet[:-1]:
        if beat.keep != full:
            raise SimulationError(
                f"row {index}: TKEEP is partial before the last beat, in cycle {beat.cycle}"
            )
        if (beat.id, beat.user & token_mask) != labels:
            raise SimulationError(
                f"row {index}: TID or token slot changed inside the row, in cycle {beat.cycle}"
            )
        if beat.user >> token_bits:
            raise SimulationError(
                f"row {index}: flags stand beside a beat without TLAST, in cycle {beat.cycle}"
            )
    count = last.keep.bit_length()
    split = count % 2 and not configuration.what.int8
    if last.keep != (1 << count) - 1 or split or not (count or len(packet) == 1):
        raise SimulationError(f"row {index}: TKEEP of the last beat is {last.keep:#x}")
    data = b"".join(beat.data.to_bytes(size, "little") for beat in packet)
    kept = size * (len(packet) - 1) + count
    elements: Elements = np.frombuffer(data[:kept], dtype=np.uint8)
    if not configuration.what.int8:
        elements = elements.view("<u2").astype(np.uint16)
    return RowResult(
        bits=elements,
        flags=RowFlag(last.user >> token_bits),
        layer=labels[0],
        token=labels[1],
        in_cycles=in_cycles,
        out_cycles=[beat.cycle - start for beat in packet],
    )


def _with_statistics(
    configuration: Configuration, index: int, row: RowResult, seen: SeenStatistics, start: int
) -> RowResult:
    labels = seen.id, seen.user & (1 << configuration.what.token_bits) - 1
    if labels != (row.layer, row.token):
        raise SimulationError(
            f"row {index}: TID and token slot are {labels} beside its mean and ISD, but {(row.layer, row.token)} beside the row"
        )
    isd, mean = divmod(seen.data, 1 << 32)
    return replace(row, mean=mean, isd=isd, statistics_cycle=seen.cycle - start)
