# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""FP16: decoding to integers and the one rounding of a result. Section 2 and 8 of `docs/numerics.md`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..formats import FP16
from .significand import FRACTION, SIGN, Float, Int

Bits = NDArray[np.uint16]
Mask = NDArray[np.bool_]

NAN = np.uint16(FP16.quiet_nan)
INFINITY = FP16.max_exponent_field << FP16.fraction_bits
SIGN_BIT = 1 << (FP16.width - 1)

_DROP = FRACTION - FP16.fraction_bits
"""Bits by which float64's fraction is longer."""
_REBIAS = (1023 - FP16.bias) << FP16.fraction_bits
_SMALLEST_NORMAL = 2.0 ** (1 - FP16.bias)
_GRID = 2.0 ** (FRACTION + FP16.lsb_exponent)
"""float64 numbers of this binade are 2^-24 apart: adding it rounds to FP16's subnormals."""


class Decoded(NamedTuple):
    """Fields of FP16 numbers: (−1)^negative · significand · 2^(exponent − 25)."""

    negative: Mask
    significand: Int
    exponent: Int
    nonfinite: Mask


def decode(bits: Bits) -> Decoded:
    """Takes FP16 bit patterns apart; any shape."""
    field = (bits >> FP16.fraction_bits & FP16.max_exponent_field).astype(np.int64)
    fraction = (bits & ((1 << FP16.fraction_bits) - 1)).astype(np.int64)
    return Decoded(
        negative=bits >= SIGN_BIT,
        significand=fraction + ((field > 0) << FP16.fraction_bits),
        exponent=np.maximum(field, 1),
        nonfinite=field == FP16.max_exponent_field,
    )


def nonfinite(bits: Bits) -> Mask:
    """Where FP16 bit patterns are infinite or NaN."""
    mask: Mask = bits & INFINITY == INFINITY
    return mask


def _magnitudes() -> Int:
    number = decode(np.arange(1 << FP16.width).astype(np.uint16))
    return np.where(number.nonfinite, 0, number.significand << (number.exponent - 1))


MAGNITUDES = _magnitudes()
"""|Z| of each of the 2^16 bit patterns, in units of 2^-24; 0 for infinities and NaNs."""
INTEGERS = np.where(np.arange(1 << FP16.width) >= SIGN_BIT, -MAGNITUDES, MAGNITUDES)
"""Z likewise."""


def ordinal(magnitude: Float) -> Int:
    """Nearest even FP16 number of non-negative finite float64 numbers, as its bit pattern.

    The exponent is unbounded above: from 0x7C00 on the patterns go on as if the exponent field were longer.
    """
    raw = magnitude.view(np.int64)
    normal = raw >> _DROP
    normal &= 1
    normal += raw
    normal += (1 << (_DROP - 1)) - 1
    normal >>= _DROP
    normal -= _REBIAS
    small = magnitude < _SMALLEST_NORMAL
    if small.any():
        subnormal = (magnitude + _GRID).view(np.int64) - np.float64(_GRID).view(np.int64)
        normal = np.where(small, subnormal, normal)
    return normal


def ordinal_value(pattern: Int) -> Float:
    """The number that an `ordinal` stands for."""
    normal = ((pattern + _REBIAS) << _DROP).view(np.float64)
    subnormal = pattern * 2.0**FP16.lsb_exponent
    return np.where(pattern < 1 << FP16.fraction_bits, subnormal, normal)


def round_fp16(value: Float) -> tuple[Bits, Mask]:
    """(FP16 bits, overflowed) of finite float64 numbers that are exact or rounded to odd: to nearest, ties to even.

    Subnormals are kept, 65520 and more becomes infinite, a negative number that rounds to zero keeps its sign.
    """
    pattern = ordinal(np.abs(value))
    overflow = pattern >= INFINITY
    np.minimum(pattern, INFINITY, out=pattern)
    pattern |= (value.view(np.int64) & SIGN) >> (63 - (FP16.width - 1))
    return pattern.astype(np.uint16), overflow
