# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Rows in, rows out: `normalize` for tensors, `row_output` for packets with faults. Sections 6 to 14 of `docs/numerics.md`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..config import FORMATS, Configuration, ConfigurationError
from ..flags import RowFlag
from ..formats import FP16, INT8
from ..layer import LayerSettings, float32_bits
from ..numerics import ISD_BITS, VARIANCE_BITS, Numerics
from ..scaling import divided
from . import fixed
from .fp16 import Bits, Mask
from .int8 import Scale, as_fp16, is_scale
from .inverse_sqrt import (
    Root,
    inverse_root,
    rounded,
    scaled,
    scaled_variance,
    split,
    variance_plus_eps,
)
from .normalization import Affine, RowConstants, lane, nothing, window_lsb, window_mean
from .prediction import Isd, IsdMemory
from .significand import Float, Int
from .statistics import Integers, sums
from .statistics_stream import NAN, isd_bits, mean_bits

_NO_EXPONENT = -256
"""Stands for the exponent of 0: below that of any variance that a window depends on."""
_BLOCK = 1 << 14
"""Elements that are worked on together: few enough that they stay in a core's cache."""
_ONE = float32_bits(1.0)
_INT8 = FORMATS.index(INT8.name)
"""INT8 in a layer record."""

Patterns = Bits | NDArray[np.uint8]
"""FP16 or INT8 bit patterns. On the way in INT8 numbers are FP16 patterns too, except in builds with INT8 alone."""


@dataclass(frozen=True, eq=False)
class Normalized:
    """Normalized rows."""

    y: NDArray[np.float16] | NDArray[np.int8]
    """Shape of x."""
    flags: NDArray[np.uint16]
    """(rows,): `haan.flags.RowFlag`."""
    mean: Float
    """(rows,): mean that was subtracted, 0 for RMSNorm, NaN in rows that are all NaN; with INT8 input times the scale."""
    isd: Float
    """(rows,): inverse standard deviation, 0 in rows without variance, NaN in rows that are all NaN."""

    @property
    def bits(self) -> Patterns:
        """Bit patterns of y."""
        bits: Patterns = self.y.view(f"u{self.y.itemsize}")
        return bits


@dataclass(frozen=True, eq=False)
class ReceivedRow:
    """A packet as it came in, up to the beat with TLAST, its last one."""

    data: Patterns
    """(beats, p_n): uint16, FP16 bit patterns, or pairs of INT8 bit patterns, the first in the low half (`halves`); in builds with INT8 alone
    uint8, INT8 bit patterns."""
    keep: NDArray[np.bool_]
    """(beats, bytes of data): TKEEP, bit 0 first."""
    tid: Int
    """(beats,): TID; or (beats, narrow beats in one)."""
    token: int = 0
    """Token slot: that in TUSER beside the first beat."""
    x_scale: int = _ONE
    """FP32 bits likewise."""

    @property
    def layer(self) -> int:
        """Layer: TID of the first beat."""
        return int(self.tid.flat[0])

    @classmethod
    def collected(
        cls,
        data: Patterns,
        keep: NDArray[np.bool_],
        tid: Int,
        p_n: int,
        token: int = 0,
        x_scale: int = _ONE,
    ) -> "ReceivedRow":
        """The packet that the beats of a narrow bus make: `docs/numerics.md`, section 10."""
        beats, size = data.shape
        ratio = p_n // size
        wide = -(-beats // ratio)
        missing = wide * ratio - beats
        words: NDArray[Any] = np.zeros_like(data, shape=(wide * ratio, size))
        words[:beats] = data
        return cls(
            words.reshape(wide, p_n),
            np.pad(keep, ((0, missing), (0, 0))).reshape(wide, p_n * data.itemsize),
            np.pad(tid, (0, missing), mode="edge").reshape(wide, ratio),
            token,
            x_scale,
        )

    def halves(self) -> "ReceivedRow":
        """INT8 beats beside FP16 ones as beats of FP16 numbers: `docs/numerics.md`, section 12."""
        p_n = self.data.shape[1]
        kept = self.keep.reshape(-1, p_n)
        beats = len(kept) - (not kept[-1].any())
        numbers = as_fp16(self.data.astype("<u2").view(np.int8)).reshape(-1, p_n)
        return replace(
            self,
            data=numbers[:beats],
            keep=kept[:beats].repeat(2, axis=1),
            tid=self.tid.repeat(2, axis=0)[:beats],
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

    bits: Patterns
    """(N,) bit patterns, FP16 or INT8 as the layer's output; (0,) for the null beat of a row with bad settings."""
    flags: RowFlag
    mean: int
    """FP32 bits of the mean, in any build, as a statistics stream gives it."""
    isd: int
    """Likewise of the ISD."""

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
    x_scale: ArrayLike | None = None,
    output_format: Literal["fp16", "int8"] | None = None,
    y_scale: float = 1.0,
) -> Normalized:
    """What the hardware computes, bit for bit.

    Parameters
    ----------
    x : (rows, N) or (N,): float16, or uint16 bit patterns of it; or int8
    gamma, beta : (N,): float16 or float32 numbers that the build's parameter format holds exactly, or None
    configuration : the build (default: `Configuration()`)
    mode, eps, n_sub, first, stride, cast_before_gamma : see `haan.layer.LayerSettings`; n_sub None: the configuration's
    one_plus_gamma : gamma is an offset from one
    x_scale : with int8: FP32 numbers that the elements of all rows, or (rows,) of each, are to be multiplied by
    output_format, y_scale : None: "fp16" if the build has it. "int8": results are numbers to be multiplied by y_scale. Gamma (without one: 1) and beta are divided by
        it as a driver does (`haan.scaling.divided`), so they need not be what the parameter format holds.

    Raises ConfigurationError for arrays of other shapes or types, and for what the build can't do.
    """
    configuration = Configuration() if configuration is None else configuration
    bits, int8_input = _rows(x, configuration)
    output_format = output_format or configuration.what.formats[0]
    integers = output_format == INT8.name
    given = {"gamma": integers or gamma is not None, "beta": beta is not None}
    affine = "+".join(name for name, there in given.items() if there)
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
            "input_format": INT8.name if int8_input else FP16.name,
            "output_format": output_format,
            "y_scale": y_scale,
        }
    )
    settings.check(configuration)
    if integers:
        gamma, beta = divided(gamma, beta, settings.n, y_scale, configuration, one_plus_gamma)
        one_plus_gamma = False
    parameters = _parameters(gamma, beta, settings.n, configuration, one_plus_gamma)
    scale = _scale(x_scale, len(bits), int8_input)
    y, flags, mean, isd = normalize_bits(bits, settings, configuration, parameters, scale=scale)
    numbers = y.view(np.int8) if integers else y.view(np.float16)
    return Normalized(numbers.reshape(np.shape(x)), flags, mean, isd)


def normalize_bits(
    bits: Patterns,
    settings: LayerSettings,
    configuration: Configuration,
    affine: Affine,
    present: Mask | None = None,
    scale: Scale | None = None,
) -> tuple[Patterns, NDArray[np.uint16], Float, Float]:
    """`normalize` on bit patterns (rows, N), with settings and parameters already checked.

    `present` (rows, N) says which elements are there; a missing element is NaN, a missing sampled one makes its row NaN.
    `scale` (rows,) is that of INT8 input, whose numbers the patterns are.
    Returns y (rows, N), flags, mean, isd (rows,); a missing element sets no flag.
    """
    rows = row_statistics(bits, settings, configuration, present, scale)
    y, flags = row_results(bits, rows, settings, configuration, affine, present)
    significand, exponent = rounded(*rows.root)
    isd = np.ldexp(significand.astype(np.float64), exponent - 16)
    isd[rows.void] = rows.mean[rows.void] = np.nan
    return y, flags, rows.mean, isd


@dataclass(frozen=True, eq=False)
class RowStatistics:
    """What is known of rows before their elements go through the lanes; arrays of shape (rows,)."""

    s1: Integers
    """Sums of the sampled elements, in units of 2^-24."""
    constants: RowConstants | fixed.RowConstants
    root: Root
    """The ISD."""
    scale: Scale | None
    """Of INT8 input: the lanes take the ISD times this."""
    mean: Float
    """As a number."""
    nonfinite: Mask
    """A sampled element is infinite or NaN."""
    zero: Mask
    """var + eps is 0."""
    void: Mask
    """The whole row is NaN."""


def row_statistics(
    bits: Patterns,
    settings: LayerSettings,
    configuration: Configuration,
    present: Mask | None = None,
    scale: Scale | None = None,
) -> RowStatistics:
    """From the sampled elements of rows (rows, N) to what the lanes need; `present` and `scale` as for `normalize_bits`."""
    last = settings.first + settings.stride * (settings.samples - 1)
    sampled = slice(settings.first, last + 1, settings.stride)
    mask = None if present is None else present[:, sampled]
    s1, s2 = (np.empty(len(bits), dtype=object) for _ in range(2))
    nonfinite = np.empty(len(bits), dtype=np.bool_)
    for part in _parts(bits):
        there = None if mask is None else mask[part]
        s1[part], s2[part], nonfinite[part] = _sums(bits[part, sampled], there, configuration)
    constants, root, mean, zero = row_constants(s1, s2, settings, configuration, scale)
    void = nonfinite.copy() if mask is None else nonfinite | ~mask.all(axis=1)
    return RowStatistics(s1, constants, root, scale, mean, nonfinite, zero, void)


def _sums(
    bits: Patterns, mask: Mask | None, configuration: Configuration
) -> tuple[Integers, Integers, Mask]:
    if configuration.what.integer:
        return fixed.sums(bits.view(np.uint8), mask)
    return sums(bits.view(np.uint16), mask, configuration)


def row_results(
    bits: Patterns,
    rows: RowStatistics,
    settings: LayerSettings,
    configuration: Configuration,
    affine: Affine,
    present: Mask | None = None,
) -> tuple[Patterns, NDArray[np.uint16]]:
    """Results (rows, N) and flags (rows,) of rows whose statistics are known; parameters as for `normalize_bits`."""
    int8 = settings.int8_output
    y = np.empty(bits.shape, dtype=np.uint8 if int8 else np.uint16)
    overflow = np.empty(len(bits), dtype=np.bool_)
    for part in _parts(bits):
        constants = rows.constants.part(part)
        if isinstance(constants, fixed.RowConstants):
            y[part], beyond = fixed.lane(
                bits[part].view(np.uint8), constants, affine, configuration
            )
        else:
            y[part], beyond = lane(
                bits[part].view(np.uint16),
                constants,
                affine,
                configuration,
                settings.cast_before_gamma,
                int8,
            )
        if present is not None:
            y[part][~present[part]] = nothing(int8)
            beyond &= present[part]
        overflow[part] = beyond.any(axis=1)
    y[rows.void] = nothing(int8)
    flags = (
        rows.nonfinite * RowFlag.NONFINITE
        + (rows.zero & ~rows.void) * RowFlag.ZERO_VARIANCE
        + (overflow & ~rows.void) * RowFlag.OVERFLOW
    )
    return y, flags.astype(np.uint16)


def _parts(bits: Patterns) -> Iterator[slice]:
    """Rows that are worked on together."""
    rows, n = bits.shape
    step = max(1, _BLOCK // n)
    return (slice(low, low + step) for low in range(0, rows, step))


def row_constants(
    s1: Integers,
    s2: Integers,
    settings: LayerSettings,
    configuration: Configuration,
    scale: Scale | None = None,
) -> tuple[RowConstants | fixed.RowConstants, Root, Float, Mask]:
    """From sums of rows to what the lanes need, the ISD, the mean as a number, and whether var + eps is 0; (rows,) each."""
    layernorm = settings.mode == "layernorm"
    v = scaled_variance(s1, s2, settings.samples, layernorm)
    t, e, zero = variance_plus_eps(v, settings.samples, float32_bits(settings.eps), scale)
    # Without variance λ is as low as it gets: a predicted row still needs it.
    x, k = split(np.where(zero, 1 << 23, t), np.where(zero, _NO_EXPONENT, e))
    root = inverse_root(x, k, configuration.how)
    root = Root(np.where(zero, 0, root.significand), root.exponent)
    isd, isd_exponent = rounded(*root) if scale is None else scaled(root, scale)
    if configuration.what.integer:
        assert scale is not None
        mean = fixed.row_mean(s1, settings, configuration)
        values = np.ldexp(mean.astype(np.float64), -Numerics(configuration).mean_fraction)
        fixed_constants = fixed.row_constants(mean, isd, isd_exponent, configuration)
        return fixed_constants, root, values * scale.value(), zero
    lsb = window_lsb(k, settings, configuration)
    means = window_mean(s1, settings.samples, lsb) if layernorm else [0] * len(k)
    window = (1 << Numerics(configuration).window) - 1
    constants = RowConstants(
        lsb=lsb,
        mean=np.array([mean & window for mean in means], dtype=np.int64),
        isd=isd,
        isd_exponent=isd_exponent,
    )
    values = np.array([math.ldexp(m, at) for m, at in zip(means, lsb.tolist(), strict=True)])
    return constants, root, values if scale is None else values * scale.value(), zero


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
    gamma, beta, one_plus_gamma : contents of the layer's slot from element 0, as the build's parameter format holds
        them; unused ones don't matter
    memory : as for `row_outputs`

    Raises ConfigurationError for parameters that are missing, too short or of another format.
    """
    if isinstance(settings, LayerSettings):
        settings = settings.record(configuration)
    layer = accepted_settings(settings, configuration, row.x_scale)
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
    answers = [OutputRow(np.empty(0, dtype=np.uint16), RowFlag.SETTINGS, NAN, NAN)] * len(rows)
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
    bits: Patterns
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
        scale = None
        if layer.int8_input:
            if configuration.what.mixed:
                rows = [row.halves() for row in rows]
            own = None if layer.x_scale is None else float32_bits(layer.x_scale)
            scales = [row.x_scale if own is None else own for row in rows]
            scale = Scale.of(np.array(scales, dtype=np.uint32))
        bits = np.zeros((len(rows), layer.n), dtype=rows[0].data.dtype)
        present = np.empty(bits.shape, dtype=np.bool_)
        faults = np.empty(len(rows), dtype=np.uint16)
        for index, row in enumerate(rows):
            faults[index], present[index] = packet_faults(row, layer.n)
            received = row.data.reshape(-1)[: layer.n]
            bits[index, : received.size] = received
        statistics = row_statistics(bits, layer, configuration, present, scale)
        if layer.samples == layer.n:
            statistics.void[faults != 0] = True
        return cls(layer, affine, bits, present, faults, statistics)

    def isd(self, at: int) -> Isd | None:
        """The ISD of a row, if it has one."""
        rows = self.statistics
        if rows.void[at] or rows.zero[at]:
            return None
        significand, exponent = rounded(*(part[at : at + 1] for part in rows.root))
        return Isd(int(significand[0]), int(exponent[0]))

    def predict(self, at: int, isd: Isd) -> None:
        """A row takes another ISD than its own."""
        rows = self.statistics
        here = slice(at, at + 1)
        root = Root(
            np.array([isd.significand << VARIANCE_BITS - ISD_BITS]), np.array([isd.exponent])
        )
        lanes = isd if rows.scale is None else scaled(root, rows.scale.part(here))
        assert isinstance(rows.constants, RowConstants), "INT8 alone predicts nothing"
        rows.root.significand[here], rows.root.exponent[here] = root
        rows.constants.isd[here], rows.constants.isd_exponent[here] = lanes
        rows.zero[at] = False
        if self.layer.mode == "rmsnorm":
            # It takes no statistics.
            rows.nonfinite[at] = rows.void[at] = False

    def outputs(self, configuration: Configuration) -> list[OutputRow]:
        rows = self.statistics
        y, flags = row_results(
            self.bits, rows, self.layer, configuration, self.affine, self.present
        )
        flags |= self.flags
        mean, isd = mean_bits(rows.s1, self.layer, configuration, rows.scale), isd_bits(rows.root)
        mean[rows.void] = isd[rows.void] = NAN
        answers = zip(y, map(RowFlag, flags.tolist()), mean.tolist(), isd.tolist(), strict=True)
        return [OutputRow(*answer) for answer in answers]


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


def acceptable(
    record: Mapping[str, int], configuration: Configuration, x_scale: int = _ONE
) -> bool:
    """Whether a layer record is one that the hardware computes with; otherwise its rows get SETTINGS. x_scale: FP32 bits in TUSER."""
    n, n_sub, eps = record["n"], record["n_sub"], record["eps"]
    last = record["first"] + (max(n_sub, 1) - 1 << record["stride_log2"])
    return (
        record["valid"] == 1
        and 1 <= n <= configuration.what.max_n
        and (eps < 0x7F800000 or eps == 0x80000000)
        and (not configuration.what.subsampling or (n_sub >= 1 and last < n))
        and (not configuration.what.skipping or not record["skip"] or _predictable(record))
        and (not configuration.what.int8 or _convertible(record, configuration, x_scale))
    )


def _convertible(record: Mapping[str, int], configuration: Configuration, x_scale: int) -> bool:
    """Whether rows of a layer record can have its formats."""
    formats = [FORMATS.index(name) for name in configuration.what.formats]
    if not {record["input_format"], record["output_format"]} <= {*formats}:
        return False
    cast = record["cast_before_gamma"] and not configuration.what.integer
    if record["output_format"] == _INT8 and (cast or not record["gamma"]):
        return False
    return record["input_format"] != _INT8 or is_scale(record["x_scale"] or x_scale)


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
    octets = row.keep.shape[1] // p_n
    end = -(-n // p_n) - 1
    whole = row.keep.reshape(beats, p_n, octets).all(axis=2)
    present = np.zeros(n, dtype=np.bool_)
    received = whole.reshape(-1)[:n]
    present[: received.size] = received

    upto = slice(0, end + 1)
    last_in_row = beats - 1 <= end
    faults = RowFlag(0)
    if beats - 1 < end or (beats - 1 == end and not present[end * p_n :].all()):
        faults |= RowFlag.SHORT
    if beats - 1 > end or (beats - 1 == end and row.keep[end, octets * (n - end * p_n) :].any()):
        faults |= RowFlag.LONG
    without_last = row.keep[: beats - 1][upto]
    if not without_last.all() or (last_in_row and not _is_run(row.keep[-1], octets)):
        faults |= RowFlag.KEEP
    if (row.tid[upto] != row.tid.flat[0]).any():
        faults |= RowFlag.ID
    return faults, present


def _is_run(keep: NDArray[np.bool_], octets: int) -> bool:
    """Whether TKEEP is a run of whole elements, of so many bytes each, from element 0 (or none)."""
    count = int(keep.sum())
    return count % octets == 0 and bool(keep[:count].all())


def accepted_settings(
    record: Mapping[str, int], configuration: Configuration, x_scale: int = _ONE
) -> LayerSettings | None:
    """What a layer record asks of a row with this x_scale (FP32 bits) in TUSER; None where the hardware refuses it."""
    if not acceptable(record, configuration, x_scale):
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
            # With INT8 alone it is of no account.
            "cast_before_gamma": bool(record["cast_before_gamma"])
            and not configuration.what.integer,
            **(samples if configuration.what.subsampling else {}),
            **(_skipping(record) if configuration.what.skipping else {}),
            **(_formats(record) if configuration.what.int8 else {}),
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


def _formats(record: Mapping[str, int]) -> dict[str, Any]:
    """What a layer record asks for in builds with INT8."""
    scaled = record["input_format"] == _INT8 and record["x_scale"]
    return {
        "input_format": FORMATS[record["input_format"]],
        "output_format": FORMATS[record["output_format"]],
        "x_scale": _float32(record["x_scale"]) if scaled else None,
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


def _rows(x: NDArray[Any], configuration: Configuration) -> tuple[Patterns, bool]:
    """Bit patterns (rows, N), and whether they came as INT8."""
    array = np.asarray(x)
    if array.dtype not in (np.float16, np.uint16, np.int8):
        raise ConfigurationError(
            f"x has type {array.dtype}; allowed are float16, uint16 for its bit patterns, and int8"
        )
    if array.ndim not in (1, 2) or array.shape[-1] == 0:
        raise ConfigurationError(
            f"x has shape {array.shape}; allowed are (rows, N) and (N,), N ≥ 1"
        )
    array = np.ascontiguousarray(np.atleast_2d(array))
    if array.dtype != np.int8:
        return array.view(np.uint16), False
    return array.view(np.uint8) if configuration.what.integer else as_fp16(array), True


def _scale(x_scale: ArrayLike | None, rows: int, int8_input: bool) -> Scale | None:
    """Scales of rows."""
    if not int8_input:
        if x_scale is not None:
            raise ConfigurationError(
                "x_scale is given, but x is not int8: only INT8 elements have a scale"
            )
        return None
    if x_scale is None:
        raise ConfigurationError(
            "x is int8, but x_scale, what its elements are multiplied by, is missing"
        )
    given = np.asarray(x_scale)
    if given.shape not in ((), (rows,)):
        raise ConfigurationError(
            f"x_scale has shape {given.shape}; allowed are a number and ({rows},)"
        )
    with np.errstate(over="ignore"):
        bits = np.broadcast_to(given.astype(np.float32), (rows,)).view(np.uint32)
    wrong = [i for i, value in enumerate(bits.tolist()) if not is_scale(value)]
    if wrong:
        raise ConfigurationError(
            f"x_scale = {given.flat[wrong[0] if given.shape else 0]}; allowed are 0 and positive normal FP32 numbers"
        )
    return Scale.of(bits)


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
    if configuration.what.integer:
        return fixed.stored(gamma, beta)
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
