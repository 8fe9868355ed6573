# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""FP16 decoding and rounding, and the arithmetic on exact significands, against fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haan.golden import fp16, significand

PATTERNS = np.arange(1 << 16, dtype=np.uint16)
VALUES = PATTERNS.view(np.float16).astype(np.float64)
FINITE = np.isfinite(VALUES)
POSITIVE = np.arange(0x7C00, dtype=np.uint16)

significands = st.floats(
    min_value=-1e40, max_value=1e40, allow_nan=False, allow_subnormal=False, width=64
)


def test_every_pattern_decodes_to_its_value():
    number = fp16.decode(PATTERNS)
    value = np.ldexp(number.significand.astype(np.float64), number.exponent - 25)
    value = np.where(number.negative, -value, value)
    assert (number.nonfinite == ~FINITE).all()
    assert (value[FINITE] == VALUES[FINITE]).all()
    assert (np.signbit(VALUES) == number.negative).all()


def test_integers_are_values_in_units_of_the_least_subnormal():
    assert (fp16.INTEGERS[FINITE] == VALUES[FINITE] * 2**24).all()
    assert (fp16.INTEGERS[~FINITE] == 0).all()
    assert (abs(fp16.INTEGERS) == fp16.MAGNITUDES).all()
    assert fp16.MAGNITUDES.max() < 2**40


def test_every_finite_value_rounds_to_itself():
    bits, overflow = fp16.round_fp16(VALUES[FINITE])
    assert (bits == PATTERNS[FINITE]).all()
    assert not overflow.any()


@pytest.mark.parametrize("sign", [1, -1])
def test_between_neighbours_the_nearer_wins_and_ties_go_to_even(sign):
    low = VALUES[POSITIVE]
    high = np.append(low[1:], 65536.0)
    tie = (low + high) / 2
    even = POSITIVE + (POSITIVE & 1)
    for value, want in (
        (tie, even),
        (np.nextafter(tie, 0), POSITIVE),
        (np.nextafter(tie, np.inf), POSITIVE + 1),
    ):
        bits, overflow = fp16.round_fp16(sign * value)
        assert (bits == want + (0x8000 if sign < 0 else 0)).all()
        assert (overflow == (want == 0x7C00)).all()


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (255.99, 0x5C00),
        (65520.0, 0x7C00),
        (65519.99, 0x7BFF),
        (float(np.nextafter(np.float32(2), np.float32(0))), 0x4000),
        (float(np.nextafter(np.float32(2.0**-14), np.float32(0))), 0x0400),
        (2.0**-25, 0x0000),
        (float(np.nextafter(np.float32(2.0**-25), np.float32(1))), 0x0001),
        (float(np.uint32(0x34200000).view(np.float32)), 0x0002),
        (1e-30, 0x0000),
        (-1e-30, 0x8000),
        (1e30, 0x7C00),
        (-1e30, 0xFC00),
        (0.0, 0x0000),
    ],
)
def test_rounding_of_known_values(value, bits):
    assert fp16.round_fp16(np.array([value]))[0].tolist() == [bits]


def test_ordinals_go_on_beyond_infinity():
    value = np.array([65519.0, 65520.0, 65536.0, 70000.0, 2.0**17, 3e-8, 0.0])
    pattern = fp16.ordinal(value)
    assert pattern.tolist() == [0x7BFF, 0x7C00, 0x7C00, 0x7C46, 0x8000, 1, 0]
    back = fp16.ordinal_value(pattern)
    assert back.tolist() == [65504.0, 65536.0, 65536.0, 70016.0, 131072.0, 2.0**-24, 0.0]


def unit(value: float, bits: int) -> Fraction:
    """Unit of the last of `bits` significant bits."""
    exponent = int(np.frexp(value)[1])
    return Fraction(2) ** (exponent - bits)


def one(function, value: float, *rest) -> Fraction:
    return Fraction(float(function(np.array([value]), *rest)[0]))


@given(significands, st.integers(2, 40))
def test_significands_round_as_fractions_do(value, bits):
    step = unit(value, bits)
    scaled = Fraction(value) / step
    sign = -1 if value < 0 else 1
    half = Fraction(1, 2)
    assert one(significand.half_up, value, bits) == sign * ((abs(scaled) + half) // 1) * step
    assert one(significand.half_toward_infinity, value, bits) == ((scaled + half) // 1) * step
    truncated = abs(scaled) // 1
    inexact = truncated != abs(scaled)
    want = truncated + (1 if inexact and truncated % 2 == 0 else 0)
    assert one(significand.odd, value, bits) == sign * want * step


@pytest.mark.parametrize("value", [1.5, 2.5, -1.5, -2.5, 3.5, -3.5, 0.0, 1.0, -1.0])
def test_halves(value):
    bits = 1 if abs(value) < 2 else 2
    step = 1.0
    assert one(significand.half_up, value, bits) == np.copysign(np.floor(abs(value) + 0.5), value)
    assert one(significand.half_toward_infinity, value, bits) == np.floor(value + 0.5) * step


@given(significands, significands, st.integers(-80, 80))
def test_a_sum_is_exact_or_odd_and_beside_the_exact_one(a, b, shift):
    b = float(np.ldexp(b, shift))
    exact = Fraction(a) + Fraction(b)
    got = float(significand.add(np.array([a]), np.array([b]))[0])
    if Fraction(got) == exact:
        return
    assert int(np.float64(got).view(np.int64)) & 1
    below, above = np.nextafter(got, -np.inf), np.nextafter(got, np.inf)
    assert Fraction(float(below)) < exact < Fraction(float(above))


def test_a_sum_keeps_what_decides_a_tie():
    tie, tiny = 2049.0, 2.0**-60
    sums = significand.add(np.array([tie, tie, -tie, -tie]), np.array([tiny, -tiny, tiny, -tiny]))
    want = [2050.0, 2048.0, -2048.0, -2050.0]
    assert fp16.round_fp16(sums)[0].view(np.float16).tolist() == want
