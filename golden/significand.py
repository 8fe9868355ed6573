# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Rounding of significands held exactly in float64.

Past the statistics no number of the data path has more than 53 significant bits, so float64 holds each one exactly, sign and
exponent included. Its bit pattern is the significand with the exponent above it: a carry out of the significand raises the
exponent by itself. Only additions can lose bits; `add` says which way.
"""

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FRACTION = 52
"""Fraction bits of float64."""
SIGN = np.int64(-1 << 63)


def half_up(value: Float, bits: int) -> Float:
    """Magnitude to nearest with `bits` significant bits; a half goes away from zero."""
    drop = FRACTION + 1 - bits
    raw = value.view(np.int64) + (1 << (drop - 1))
    raw &= -1 << drop
    return raw.view(np.float64)


def half_toward_infinity(value: Float, bits: int) -> Float:
    """⌊value + ½⌋ in units of the last of `bits` significant bits: a half goes up, for negative numbers toward zero."""
    drop = FRACTION + 1 - bits
    raw = value.view(np.int64)
    raw = raw + ((raw >> 63) + (1 << (drop - 1)))
    raw &= -1 << drop
    return raw.view(np.float64)


def half_even(value: Float, bits: int) -> Float:
    """To nearest with `bits` significant bits; a half goes to the even neighbour."""
    drop = FRACTION + 1 - bits
    raw = value.view(np.int64)
    raw = raw + ((raw >> drop & 1) + ((1 << (drop - 1)) - 1))
    raw &= -1 << drop
    return raw.view(np.float64)


def odd(value: Float, bits: int) -> Float:
    """Truncated to `bits` significant bits, the last of them set where that lost anything."""
    below = (1 << (FRACTION + 1 - bits)) - 1
    raw = value.view(np.int64)
    kept = raw & below
    # Carries into the last kept bit where a lower one is set.
    kept += below
    kept |= raw
    kept &= ~below
    return kept.view(np.float64)


def add(a: Float, b: Float) -> Float:
    """a + b rounded to odd at float64's 53 bits: one later rounding to at most 51 bits is a rounding of the exact sum."""
    total = a + b
    of_b = total - a
    lost = (a - (total - of_b)) + (b - of_b)
    inexact = lost != 0
    if inexact.any():
        raw = total.view(np.int64)
        # float64 rounded to nearest: where its last bit is 0, the odd neighbour on the side of the exact sum takes its place.
        step = np.where((lost > 0) == (total > 0), 1, -1)
        raw[inexact & (raw & 1 == 0)] += step[inexact & (raw & 1 == 0)]
    return total
