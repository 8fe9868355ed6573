# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""INT8 alone: sums, and lanes in fixed point. Section 14 of `docs/numerics.md`.

No number of a lane has more than 43 bits, so float64 holds each one exactly.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..config import Configuration
from ..formats import FP16
from ..layer import LayerSettings
from ..numerics import (
    INTEGER_ISD_BITS,
    INTEGER_PARAMETER_FRACTION,
    INTEGER_PARAMETER_LIMIT,
    ISD_BITS,
    Numerics,
)
from .fp16 import Mask
from .int8 import round_int8
from .normalization import Affine
from .significand import Float, Int
from .statistics import Integers

Bits = NDArray[np.uint8]
"""INT8 bit patterns."""

_UNIT = -FP16.lsb_exponent
"""Elements are multiples of 2^_UNIT in the units of FP16's sums."""


@dataclass(frozen=True, eq=False)
class RowConstants:
    """What a lane needs of a row; arrays of shape (rows,), in units of 2^-XF."""

    isd: Int
    """I: the ISD times the scale; 0 for rows without variance."""
    mean: Int
    """M: the mean times that."""

    def part(self, rows: slice) -> "RowConstants":
        """Those of some rows."""
        return RowConstants(self.isd[rows], self.mean[rows])


def sums(bits: Bits, mask: Mask | None) -> tuple[Integers, Integers, Mask]:
    """Sums over the last axis of the sampled elements, as `haan.golden.statistics.sums` of the FP16 numbers.

    Parameters
    ----------
    bits : (rows, samples)
    mask : (rows, samples), elements that are there, or None: all. Others count as zero.

    Returns S1 in units of 2^-24 and S2 in units of 2^-48, each (rows,) Python integers, and (rows,) whether an element was infinite or
    NaN: none is.
    """
    q = bits.view(np.int8).astype(np.int32)
    if mask is not None:
        q *= mask
    s1 = q.sum(axis=-1, dtype=np.int64).astype(object)
    s2 = np.square(q).sum(axis=-1, dtype=np.int64).astype(object)
    return s1 << _UNIT, s2 << 2 * _UNIT, np.zeros(len(s1), dtype=np.bool_)


def row_mean(s1: Integers, settings: LayerSettings, configuration: Configuration) -> Int:
    """m: means in units of 2^-F, rounded down; 0 for RMSNorm; (rows,). s1: in units of 2^-24."""
    if settings.mode == "rmsnorm":
        return np.zeros(len(s1), dtype=np.int64)
    fraction = Numerics(configuration).mean_fraction
    return ((s1 << fraction) // (settings.samples << _UNIT)).astype(np.int64)


def row_constants(
    mean: Int, isd: Int, isd_exponent: Int, configuration: Configuration
) -> RowConstants:
    """From m, im and ie of rows to what the lanes take; (rows,) each."""
    numerics = Numerics(configuration)
    shift = isd_exponent + numerics.x_fraction - (ISD_BITS - 1)
    # Beyond these it is the largest, or nothing, anyway.
    left = np.clip(shift, 0, INTEGER_ISD_BITS - ISD_BITS + 1)
    right = np.clip(-shift, 0, ISD_BITS + 1)
    fixed = np.minimum(_half_up(isd << left, right), (1 << INTEGER_ISD_BITS) - 1)
    return RowConstants(fixed, _half_up(mean * fixed, np.int64(numerics.mean_fraction)))


def _half_up(value: Int, shift: Int | np.int64) -> Int:
    """⌊value / 2^shift + ½⌋, shift ≥ 0."""
    rounded: Int = ((value << 1 >> shift) + 1) >> 1
    return rounded


def stored(gamma: NDArray[np.floating] | None, beta: NDArray[np.floating] | None) -> Affine:
    """Gamma and beta as they are stored, as numbers."""
    kept = [None if array is None else _stored(array) for array in (gamma, beta)]
    return Affine(kept[0], kept[1])


def _stored(parameter: NDArray[np.floating]) -> Float:
    limit = float(INTEGER_PARAMETER_LIMIT)
    number = np.nan_to_num(parameter.astype(np.float64), nan=0.0, posinf=limit, neginf=-limit)
    integer = np.rint(np.ldexp(np.clip(number, -limit, limit), INTEGER_PARAMETER_FRACTION))
    return np.ldexp(integer, -INTEGER_PARAMETER_FRACTION)


def lane(
    bits: Bits, row: RowConstants, affine: Affine, configuration: Configuration
) -> tuple[Bits, Mask]:
    """Results of the elements of rows (rows, N): INT8 bits, and where one was saturated. `affine` as `stored`, with gamma."""
    assert affine.gamma is not None
    limit = float(1 << INTEGER_ISD_BITS)
    value = bits.view(np.int8) * row.isd.astype(np.float64)[:, None]
    value -= row.mean[:, None]
    np.clip(value, -limit, limit, out=value)
    value *= np.ldexp(affine.gamma, -Numerics(configuration).x_fraction)
    if affine.beta is not None:
        value += affine.beta
    return round_int8(value)
