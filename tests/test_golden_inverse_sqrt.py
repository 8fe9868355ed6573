# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Variance and inverse square root: every argument, against float64, integers and fractions."""

import re
from fractions import Fraction
from math import isqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haan.config import How
from haan.golden.bounds import root_error
from haan.golden.inverse_sqrt import (
    bit_length,
    estimate,
    inverse_sqrt,
    root,
    scaled_variance,
    split,
    variance_plus_eps,
)
from haan.layer import float32_bits

ARGUMENTS = np.arange(1 << 20, 1 << 22)

SEEDS = [
    {"seed": "classic"},
    {"seed": "tuned"},
    *(
        {"seed": "segmented", "segments": segments, "segment_slopes": slopes}
        for segments in (16, 32, 64)
        for slopes in (False, True)
    ),
]


def documented() -> dict[tuple[str, int], tuple[str, ...]]:
    """(seed, steps) -> the columns of the table in docs/accuracy.md."""
    text = (Path(__file__).parents[1] / "docs" / "accuracy.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z0-9 ,]+?) \| ([0-3]) \| (.+) \|$", text, re.MULTILINE)
    return {(seed, int(steps)): tuple(rest.split(" | ")) for seed, steps, rest in rows}


def name(seed: dict[str, object]) -> str:
    if seed["seed"] != "segmented":
        return str(seed["seed"])
    return f"{seed['segments']} segments" + (", slopes" if seed["segment_slopes"] else "")


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("seed", SEEDS, ids=name)
def test_the_documented_errors_are_those_of_all_arguments(seed, steps):
    error = root_error(How(newton_steps=steps, **seed))
    columns = documented()[name(seed), steps]
    assert columns[:3] == tuple(f"{part:.3e}" for part in error)


@pytest.mark.parametrize(
    ("seed", "steps", "known"),
    [
        ({"seed": "classic"}, 1, 1.752e-3),
        ({"seed": "tuned"}, 1, 6.50e-4),
        ({"seed": "segmented", "segments": 16, "segment_slopes": False}, 1, 3.20e-4),
        ({"seed": "segmented", "segments": 64, "segment_slopes": False}, 1, 2.36e-5),
        ({"seed": "segmented", "segments": 64, "segment_slopes": True}, 1, 3.39e-6),
        ({"seed": "tuned"}, 2, 7.66e-7),
    ],
)
def test_narrow_steps_are_nearly_as_good_as_exact_ones(seed, steps, known):
    """Known: the worst relative errors of such seeds with Newton steps in exact arithmetic."""
    error = root_error(How(newton_steps=steps, **seed))
    assert max(error.below, error.above) <= known + 6e-6


@pytest.mark.parametrize("seed", SEEDS, ids=name)
def test_results_are_normalized_and_monotonic_in_the_exponent(seed):
    how = How(**seed)
    y, fraction = root(ARGUMENTS, how)
    assert y.min() >> (fraction - 2) >= 1
    im, ie = inverse_sqrt(ARGUMENTS, np.zeros_like(ARGUMENTS), how)
    assert (im >> 16 == 1).all()
    assert set(np.unique(ie)) <= {-2, -1, 0}
    other = inverse_sqrt(ARGUMENTS[::97], np.full(ARGUMENTS[::97].shape, -13), how)
    assert (other[0] == im[::97]).all()
    assert (other[1] == ie[::97] + 13).all()


@pytest.mark.parametrize("seed", [{"seed": "classic"}, {"seed": "tuned"}], ids=name)
def test_magic_estimates_are_those_of_fp32(seed):
    # Above 2 the last bit of X is beyond the 20 fraction bits that are used.
    x = np.where(ARGUMENTS >> 21, ARGUMENTS & ~1, ARGUMENTS)[::31]
    as_float = (x * 2.0**-20).astype(np.float32)
    magic = {"classic": 0x5F3759DF, "tuned": 0x5F1FFFF9}[seed["seed"]]
    bits = (magic - (as_float.view(np.int32) >> 1)).astype(np.int32)
    want = np.floor(bits.view(np.float32).astype(np.float64) * 2**16)
    assert (estimate(x, How(**seed)) == want).all()


@given(st.integers(0, 2**63 - 1))
def test_bit_length(value):
    assert bit_length(np.array([value])).tolist() == [value.bit_length()]


@pytest.mark.parametrize("k", [0, 1, 2, 31, 52, 53, 54, 62])
def test_bit_length_around_powers_of_two(k):
    values = [value for value in ((1 << k) - 1, 1 << k, (1 << k) + 1) if value >= 0]
    assert bit_length(np.array(values)).tolist() == [value.bit_length() for value in values]


def objects(*values: int) -> np.ndarray:
    return np.array(values, dtype=object)


@given(
    st.integers(0, 2**112) | st.integers(0, 112).flatmap(lambda b: st.integers(0, 2**b)),
    st.integers(1, 65536),
    st.floats(0, 2.0**127, width=32, allow_subnormal=False),
)
def test_variance_plus_eps_is_just_below_the_exact_one(v, n, eps):
    t, e, zero = (part[0] for part in variance_plus_eps(objects(v), n, float32_bits(eps)))
    exact = Fraction(v, n * n * 2**48) + Fraction(eps)
    assert bool(zero) == (exact == 0)
    if exact:
        assert int(t).bit_length() == 24
        got = Fraction(int(t)) * Fraction(2) ** (int(e) - 23)
        assert (
            -Fraction(7, 2) / 2**23 < got / exact - 1 < Fraction(1, 2) / 2**23 + Fraction(1, 2**40)
        )
        x, k = (int(part[0]) for part in split(np.array([t]), np.array([e])))
        assert 1 << 20 <= x < 1 << 22
        below = got - Fraction(x, 1 << 20) * Fraction(4) ** k
        assert 0 <= below < Fraction(4) ** k / 2**20 * (2 if x >> 21 else 1)


@pytest.mark.parametrize(
    ("v", "n", "eps", "want"),
    [
        (2**48, 1, 0.0, (2**23, 0)),
        (2**48 * 4096**2, 4096, 0.0, (2**23, 0)),
        (2**48, 1, 1.0, (2**23, 1)),
        (0, 5, 0.75, (3 << 22, -1)),
        (2**48 * 3, 1, 2.0**-30, (3 << 22, 1)),
        (2**48, 1, 2.0**-23, (2**23 + 1, 0)),
        (2**48, 1, 2.0**-24, (2**23, 0)),
        (2**48, 1, 2.0**60, (2**23, 60)),
        (1, 1, 0.0, (2**23, -48)),
        (0, 1, 0.0, (0, None)),
        (0, 1, 1e-39, (0, None)),
    ],
)
def test_variance_plus_eps_of_known_values(v, n, eps, want):
    t, e, zero = variance_plus_eps(objects(v), n, float32_bits(eps))
    assert t[0] == want[0]
    assert (want[1] is None) == bool(zero[0])
    assert want[1] is None or e[0] == want[1]


def test_eps_of_minus_zero_is_zero():
    assert variance_plus_eps(objects(0), 1, 0x80000000)[2].all()


def test_negative_variance_of_truncated_squares_counts_as_zero():
    assert scaled_variance(objects(3), objects(2), 4, layernorm=True).tolist() == [0]
    assert scaled_variance(objects(3), objects(2), 4, layernorm=False).tolist() == [8]


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("seed", SEEDS, ids=name)
def test_the_isd_is_the_nearest_to_the_root(seed, steps):
    how = How(newton_steps=steps, **seed)
    x = np.concatenate([ARGUMENTS[:5], ARGUMENTS[::65521], ARGUMENTS[-5:]])
    y, fraction = root(x, how)
    im, ie = inverse_sqrt(x, np.zeros_like(x), how)
    for exact, significand, exponent in zip(y.tolist(), im.tolist(), ie.tolist(), strict=True):
        got = Fraction(significand) * Fraction(2) ** (exponent - 16)
        off = abs(got - Fraction(exact, 1 << fraction)) / Fraction(2) ** (exponent - 16)
        assert off <= Fraction(1, 2)


def test_three_steps_are_the_exact_root_to_24_bits():
    x = ARGUMENTS[::40961]
    y, fraction = root(x, How(newton_steps=3))
    for argument, got in zip(x.tolist(), y.tolist(), strict=True):
        # 2^-30 units of 1/√(x/2^20).
        exact = isqrt((1 << 80) // argument)
        assert abs((got >> (fraction - 30)) - exact) < 1 << 6
