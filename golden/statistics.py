# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Sums of a row's sampled elements, exact. Section 3 of `docs/numerics.md`."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config import Configuration
from ..numerics import Numerics
from .fp16 import INTEGERS, MAGNITUDES, Bits, Mask, nonfinite
from .significand import Int

Integers = NDArray[Any]
"""Array of Python integers (dtype object): no width limit."""

_LIMB = 40
"""A square has 80 bits: two limbs, of which 2^16 fit into 64 bits."""


@cache
def _squares(dropped: int) -> tuple[Int, Int]:
    """High and low limb of the square of each FP16 bit pattern, in units of 2^-48, without its `dropped` low bits."""
    square = MAGNITUDES.astype(object) ** 2 >> dropped << dropped
    high, low = square >> _LIMB, square & ((1 << _LIMB) - 1)
    return high.astype(np.int64), low.astype(np.int64)


def sums(
    bits: Bits, mask: Mask | None, configuration: Configuration
) -> tuple[Integers, Integers, Mask]:
    """Sums over the last axis of the sampled elements.

    Parameters
    ----------
    bits : (rows, samples), FP16 bit patterns
    mask : (rows, samples), elements that are there, or None: all. Others count as zero.

    Returns S1 in units of 2^-24 and S2 in units of 2^-48, each (rows,) Python integers, and (rows,) whether an element that is
    there was infinite or NaN; those count as zero.
    """
    bad = nonfinite(bits)
    if mask is not None:
        bits = np.where(mask, bits, np.uint16(0))
        bad &= mask
    index = bits.astype(np.intp)
    high, low = _squares(Numerics(configuration).dropped_square_bits)
    s1 = INTEGERS[index].sum(axis=-1).astype(object)
    s2 = (high[index].sum(axis=-1).astype(object) << _LIMB) + low[index].sum(axis=-1).astype(object)
    bad_rows: Mask = np.logical_or.reduce(bad, axis=-1)
    return s1, s2, bad_rows
