# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Rows in, rows out: `normalize` for tensors, `row_output` for packets with faults. Sections 6 to 11 of `docs/numerics.md`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..config import Configuration, ConfigurationError
from ..flags import RowFlag
from ..layer import LayerSettings, float32_bits
from ..numerics import Numerics
from .fp16 import NAN, Bits, Mask
from .inverse_sqrt import inverse_sqrt, scaled_variance, split, variance_plus_eps
from .normalization import Affine, RowConstants, lane, window_lsb, window_mean
from .prediction import Isd, IsdMemory
from .significand import Float, Int
from .statistics import Integers, sums

_NO_EXPONENT = -256
"""Stands for the exponent of 0: below that of any variance."""
_BLOCK = 1 << 14
"""Elements that are worked on together: few enough that they stay in a core's cache."""


@dataclass(frozen=True, eq=False)
class Normalized:
    """Normalized rows."""

    y: NDArray[np.float16]
    """Shape of x."""
    flags: NDArray[np.uint16]
    """(rows,): `haan.flags.RowFlag`."""
    mean: Float
    """(rows,): mean that was subtracted, 0 for RMSNorm, NaN in rows that are all NaN."""
    isd: Float
    """(rows,): inverse standard deviation, 0 in rows without variance, NaN in rows that are all NaN."""

    @property
    def bits(self) -> Bits:
        """FP16 bit patterns of y."""
        return self.y.view(np.uint16)


@dataclass(frozen=True, eq=False)
class ReceivedRow:
    """A packet as it came in, up to the beat with TLAST, its last one."""

    data: Bits
    """(beats, p_n): FP16 bit patterns."""
    keep: NDArray[np.bool_]
    """(beats, 2·p_n): TKEEP, bit 0 first."""
    tid: Int
    """(beats,): TID; or (beats, narrow beats in one)."""
    token: int = 0
    """Token slot: that in TUSER beside the first beat."""

    @property
    def layer(self) -> int:
        """Layer: TID of the first beat."""
        return int(self.tid.flat[0])

    @classmethod
    def collected(
        cls, data: Bits, keep: NDArray[np.bool_], tid: Int, p_n: int, token: int = 0
    ) -> "ReceivedRow":
        """The packet that the beats of a narrow bus make: `docs/numerics.md`, section 10."""
        beats, size = data.shape
        ratio = p_n // size
        wide = -(-beats // ratio)
        missing = wide * ratio - beats
        return cls(
            np.pad(data, ((0, missing), (0, 0))).reshape(wide, p_n),
            np.pad(keep, ((0, missing), (0, 0))).reshape(wide, 2 * p_n),
            np.pad(tid, (0, missing), mode="edge").reshape(wide, ratio),
            token,
        )


@dataclass(frozen=True, eq=False)
class Slot:
    """What was written to a slot, from element 0: float16 or float32 numbers; None: nothing."""

    gamma: NDArray[Any] | None = None
    beta: NDArray[Any] | None = None
    one_plus_gamma: bool = False


@dataclass(frozen=True, eq=False)
class OutputRow:
    """A packet as it goes out."""

    bits: Bits
    """(N,) FP16 bit patterns; (0,) for the null beat of a row with bad settings."""
    flags: RowFlag

    @property
    def predicted(self) -> bool:
        """Whether its ISD was predicted or held: then its cycles may differ (`Packet.predicted`)."""
        return RowFlag.PREDICTED in self.flags


def normalize(
    x: NDArray[Any],
    gamma: NDArray[Any] | None = None,
    beta: NDArray[Any] | None = None,
    *,
    configuration: Configuration | None = None,
    mode: Literal["layernorm", "rmsnorm"] = "layernorm",
    eps: float = 1e-5,
    n_sub: int | None = None,
    first: int = 0,
    stride: int = 1,
    cast_before_gamma: bool = False,
    one_plus_gamma: bool = False,
) -> Normalized:
    """What the hardware computes, bit for bit.

    Parameters
    ----------
    x : (rows, N) or (N,): float16, or uint16 bit patterns of it
    gamma, beta : (N,): float16 or float32 numbers that the build's parameter format holds exactly, or None
    configuration : the build (default: `Configuration()`)
    mode, eps, n_sub, first, stride, cast_before_gamma : see `haan.layer.LayerSettings`; n_sub None: the configuration's
    one_plus_gamma : gamma is an offset from one

    Raises ConfigurationError for arrays of other shapes or types, and for what the build can't do.
    """
    configuration = Configuration() if configuration is None else configuration
    bits = _rows(x)
    affine = "+".join(
        name for name, array in (("gamma", gamma), ("beta", beta)) if array is not None
    )
    settings = LayerSettings.from_dict(
        {
            "mode": mode,
            "n": bits.shape[1],
            "eps": eps,
            "n_sub": configuration.what.n_sub if n_sub is None else n_sub,
            "first": first,
            "stride": stride,
            "affine": affine or "none",
            "cast_before_gamma": cast_before_gamma,
        }
    )
    settings.check(configuration)
    parameters = _parameters(gamma, beta, settings.n, configuration, one_plus_gamma)
    y, flags, mean, isd = normalize_bits(bits, settings, configuration, parameters)
    return Normalized(y.view(np.float16).reshape(np.shape(x)), flags, mean, isd)


def normalize_bits(
    bits: Bits,
    settings: LayerSettings,
    configuration: Configuration,
    affine: Affine,
    present: Mask | None = None,
) -> tuple[Bits, NDArray[np.uint16], Float, Float]:
    """`normalize` on bit patterns (rows, N), with settings and parameters already checked.

    `present` (rows, N) says which elements are there; a missing element is NaN, a missing sampled one makes its row NaN.
    Returns y (rows, N), flags, mean, isd (rows,); a missing element sets no flag.
    """
    rows = row_statistics(bits, settings, configuration, present)
    y, flags = row_results(bits, rows, settings, configuration, affine, present)
    isd = np.ldexp(rows.constants.isd.astype(np.float64), rows.constants.isd_exponent - 16)
    isd[rows.void] = rows.mean[rows.void] = np.nan
    return y, flags, rows.mean, isd


@dataclass(frozen=True, eq=False)
class RowStatistics:
    """What is known of rows before their elements go through the lanes; arrays of shape (rows,)."""

    constants: RowConstants
    mean: Float
    """As a number."""
    nonfinite: Mask
    """A sampled element is infinite or NaN."""
    zero: Mask
    """var + eps is 0."""
    void: Mask
    """The whole row is NaN."""


def row_statistics(
    bits: Bits, settings: LayerSettings, configuration: Configuration, present: Mask | None = None
) -> RowStatistics:
    """From the sampled elements of rows (rows, N) to what the lanes need; `present` as for `normalize_bits`."""
    last = settings.first + settings.stride * (settings.samples - 1)
    sampled = slice(settings.first, last + 1, settings.stride)
    mask = None if present is None else present[:, sampled]
    s1, s2 = (np.empty(len(bits), dtype=object) for _ in range(2))
    nonfinite = np.empty(len(bits), dtype=np.bool_)
    for part in _parts(bits):
        there = None if mask is None else mask[part]
        s1[part], s2[part], nonfinite[part] = sums(bits[part, sampled], there, configuration)
    constants, mean, zero = row_constants(s1, s2, settings, configuration)
    void = nonfinite.copy() if mask is None else nonfinite | ~mask.all(axis=1)
    return RowStatistics(constants, mean, nonfinite, zero, void)


def row_results(
    bits: Bits,
    rows: RowStatistics,
    settings: LayerSettings,
    configuration: Configuration,
    affine: Affine,
    present: Mask | None = None,
) -> tuple[Bits, NDArray[np.uint16]]:
    """Results (rows, N) and flags (rows,) of rows whose statistics are known; parameters as for `normalize_bits`."""
    y = np.empty_like(bits)
    overflow = np.empty(len(bits), dtype=np.bool_)
    for part in _parts(bits):
        constants = rows.constants.part(part)
        y[part], beyond = lane(
            bits[part], constants, affine, configuration, settings.cast_before_gamma
        )
        if present is not None:
            y[part][~present[part]] = NAN
            beyond &= present[part]
        overflow[part] = beyond.any(axis=1)
    y[rows.void] = NAN
    flags = (
        rows.nonfinite * RowFlag.NONFINITE
        + (rows.zero & ~rows.void) * RowFlag.ZERO_VARIANCE
        + (overflow & ~rows.void) * RowFlag.OVERFLOW
    )
    return y, flags.astype(np.uint16)


def _parts(bits: Bits) -> Iterator[slice]:
    """Rows that are worked on together."""
    rows, n = bits.shape
    step = max(1, _BLOCK // n)
    return (slice(low, low + step) for low in range(0, rows, step))


def row_constants(
    s1: Integers, s2: Integers, settings: LayerSettings, configuration: Configuration
) -> tuple[RowConstants, Float, Mask]:
    """From sums of rows to what the lanes need, the mean as a number, and whether var + eps is 0; (rows,) each."""
    layernorm = settings.mode == "layernorm"
    v = scaled_variance(s1, s2, settings.samples, layernorm)
    t, e, zero = variance_plus_eps(v, settings.samples, float32_bits(settings.eps))
    # Without variance λ is as low as it gets: a predicted row still needs it.
    x, k = split(np.where(zero, 1 << 23, t), np.where(zero, _NO_EXPONENT, e))
    isd, isd_exponent = inverse_sqrt(x, k, configuration.how)
    lsb = window_lsb(k, settings, configuration)
    means = window_mean(s1, settings.samples, lsb) if layernorm else [0] * len(k)
    window = (1 << Numerics(configuration).window) - 1
    constants = RowConstants(
        lsb=lsb,
        mean=np.array([mean & window for mean in means], dtype=np.int64),
        isd=np.where(zero, 0, isd),
        isd_exponent=isd_exponent,
    )
    values = [math.ldexp(mean, at) for mean, at in zip(means, lsb.tolist(), strict=True)]
    return constants, np.array(values), zero


def row_output(
    row: ReceivedRow,
    settings: LayerSettings | Mapping[str, int],
    configuration: Configuration,
    gamma: NDArray[Any] | None = None,
    beta: NDArray[Any] | None = None,
    one_plus_gamma: bool = False,
    memory: IsdMemory | None = None,
) -> OutputRow:
    """The packet that answers a packet, whatever is wrong with it.

    Parameters
    ----------
    row : the packet
    settings : the layer's settings, or the fields of its record (`haan.layer.record_layout`), which may be bad
    gamma, beta, one_plus_gamma : contents of the layer's slot from element 0, as for `normalize`; unused ones don't matter
    memory : as for `row_outputs`

    Raises ConfigurationError for parameters that are missing, too short or of another format.
    """
    if isinstance(settings, LayerSettings):
        settings = settings.record(configuration)
    layer = accepted_settings(settings, configuration)
    slots = {} if layer is None else {layer.slot: Slot(gamma, beta, one_plus_gamma)}
    return row_outputs([row], [layer], configuration, slots, memory)[0]


def row_outputs(
    rows: Sequence[ReceivedRow],
    settings: Sequence[LayerSettings | None],
    configuration: Configuration,
    slots: Mapping[int, Slot],
    memory: IsdMemory | None = None,
) -> list[OutputRow]:
    """The packets that answer packets, in order, as `row_output`.

    Parameters
    ----------
    rows : the packets
    settings : of each; None: refused ones (`accepted_settings`)
    slots : what parameter slots hold
    memory : ISDs kept of rows before these; those of these rows are added. None: an empty one
    """
    memory = IsdMemory(configuration) if memory is None else memory
    members: dict[LayerSettings, list[int]] = {}
    for index, layer in enumerate(settings):
        if layer is not None:
            members.setdefault(layer, []).append(index)
    groups = {
        layer: _EqualRows.received(
            [rows[i] for i in indices], layer, configuration, slots.get(layer.slot, Slot())
        )
        for layer, indices in members.items()
    }
    _predict(rows, settings, groups, memory)
    answers = [OutputRow(np.empty(0, dtype=np.uint16), RowFlag.SETTINGS)] * len(rows)
    for layer, indices in members.items():
        outputs = groups[layer].outputs(configuration)
        for index, output in zip(indices, outputs, strict=True):
            answers[index] = output
    return answers


@dataclass(frozen=True, eq=False)
class _EqualRows:
    """Packets of one layer, in order, with their statistics taken."""

    layer: LayerSettings
    affine: Affine
    bits: Bits
    """(rows, N)"""
    present: Mask
    """(rows, N)"""
    flags: NDArray[np.uint16]
    """(rows,): faults of the packets, and what is told of their prediction."""
    statistics: RowStatistics

    @classmethod
    def received(
        cls, rows: list[ReceivedRow], layer: LayerSettings, configuration: Configuration, slot: Slot
    ) -> "_EqualRows":
        affine = _parameters(
            _used(slot.gamma, "gamma", layer),
            _used(slot.beta, "beta", layer),
            layer.n,
            configuration,
            slot.one_plus_gamma,
        )
        bits = np.zeros((len(rows), layer.n), dtype=np.uint16)
        present = np.empty(bits.shape, dtype=np.bool_)
        faults = np.empty(len(rows), dtype=np.uint16)
        for index, row in enumerate(rows):
            faults[index], present[index] = packet_faults(row, layer.n)
            received = row.data.reshape(-1)[: layer.n]
            bits[index, : received.size] = received
        statistics = row_statistics(bits, layer, configuration, present)
        if layer.samples == layer.n:
            statistics.void[faults != 0] = True
        return cls(layer, affine, bits, present, faults, statistics)

    def isd(self, at: int) -> Isd | None:
        """The ISD of a row, if it has one."""
        rows = self.statistics
        if rows.void[at] or rows.zero[at]:
            return None
        return Isd(int(rows.constants.isd[at]), int(rows.constants.isd_exponent[at]))

    def predict(self, at: int, isd: Isd) -> None:
        """A row takes another ISD than its own."""
        rows = self.statistics
        rows.constants.isd[at], rows.constants.isd_exponent[at] = isd
        rows.zero[at] = False
        if self.layer.mode == "rmsnorm":
            # It takes no statistics.
            rows.nonfinite[at] = rows.void[at] = False

    def outputs(self, configuration: Configuration) -> list[OutputRow]:
        y, flags = row_results(
            self.bits, self.statistics, self.layer, configuration, self.affine, self.present
        )
        flags |= self.flags
        return [OutputRow(*answer) for answer in zip(y, map(RowFlag, flags.tolist()), strict=True)]


def _predict(
    rows: Sequence[ReceivedRow],
    settings: Sequence[LayerSettings | None],
    groups: Mapping[LayerSettings, _EqualRows],
    memory: IsdMemory,
) -> None:
    """Rows keep ISDs, and take those that were kept, one after the other."""
    places = dict.fromkeys(groups, 0)
    for row, layer in zip(rows, settings, strict=True):
        if layer is None:
            continue
        group, at = groups[layer], places[layer]
        places[layer] += 1
        if layer.keep_isd:
            memory.keep(row.token, row.layer, group.isd(at))
        elif layer.skip:
            isd, flags = memory.predict(row.token, layer)
            group.flags[at] |= flags
            if isd is not None:
                group.predict(at, isd)


def acceptable(record: Mapping[str, int], configuration: Configuration) -> bool:
    """Whether a layer record is one that the hardware computes with; otherwise its rows get SETTINGS."""
    n, n_sub, eps = record["n"], record["n_sub"], record["eps"]
    last = record["first"] + (max(n_sub, 1) - 1 << record["stride_log2"])
    return (
        record["valid"] == 1
        and 1 <= n <= configuration.what.max_n
        and (eps < 0x7F800000 or eps == 0x80000000)
        and (not configuration.what.subsampling or (n_sub >= 1 and last < n))
        and (not configuration.what.skipping or not record["skip"] or _predictable(record))
    )


def _predictable(record: Mapping[str, int]) -> bool:
    """Whether a layer record with `skip` is one from which can be predicted."""
    return (
        not record["keep_isd"]
        and float32_bits(2.0**-16) <= record["ratio"] <= float32_bits(2.0**16)
        # As bits, negative numbers and NaNs are beyond infinity.
        and max(record["guard_low"], record["guard_high"]) <= float32_bits(math.inf)
    )


def packet_faults(row: ReceivedRow, n: int) -> tuple[RowFlag, Mask]:
    """(SHORT, LONG, KEEP and ID of a packet for a row of n elements, which of these are there)."""
    beats, p_n = row.data.shape
    end = -(-n // p_n) - 1
    whole = row.keep.reshape(beats, p_n, 2).all(axis=2)
    present = np.zeros(n, dtype=np.bool_)
    received = whole.reshape(-1)[:n]
    present[: received.size] = received

    upto = slice(0, end + 1)
    last_in_row = beats - 1 <= end
    faults = RowFlag(0)
    if beats - 1 < end or (beats - 1 == end and not present[end * p_n :].all()):
        faults |= RowFlag.SHORT
    if beats - 1 > end or (beats - 1 == end and row.keep[end, 2 * (n - end * p_n) :].any()):
        faults |= RowFlag.LONG
    without_last = row.keep[: beats - 1][upto]
    if not without_last.all() or (last_in_row and not _is_run(row.keep[-1])):
        faults |= RowFlag.KEEP
    if (row.tid[upto] != row.tid.flat[0]).any():
        faults |= RowFlag.ID
    return faults, present


def _is_run(keep: NDArray[np.bool_]) -> bool:
    """Whether TKEEP is a run of whole elements from element 0 (or none)."""
    count = int(keep.sum())
    return count % 2 == 0 and bool(keep[:count].all())


def accepted_settings(
    record: Mapping[str, int], configuration: Configuration
) -> LayerSettings | None:
    """What a layer record asks for; None where the hardware refuses it."""
    if not acceptable(record, configuration):
        return None
    parts = [name for name in ("gamma", "beta") if record[name]]
    samples = {
        "n_sub": record["n_sub"],
        "first": record["first"],
        # Beyond this a row has one sample, whatever the stride.
        "stride": 1 << min(record["stride_log2"], 16),
    }
    return LayerSettings.from_dict(
        {
            "mode": "rmsnorm" if record["rmsnorm"] else "layernorm",
            "n": record["n"],
            "eps": _float32(record["eps"]),
            "affine": "+".join(parts) or "none",
            "slot": record["slot"],
            "cast_before_gamma": bool(record["cast_before_gamma"]),
            **(samples if configuration.what.subsampling else {}),
            **(_skipping(record) if configuration.what.skipping else {}),
        }
    )


def _skipping(record: Mapping[str, int]) -> dict[str, Any]:
    """What a layer record asks for in builds with `skipping`."""
    if not record["skip"]:
        return {"keep_isd": bool(record["keep_isd"])}
    return {
        "skip": True,
        "anchor": record["anchor"],
        "ratio": _float32(record["ratio"]),
        "guard_low": _float32(record["guard_low"]),
        "guard_high": _float32(record["guard_high"]),
        "guard_action": "exact" if record["guard_exact"] else "hold",
    }


def _float32(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))


def _used(array: NDArray[Any] | None, name: str, layer: LayerSettings) -> NDArray[Any] | None:
    if name not in layer.affine.split("+"):
        return None
    if array is None or np.size(array) < layer.n:
        raise ConfigurationError(
            f"the layer uses {name}, of which {0 if array is None else np.size(array)} of {layer.n} elements are given"
        )
    return array[: layer.n]


def _rows(x: NDArray[Any]) -> Bits:
    array = np.asarray(x)
    if array.dtype not in (np.float16, np.uint16):
        raise ConfigurationError(
            f"x has type {array.dtype}; allowed are float16, and uint16 for its bit patterns"
        )
    if array.ndim not in (1, 2) or array.shape[-1] == 0:
        raise ConfigurationError(
            f"x has shape {array.shape}; allowed are (rows, N) and (N,), N ≥ 1"
        )
    return np.ascontiguousarray(np.atleast_2d(array)).view(np.uint16)


def _parameters(
    gamma: NDArray[Any] | None,
    beta: NDArray[Any] | None,
    n: int,
    configuration: Configuration,
    one_plus_gamma: bool,
) -> Affine:
    if one_plus_gamma and not configuration.what.one_plus_gamma:
        raise ConfigurationError("one_plus_gamma = true, but this build has one_plus_gamma = false")
    gamma, beta = (
        None if array is None else _parameter(name, array, n, configuration)
        for name, array in (("gamma", gamma), ("beta", beta))
    )
    return Affine.stored(gamma, beta, configuration, one_plus_gamma)


def _parameter(
    name: str, array: NDArray[Any], n: int, configuration: Configuration
) -> NDArray[np.floating]:
    """In the build's parameter format."""
    array = np.asarray(array)
    if array.dtype not in (np.float16, np.float32) or array.shape != (n,):
        raise ConfigurationError(
            f"{name} has type {array.dtype} and shape {array.shape}; allowed are float16 and float32, shape ({n},)"
        )
    fmt = configuration.what.parameter_format
    with np.errstate(over="ignore"):
        stored: NDArray[np.floating] = array.astype(np.float32 if fmt == "fp32" else np.float16)
    wrong = ~((stored == array) | np.isnan(array))
    if wrong.any():
        raise ConfigurationError(
            f"{name} has {array[wrong][0]}, which the build's parameter_format = {fmt!r} can't hold exactly"
        )
    return stored
