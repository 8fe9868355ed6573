# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Widths and constants of `haan.numerics` and `haan.layer` against the worst cases that they must hold."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haan.config import Configuration
from haan.layer import LayerSettings, float32_bits, inverse_square, record_layout
from haan.numerics import Numerics, clog2

LARGEST = 65504 << 24
"""The largest element, in units of 2^-24."""

lengths = st.integers(1, 65536)


def of(max_n: int, **changes: object) -> Numerics:
    return Numerics(Configuration().with_(max_n=max_n, **changes))


@given(st.integers(1, 1 << 40))
def test_clog2_is_the_smallest_exponent_that_suffices(value):
    k = clog2(value)
    assert 1 << k >= value
    assert k == 0 or 1 << (k - 1) < value


@given(lengths)
def test_sums_of_the_largest_elements_fit(n):
    widths = of(n)
    assert widths.z_bits == LARGEST.bit_length()
    assert (n * LARGEST).bit_length() < widths.s1_bits
    assert (n * LARGEST**2).bit_length() <= widths.s2_bits
    assert (n * n * LARGEST**2).bit_length() <= widths.v_bits
    assert (2 * n << widths.z_bits).bit_length() - 1 <= widths.biased_sum_bits
    assert n.bit_length() <= widths.n_bits


@given(lengths)
def test_the_window_holds_every_difference(n):
    """|z − mean| ≤ √(N − 1)·σ, and σ < 2^(k+1): at most 2^(G+1)·√(N − 1) in units of 2^(k−G)."""
    widths = of(n)
    assert (n - 1) * 4 ** (32 + 1) <= 4 ** (widths.window - 1)
    # A row that isn't constant deviates by 2^-25/√N at least, so k − G is never below this.
    assert widths.lowest_lsb <= -25 - (widths.growth + 1) // 2 - 1 - 32


@given(lengths, st.integers(-60, 16))
def test_the_window_holds_every_difference_where_squares_are_lossy(n, k):
    """There the variance is up to 2^-20 more than computed: σ² < 4^(k+1) + 2^-20."""
    widths = of(n, accumulator="window")
    lsb = max(k - 32, widths.lowest_lsb)
    most = (n - 1) * (Fraction(4) ** (k + 1) + Fraction(1, 1 << 20))
    assert most <= Fraction(4) ** (lsb + widths.window - 1)


def test_a_subsampled_window_holds_all_of_fp16():
    assert of(64, subsampling=True).window == 58
    assert 2 * LARGEST << (40 - 24) < 1 << 57


@pytest.mark.parametrize("max_n", [1, 64, 4096, 65536])
def test_the_reciprocal_gives_the_exact_mean(max_n):
    """⌊S1'·2^F/N⌋ by a product with the record's reciprocal, at the ends of the range and where the remainder is extreme."""
    configuration = Configuration().with_(max_n=max_n)
    widths = Numerics(configuration)
    random = np.random.default_rng(max_n)
    some = random.integers(1, max_n + 1, 300).tolist()
    for n in sorted(
        {
            1,
            max_n,
            *range(1, min(max_n, 300) + 1),
            *some,
            *(max_n - i for i in range(min(50, max_n))),
        }
    ):
        record = LayerSettings(n=n).record(configuration)
        reciprocal, shift = record["reciprocal"], record["reciprocal_shift"]
        assert 0 <= reciprocal * n - (1 << (widths.reciprocal_precision + shift)) < n
        top = (n * (1 << widths.z_bits) + n * LARGEST) << widths.mean_fraction
        for quotient in (0, 1, top // n, top // n // 3):
            for total in (quotient * n, quotient * n + n - 1):
                if total <= top:
                    got = total * reciprocal >> (widths.reciprocal_precision + shift)
                    assert got == total // n


@given(lengths)
def test_the_inverse_square_is_the_nearest(n):
    significand, exponent = inverse_square(n)
    assert 1 << 23 <= significand < 1 << 24
    unit = Fraction(1, 1 << (23 + exponent))
    assert abs(significand * unit - Fraction(1, n * n)) <= unit / 2


def test_the_inverse_square_of_powers_of_two_is_exact():
    for k in range(17):
        assert inverse_square(1 << k) == (1 << 23, 2 * k)


@pytest.mark.parametrize("n", [3, 576, 768, 2560, 5120, 14336])
def test_the_inverse_square_of_other_lengths_is_not_that_of_a_power_of_two(n):
    significand, exponent = inverse_square(n)
    assert abs(Fraction(significand, 1 << (23 + exponent)) * n * n - 1) < Fraction(1, 1 << 24)


@given(st.floats(0, 3.4e38))
def test_eps_is_the_nearest_fp32_number(eps):
    assert float32_bits(eps) == int(np.float32(eps).view(np.uint32))


@given(lengths, st.floats(0, 3.4e38))
def test_records_fit_their_ports(n, eps):
    configuration = Configuration().with_(max_n=max(n, 2))
    record = LayerSettings(n=n, eps=eps).record(configuration)
    layout = record_layout(configuration)
    assert record.keys() == layout.keys()
    assert all(0 <= record[name] < 1 << width for name, width in layout.items())


def test_narrower_squares_are_a_choice():
    assert of(64).dropped_square_bits == 0
    assert of(64, accumulator="window").dropped_square_bits == 28
