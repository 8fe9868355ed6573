# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Mean and ISD of rows as they leave beside them, in FP32. Section 13 of `docs/numerics.md`."""

import numpy as np
from numpy.typing import NDArray

from ..config import Configuration
from ..formats import FP16
from ..layer import LayerSettings
from ..numerics import ISD_BITS, VARIANCE_BITS, Numerics
from .int8 import Scale
from .inverse_sqrt import Root, rounded
from .significand import FRACTION, Float, half_even
from .statistics import Integers

Bits = NDArray[np.uint32]
"""FP32 bit patterns."""

NAN = 0x7FC00000
"""What stands beside a row that is all NaN, and beside a null row."""
_SMALLEST_NORMAL = 2.0**-126


def mean_bits(
    s1: Integers, settings: LayerSettings, configuration: Configuration, scale: Scale | None
) -> Bits:
    """Means in real units; (rows,).

    s1 : (rows,) Python integers, sums of the sampled elements in units of 2^-24
    scale : (rows,), that of INT8 input
    """
    if settings.mode == "rmsnorm":
        return np.zeros(len(s1), dtype=np.uint32)
    fraction = Numerics(configuration).mean_fraction
    mean = _number((s1 << fraction) // settings.samples, FP16.lsb_exponent - fraction)
    mean = half_even(mean, VARIANCE_BITS)
    if scale is not None:
        # Exact: 48 bits. An exact zero is +0.
        mean = half_even(mean * scale.value() + 0.0, VARIANCE_BITS)
    return _float32(mean)


def isd_bits(root: Root) -> Bits:
    """ISDs, of whatever origin; +0 for rows without variance; (rows,)."""
    significand, exponent = rounded(*root)
    return _float32(np.ldexp(significand.astype(np.float64), exponent - (ISD_BITS - 1)))


def _number(integer: Integers, unit: int) -> Float:
    """integer · 2^unit, rounded to odd at float64's 53 bits."""
    magnitude = abs(integer)
    dropped = np.array(
        [max(0, each.bit_length() - (FRACTION + 1)) for each in magnitude.tolist()], dtype=np.int64
    )
    kept = magnitude >> dropped.astype(object)
    kept |= kept << dropped.astype(object) != magnitude
    value: Float = np.ldexp((kept * np.sign(integer)).astype(np.float64), dropped + unit)
    return value


def _float32(value: Float) -> Bits:
    """Bits of numbers of 24 significant bits; what is too small for a normal number is a zero with its sign, what is too large infinite."""
    value = np.where(np.abs(value) < _SMALLEST_NORMAL, np.copysign(0.0, value), value)
    with np.errstate(over="ignore"):
        bits: Bits = value.astype(np.float32).view(np.uint32)
    return bits
