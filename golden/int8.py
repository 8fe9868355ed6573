# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""INT8 beside FP16: elements, scales and results. Section 12 of `docs/numerics.md`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..formats import INT8
from ..numerics import VARIANCE_BITS
from .fp16 import Bits, Mask
from .significand import Float, Int

_TOP = VARIANCE_BITS - 1
_SMALLEST_NORMAL = 1 << _TOP
_INFINITY = 0xFF << _TOP


class Scale(NamedTuple):
    """Scales of INT8 rows: significand/2^23 · 2^exponent; arrays of shape (rows,)."""

    significand: Int
    """sm: 24 bits, or 0."""
    exponent: Int
    """se."""

    @classmethod
    def of(cls, bits: NDArray[np.uint32]) -> "Scale":
        """Of FP32 bits for which `is_scale` holds."""
        raw = bits.astype(np.int64)
        fraction = raw & (_SMALLEST_NORMAL - 1)
        return cls(np.where(raw == 0, 0, _SMALLEST_NORMAL + fraction), (raw >> _TOP) - 127)

    def part(self, rows: slice) -> "Scale":
        """Those of some rows."""
        return Scale(self.significand[rows], self.exponent[rows])

    def value(self) -> Float:
        """As numbers."""
        return np.ldexp(self.significand.astype(np.float64), self.exponent - _TOP)

    def squared(self) -> tuple[Int, Int]:
        """(q2, exponent): the square, q2/2^23 · 2^exponent."""
        significand, carry = norm24(self.significand * self.significand)
        return significand, 2 * self.exponent + carry


def is_scale(bits: int) -> bool:
    """Whether FP32 bits are 0 or those of a positive normal number."""
    return bits == 0 or _SMALLEST_NORMAL <= bits < _INFINITY


def norm24(product: Int) -> tuple[Int, Int]:
    """(24 leading bits of a product of 47 or 48 bits or of 0, 1 for one of 48 bits)."""
    carry = product >> (2 * _TOP + 1)
    return product >> (_TOP + carry), carry


def as_fp16(q: NDArray[np.int8]) -> Bits:
    """FP16 bit patterns of the numbers."""
    return q.astype(np.float16).view(np.uint16)


def round_int8(value: Float) -> tuple[NDArray[np.uint8], Mask]:
    """(INT8 bit patterns, saturated) of finite float64 numbers that are exact or rounded to odd: to nearest, ties to even."""
    nearest = np.rint(value)
    q = np.clip(nearest, INT8.least, INT8.largest)
    return q.astype(np.int8).view(np.uint8), q != nearest
