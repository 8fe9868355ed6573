# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""`normalize`: known rows, invariances, and what it refuses. Bits are compared, so that −0 is not 0."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haan.config import Configuration, ConfigurationError
from haan.flags import RowFlag
from haan.golden import normalize, reference

DEFAULT = Configuration()
LONG = DEFAULT.with_(max_n=65536)
GEMMA = DEFAULT.with_(parameter_format="fp32", one_plus_gamma=True)
LLAMA = DEFAULT.with_(cast_before_gamma=True)
LENGTHS = [1, 2, 3, 7, 8, 9, 38, 64, 128, 576, 767, 768, 769, 1152, 2560, 2880, 3232, 4083, 4096]


def half(*rows) -> np.ndarray:
    return np.array(rows, dtype=np.float16)


def bits(values) -> list:
    return np.asarray(values, dtype=np.float16).view(np.uint16).tolist()


@pytest.mark.parametrize("n", [2, 768, 4096])
@pytest.mark.parametrize("value", [256.0, 4.0, 65504.0, 2.0**-24])
def test_squares_do_not_overflow_or_vanish(n, value):
    assert bits(normalize(half([value] * n), mode="rmsnorm", eps=0.0).y) == bits([[1.0] * n])


@pytest.mark.parametrize(
    ("mode", "row", "want"),
    [
        ("rmsnorm", [256, 256], [1, 1]),
        ("rmsnorm", [256, -256], [1, -1]),
        ("layernorm", [256, -256], [1, -1]),
        ("layernorm", [0, 2], [-1, 1]),
        ("layernorm", [0, 4], [-1, 1]),
        ("layernorm", [-1, 5], [-1, 1]),
        ("layernorm", [496.4, -496.4] * 8, [1, -1] * 8),
        ("layernorm", [2048, 2050] * 384, [-1, 1] * 384),
        ("layernorm", [60000, 60032] * 384, [-1, 1] * 384),
        ("layernorm", [1024, 1025, 1026] * 256, [-1.2247448714, 0, 1.2247448714] * 256),
        ("layernorm", [-2, 2, -2, 2, -2, 2], [-1, 1] * 3),
        ("layernorm", [-2, 0, 2, -2, 0, 2], [-1.2247448714, 0, 1.2247448714] * 2),
        ("layernorm", [2] * 6, [0] * 6),
        (
            "layernorm",
            [0, 1, 2, 3, 4, 5],
            [-1.4638501094, -0.8783100657, -0.2927700219, 0.2927700219, 0.8783100657, 1.4638501094],
        ),
    ],
    ids=str,
)
def test_known_rows(mode, row, want):
    assert bits(normalize(half(row), mode=mode, eps=0.0).y[0]) == bits(want)


@pytest.mark.parametrize(
    ("row", "variance"),
    [
        ([2048, 2050] * 384, 1.0),
        ([1024, 1025, 1026] * 256, 2 / 3),
        ([4096] * 767 + [4100], 16 / 768 * 767 / 768),
        ([60000, 60032] * 384, 256.0),
        ([496.4, -496.4] * 8, float(np.float16(496.4)) ** 2),
        (list(range(1000, 1768)), (768**2 - 1) / 12),
    ],
    ids=["2048", "1024", "outlier", "60000", "496.4", "range"],
)
def test_the_variance_does_not_cancel(row, variance):
    got = normalize(half(row), eps=0.0)
    assert got.isd[0] ** -2 == pytest.approx(variance, rel=2.0**-15)
    assert got.flags.tolist() == [0]


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_every_length_divides_by_itself(n, mode):
    x = np.random.default_rng(n).normal(3, 1, (3, n)).astype(np.float16)
    got, exact = normalize(x, mode=mode), reference(x, mode=mode)
    assert got.isd == pytest.approx(exact.isd, rel=2e-5)
    assert got.mean == pytest.approx(exact.mean, rel=1e-9)
    assert (normalize(x[1], mode=mode).y == got.y[1]).all()


@given(
    st.integers(1, 5000),
    st.integers(0, 0x7BFF),
    st.sampled_from([0.0, 1e-12, 1e-8, 1e-6, 1e-5, 1.0]),
    st.booleans(),
)
def test_equal_elements_give_exactly_beta(n, pattern, eps, negative):
    x = np.full((1, n), pattern | negative << 15, dtype=np.uint16)
    random = np.random.default_rng(n)
    gamma, beta = random.standard_normal((2, n)).astype(np.float16)
    beta[0] = -0.0
    got = normalize(x, gamma, beta, configuration=LONG, eps=eps)
    assert (got.y == beta).all()
    assert not np.signbit(got.y[0, 0])
    assert got.flags.tolist() == [RowFlag.ZERO_VARIANCE if eps == 0 else 0]
    assert normalize(x, configuration=LONG, eps=eps).bits.max() == 0


@pytest.mark.parametrize("eps", [1e-12, 1e-8, 1e-6, 1e-5, 0.0])
@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_zeros_are_zeros(mode, eps):
    got = normalize(np.zeros((2, 10), np.float16), mode=mode, eps=eps)
    assert got.bits.max() == 0
    assert (got.flags == (0 if eps else RowFlag.ZERO_VARIANCE)).all()
    assert got.isd == pytest.approx(eps**-0.5 if eps else 0, rel=1e-5)


def test_one_element_is_its_beta():
    assert normalize(half([60000]), half(123)[:1], half(3)[:1]).y.tolist() == [[3.0]]


@pytest.mark.parametrize("eps", [0.1, 1e-3, 1e-6])
def test_eps_counts(eps):
    x = np.random.default_rng(0).normal(0, 0.03, (2, 60)).astype(np.float16)
    assert normalize(x, eps=eps).isd == pytest.approx(reference(x, eps=eps).isd, rel=2e-5)


@given(st.integers(0, 2**32 - 1), st.integers(-3, 5), st.sampled_from(["layernorm", "rmsnorm"]))
def test_scaling_by_a_power_of_two_changes_nothing(seed, shift, mode):
    random = np.random.default_rng(seed)
    x = (random.normal(random.normal(0, 5), 1, (3, 50)) * 16).astype(np.float16)
    x[np.abs(x) < 2.0**-9] = 1
    scaled = x * np.float16(2.0**shift)
    one, other = normalize(x, mode=mode, eps=0.0), normalize(scaled, mode=mode, eps=0.0)
    assert (one.bits == other.bits).all()
    assert (one.isd == other.isd * 2.0**shift).all()


@given(st.integers(0, 2**32 - 1))
def test_rows_do_not_depend_on_their_neighbours_or_order(seed):
    random = np.random.default_rng(seed)
    x = (random.standard_normal((5, 33)) * 10.0 ** random.integers(-5, 4, (5, 1))).astype(
        np.float16
    )
    whole = normalize(x)
    for row, y in zip(x, whole.y, strict=True):
        assert bits(normalize(row).y) == bits(y)
    order = random.permutation(33)
    assert (normalize(x[:, order]).bits == whole.bits[:, order]).all()


def test_blocks_of_rows_do_not_show():
    x = np.random.default_rng(1).standard_normal((70, 769)).astype(np.float16)
    x[41, 5] = np.nan
    whole, parts = normalize(x), [normalize(row) for row in x]
    assert (whole.bits == [part.bits for part in parts]).all()
    assert whole.flags.tolist() == [part.flags[0] for part in parts]


@pytest.mark.parametrize("at", [0, 3, 9])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_a_non_finite_element_makes_its_row_nan_and_no_other(mode, bad, at):
    x = half(range(10), range(10), range(10))
    x[1, at] = bad
    got = normalize(x, mode=mode)
    assert got.flags.tolist() == [0, RowFlag.NONFINITE, 0]
    assert (got.bits[1] == 0x7E00).all()
    assert np.isnan([got.mean[1], got.isd[1]]).all()
    assert (got.y[[0, 2]] == normalize(half(range(10)), mode=mode).y).all()


def test_a_non_finite_element_that_is_not_sampled_is_alone():
    build = DEFAULT.with_(subsampling=True)
    x = half(range(16))
    options = {"configuration": build, "n_sub": 4, "first": 1, "stride": 2}
    want = normalize(x, **options).y
    x[0, [0, 9]] = np.inf, np.nan
    got = normalize(x, **options)
    assert got.flags.tolist() == [0]
    assert (got.bits[0, [0, 9]] == 0x7E00).all()
    others = [i for i in range(16) if i not in (0, 9)]
    assert (got.y[0, others] == want[0, others]).all()


def test_the_configurations_n_sub_is_the_default():
    build = DEFAULT.with_(subsampling=True, n_sub=4)
    x = np.random.default_rng(2).standard_normal((2, 16)).astype(np.float16)
    assert (normalize(x, configuration=build).isd == normalize(x[:, :4]).isd).all()
    assert (normalize(x, configuration=build, n_sub=16).isd == normalize(x).isd).all()


def test_a_subsampled_constant_part_gives_zero_for_the_whole_row():
    build = DEFAULT.with_(subsampling=True)
    x = half([3, 3, 3, 3, 1000, -7])
    got = normalize(x, None, np.full(6, -2, np.float16), configuration=build, eps=0.0, n_sub=4)
    assert got.y.tolist() == [[-2.0] * 6]
    assert got.flags.tolist() == [RowFlag.ZERO_VARIANCE]


def test_an_overflow_is_infinite_and_flagged():
    x = half([1, -1, 0, 0], [1e-3, -1e-3, 0, 0])
    gamma = half(60000, 60000, 60000, 60000)
    got = normalize(x, gamma, eps=0.25)
    assert got.y[0].tolist() == [np.inf, -np.inf, 0, 0]
    assert got.flags.tolist() == [RowFlag.OVERFLOW, 0]


def test_non_finite_parameters_are_nan_where_they_are_used_and_no_overflow():
    x = half([1, 2, 3, 5], [9, 8, 1, 2])
    gamma, beta = half(1, np.inf, 1, 1), half(0, 0, np.nan, -np.inf)
    got = normalize(x, gamma, beta)
    assert (got.bits[:, 1:] == 0x7E00).all()
    assert np.isfinite(got.y[:, 0]).all()
    assert got.flags.tolist() == [0, 0]


def test_an_exact_zero_is_plus_zero_and_an_underflow_keeps_its_sign():
    x = half([-1, 0, 1])
    assert bits(normalize(x, half(1, -1, -1)).y[0])[1] == 0
    assert bits(normalize(x, half(0, 0, 0), half(-0.0, -0.0, 0.0)).y[0]) == [0, 0, 0]
    tiny = np.full(3, 2.0**-24, np.float16)
    small = half([-1, 1, 200])
    y = bits(normalize(small, tiny).y[0])
    assert y[:2] == [0x8001, 0x8001]
    assert bits(normalize(half([-0.25, 0.25, 200]), tiny, mode="rmsnorm").y[0])[:2] == [0x8000, 0]


def test_the_order_of_rounding_and_gamma_matters():
    """LlamaRMSNorm rounds x-hat first; about a quarter of the elements tell."""
    random = np.random.default_rng(5)
    x = random.standard_normal((40, 768)).astype(np.float16)
    gamma = random.uniform(0.5, 2, 768).astype(np.float16)
    options = {"configuration": LLAMA, "mode": "rmsnorm"}
    late = normalize(x, gamma, **options).bits
    early = normalize(x, gamma, cast_before_gamma=True, **options)
    assert 0.2 < (late != early.bits).mean() < 0.3
    # The same in two steps, but that x-hat is rounded twice: to 18 bits, then to FP16.
    stepwise = (normalize(x, **options).y.astype(np.float64) * gamma.astype(np.float64)).astype(
        "f2"
    )
    assert (stepwise == early.y).mean() > 0.99


def test_gemmas_gamma_is_an_offset_from_one():
    random = np.random.default_rng(6)
    x = random.standard_normal((4, 96)).astype(np.float16)
    offset = (random.standard_normal(96) * 0.1).astype(np.float32)
    offset[:3] = -1, 2.0**-24, -(2.0**-25)
    options = {"configuration": GEMMA, "mode": "rmsnorm"}
    got = normalize(x, offset, one_plus_gamma=True, **options)
    assert (got.bits == normalize(x, np.float32(1) + offset, **options).bits).all()
    assert not (got.bits == normalize(x, offset, **options).bits).all()
    assert (got.bits[:, 0] == 0).all()


def test_sixty_four_norms_in_a_row_do_not_drift():
    random = np.random.default_rng(7)
    x = start = random.standard_normal((4, 768)).astype(np.float16)
    exact = start.astype(np.float64)
    for _ in range(64):
        x = normalize(x, mode="rmsnorm", eps=0.0).y
        exact = exact / np.sqrt(np.square(exact).mean(axis=1, keepdims=True))
    assert np.abs(x / exact - 1).max() < 2.0**-9


@pytest.mark.parametrize("accumulator", ["exact", "window"])
def test_patterns_and_numbers_are_the_same_input(accumulator):
    build = DEFAULT.with_(accumulator=accumulator)
    x = np.random.default_rng(8).standard_normal((3, 20)).astype(np.float16)
    one, other = (normalize(form, configuration=build) for form in (x, x.view(np.uint16)))
    assert (one.bits == other.bits).all()
    assert one.y.shape == (3, 20)
    assert normalize(x[0]).y.shape == (20,)
    assert (normalize(x[:, ::2]).bits == normalize(x[:, ::2].copy()).bits).all()


X = half(range(8))
G = half(*range(8))


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (X.astype(np.float32), {}, "x has type float32"),
        (X[None], {}, r"x has shape \(1, 1, 8\)"),
        (X[:, :0], {}, r"x has shape \(1, 0\)"),
        (X, {"gamma": G[:7]}, r"gamma has type float16 and shape \(7,\)"),
        (X, {"beta": G.astype(np.float64)}, "beta has type float64"),
        (X, {"gamma": G.astype(np.float32) + np.float32(1e-5)}, "gamma has 9.99.*e-06"),
        (X, {"beta": np.full(8, 70000, np.float32)}, "beta has 70000"),
        (X, {"mode": "batchnorm"}, "mode"),
        (X, {"eps": -1e-5}, "eps"),
        (X, {"eps": float("nan")}, "eps"),
        (X, {"n_sub": 4}, "subsampling = false"),
        (X, {"n_sub": 9}, "beyond the last element"),
        (X, {"stride": 3}, "stride = 3"),
        (X, {"cast_before_gamma": True}, "cast_before_gamma"),
        (X, {"gamma": G, "one_plus_gamma": True}, "one_plus_gamma"),
        (np.zeros((1, 4097), np.float16), {}, "max_n = 4096"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(x, options, message):
    with pytest.raises(ConfigurationError, match=message):
        normalize(x, **options)
