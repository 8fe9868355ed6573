# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Variance and inverse square root. Sections 4, 5 and 12 of `docs/numerics.md`."""

from typing import NamedTuple

import numpy as np

from ..config import How
from ..layer import inverse_square
from ..numerics import (
    FACTOR_FRACTION_BITS,
    ISD_BITS,
    RESIDUAL_FRACTION_BITS,
    SCALED_ISD_EXPONENTS,
    T_FRACTION_BITS,
    VARIANCE_BITS,
    X_FRACTION_BITS,
    Y_FRACTION_BITS,
)
from ..seeds import (
    CLASSIC_MAGIC,
    ESTIMATE_BITS,
    SEGMENTS,
    TUNED_A,
    TUNED_B,
    TUNED_MAGIC,
)
from .fp16 import Mask
from .int8 import Scale, norm24
from .significand import Int
from .statistics import Integers

_TOP = VARIANCE_BITS - 1
_ONE = 1 << X_FRACTION_BITS


def bit_length(value: Int) -> Int:
    """Bit lengths of integers from 0 to 2^63 − 1."""
    # Without the bit below the leading one, the conversion can't round up to the next power of two.
    return np.frexp((value & ~(value >> 1)).astype(np.float64))[1].astype(np.int64)


def scaled_variance(s1: Integers, s2: Integers, n: int, layernorm: bool) -> Integers:
    """V = N²·variance (LayerNorm) or N²·(mean square), in units of 2^-48; (rows,) Python integers."""
    v = n * s2 - s1 * s1 if layernorm else n * s2
    # Negative with the `window` accumulator alone, whose squares are too small.
    clamped: Integers = np.maximum(v, 0)
    return clamped


def variance_plus_eps(
    v: Integers, n: int, eps_bits: int, scale: Scale | None = None
) -> tuple[Int, Int, Mask]:
    """Variance + eps as t/2^23 · 2^e.

    Parameters
    ----------
    v : (rows,) Python integers, N²·variance in units of 2^-48
    n : sampled elements
    eps_bits : FP32 bits of a finite eps ≥ 0
    scale : (rows,), what the elements are to be multiplied by; None: 1

    Returns t (24 bits), e, and whether both are zero (then t is 0); (rows,) each.
    """
    length = np.array([int(value).bit_length() for value in v])
    leading = ((v << VARIANCE_BITS) >> length.astype(object)).astype(np.int64)
    r2, x = inverse_square(n)
    square, exponent = np.array([r2]), np.array([-x])
    if scale is not None:
        scale_square, scale_exponent = scale.squared()
        square, carry = norm24(square * scale_square)
        exponent = exponent + scale_exponent + carry
    significand, carry = norm24(leading * square)
    variance_exponent = length - 49 + exponent + carry

    eps_field = eps_bits >> _TOP & 0xFF
    eps_significand = (1 << _TOP) + (eps_bits & ((1 << _TOP) - 1)) if eps_field else 0
    return _add(significand, variance_exponent, eps_significand, eps_field - 127)


def _add(am: Int, ae: Int, bm: int, be: int) -> tuple[Int, Int, Mask]:
    """Sum of significands of 24 bits, the smaller one truncated to the larger one's last bit."""
    if bm == 0:
        return am, ae, am == 0
    a_high = (am != 0) & (ae >= be)
    distance = np.minimum(np.abs(ae - be), VARIANCE_BITS)
    t = np.where(a_high, am + (bm >> distance), bm + (am >> distance))
    t = np.where(am == 0, bm, t)
    carry = t >> VARIANCE_BITS
    return t >> carry, np.where(a_high, ae, be) + carry, t == 0


def split(t: Int, e: Int) -> tuple[Int, Int]:
    """(X, k): t/2^23 · 2^e ≈ X/2^20 · 4^k with X/2^20 in [1, 4)."""
    return t >> (_TOP - X_FRACTION_BITS - (e & 1)), e >> 1


def estimate(x: Int, how: How) -> Int:
    """The seed's first estimate of 1/√(X/2^20), in units of 2^-`ESTIMATE_BITS[how.seed]`."""
    odd = x >> (X_FRACTION_BITS + 1)
    fraction = (x >> odd) - _ONE
    if how.seed == "segmented":
        table = np.array(SEGMENTS[how.segments, how.segment_slopes])
        octave = how.segments // 2
        rest_bits = X_FRACTION_BITS - (octave - 1).bit_length()
        constant, slope = table[odd * octave + (fraction >> rest_bits)].T
        rest = fraction & ((1 << rest_bits) - 1)
        y: Int = np.minimum(constant - (slope * rest >> 11), (1 << 13) - 1)
        return y
    magic = CLASSIC_MAGIC if how.seed == "classic" else TUNED_MAGIC
    # On the bits of FP32; the result is in (¼, 1.25), so its exponent field is 125 to 127.
    bits = magic - ((((127 + odd) << 23) + (fraction << 3)) >> 1)
    return ((1 << 23) + (bits & ((1 << 23) - 1))) >> (134 - (bits >> 23))


def root(x: Int, how: How) -> tuple[Int, int]:
    """(y', fraction bits): 1/√(X/2^20) before it is rounded to the ISD's 17 bits. X: integers in [2^20, 2^22), any shape."""
    y, fraction = estimate(x, how), ESTIMATE_BITS[how.seed]
    if how.newton_steps == 0:
        return y << FACTOR_FRACTION_BITS, fraction + FACTOR_FRACTION_BITS
    for step in range(how.newton_steps):
        if step:
            y = y >> (fraction + FACTOR_FRACTION_BITS - Y_FRACTION_BITS)
            fraction = Y_FRACTION_BITS
        square = y * y >> (2 * fraction - T_FRACTION_BITS)
        residual = ((1 << 46) - x * square) >> (46 - RESIDUAL_FRACTION_BITS)
        constant, slope = _factor(tuned=how.seed == "tuned" and step == 0)
        y = y * (constant + (slope * residual >> RESIDUAL_FRACTION_BITS))
    return y, fraction + FACTOR_FRACTION_BITS


def _factor(tuned: bool) -> tuple[int, int]:
    """(c0, c1) of a Newton step's factor c0 + c1·residual."""
    one = 1 << FACTOR_FRACTION_BITS
    if tuned:
        return round((TUNED_A - TUNED_B) * one), round(TUNED_B * one)
    return one, one >> 1


class Root(NamedTuple):
    """Inverse standard deviations before they are rounded to 17 bits: significand/2^23 · 2^exponent; any shape."""

    significand: Int
    """ym: the 24 leading bits; 0 stands for a row without variance."""
    exponent: Int
    """ie0."""


def inverse_root(x: Int, k: Int, how: How) -> Root:
    """1/√(X/2^20 · 4^k); any shape."""
    y, fraction = root(x, how)
    n = bit_length(y)
    # y has at least 37 bits.
    return Root(y >> (n - VARIANCE_BITS), n - 1 - fraction - k)


def rounded(value: Int, exponent: Int) -> tuple[Int, Int]:
    """(im, ie) of integers of at least 18 bits, or 0, whose first bit stands for 2^exponent: to 17 bits, a half goes up."""
    # By way of one more bit: what lies below it doesn't matter.
    im = ((value >> np.maximum(bit_length(value) - ISD_BITS - 1, 0)) + 1) >> 1
    carry = im >> ISD_BITS
    return im >> carry, exponent + carry


def scaled(root: Root, scale: Scale) -> tuple[Int, Int]:
    """(im, ie): the ISD in real units times the scale, as the lanes take it."""
    product = root.significand * scale.significand
    length = bit_length(product)
    im, exponent = rounded(product, root.exponent + scale.exponent + length - (2 * _TOP + 1))
    low, high = SCALED_ISD_EXPONENTS[0], SCALED_ISD_EXPONENTS[-1]
    above = exponent > high
    im = np.where(exponent < low, 0, np.where(above, 1 << (ISD_BITS - 1), im))
    return np.where(product == 0, 0, im), np.clip(exponent, low, high)


def inverse_sqrt(x: Int, k: Int, how: How) -> tuple[Int, Int]:
    """(im, ie): 1/√(X/2^20 · 4^k) ≈ im/2^16 · 2^ie, 2^16 ≤ im < 2^17; any shape."""
    return rounded(*inverse_root(x, k, how))
