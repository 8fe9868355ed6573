# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Accuracy against float64: within the bound that docs/accuracy.md derives, on friendly, hostile and real rows."""

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from haan.config import Configuration
from haan.golden import absolute_error, error_bound, normalize, reference, ulp_error
from haan.golden.bounds import error_terms
from haan.golden.fp16 import round_fp16
from haan.golden.normalization import normalized
from haan.golden.pipeline import row_constants
from haan.golden.reference import ulp
from haan.golden.significand import add, odd
from haan.golden.statistics import sums
from haan.layer import LayerSettings

DEFAULT = Configuration()
FP32 = DEFAULT.with_(parameter_format="fp32", one_plus_gamma=True)
DATA = Path(__file__).parent / "data"
DOCUMENT = Path(__file__).parents[1] / "docs" / "accuracy.md"


def made(kind: str) -> np.ndarray:
    """Rows of one kind, float16."""
    random = np.random.default_rng(len(kind))
    normal = random.standard_normal((24, 768))
    rows = {
        "normal": normal,
        "offset": normal + random.uniform(-50, 50, (24, 1)),
        "mean far beyond spread": 2.0**-9 * normal + random.integers(1, 4, (24, 1)),
        "large": normal * 8000,
        "massive outlier": np.where(np.arange(768) == 100, 30000, normal),
        "log-uniform": normal * 10.0 ** random.uniform(-6, 3, (24, 768)),
        "short": normal[:, :5],
        "two": normal[:, :2] + 100,
        "subnormal": random.integers(-30, 30, (24, 300)) * 2.0**-24,
        "units": random.integers(-1, 2, (24, 300)) * 2.0**-24,
    }[kind]
    return np.clip(rows, -65504, 65504).astype(np.float16)


def one_ulp() -> np.ndarray:
    """4096 equal elements but for one that is its neighbour."""
    rows = np.repeat(np.float16([1, 1.5, 1000, 65472, 2.0**-24])[:, None], 4096, axis=1)
    rows[:, 7] = np.nextafter(rows[:, 7], np.float16(np.inf))
    return rows


KINDS = [
    "normal",
    "offset",
    "mean far beyond spread",
    "large",
    "massive outlier",
    "log-uniform",
    "short",
    "two",
    "subnormal",
    "units",
]
ROWS = {kind: made(kind) for kind in KINDS} | {
    "one ulp": one_ulp(),
    "known": np.float16([[2048, 2050] * 384, [1024, 1025, 1026] * 256, [60000, 60032] * 384]),
    "known outlier": np.float16([[4096] * 767 + [4100]]),
}


def excess(x, gamma, beta, configuration=DEFAULT, **options) -> float:
    """Largest error in units of what is allowed; at most 1."""
    got = normalize(x, gamma, beta, configuration=configuration, **options)
    options.pop("cast_before_gamma", None)
    exact = reference(x, gamma, beta, **options)
    assert np.isfinite(got.y).all()
    settings = LayerSettings(
        n=x.shape[1],
        affine="+".join(
            name for name, given in (("gamma", gamma), ("beta", beta)) if given is not None
        )
        or "none",
        **{key: value for key, value in options.items() if key != "one_plus_gamma"},
    )
    factor = 1.0 if gamma is None else gamma.astype(np.float64)
    if options.get("one_plus_gamma"):
        factor = factor + 1
    absolute = absolute_error(configuration, settings, factor, exact.isd[:, None])
    unit = ulp(np.maximum(abs(exact.y), abs(exact.gamma_xhat)))
    allowed = error_bound(configuration, settings) + absolute / unit
    return float((ulp_error(got.y, exact.y, exact.gamma_xhat) / allowed).max())


def parameters(n: int, wide: bool) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(n)
    kind = np.float32 if wide else np.float16
    gamma = random.choice([-1, 1], n) * 2.0 ** random.uniform(-5, 3, n)
    return gamma.astype(kind), (
        random.standard_normal(n) * 10.0 ** random.uniform(-5, 1, n)
    ).astype(kind)


@pytest.mark.parametrize("build", [DEFAULT, FP32], ids=["fp16", "fp32"])
@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("kind", ROWS)
def test_errors_stay_within_the_derived_bound(kind, mode, build):
    x = ROWS[kind]
    gamma, beta = parameters(x.shape[1], build is FP32)
    # With eps this small next to them, elements of 2^-24 keep their variance.
    for eps in (1e-5, 0.0):
        for affine in ((None, None), (gamma, None), (gamma, beta), (None, beta)):
            assert excess(x, *affine, build, mode=mode, eps=eps) <= 1


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize(
    "seed",
    [
        {"seed": "classic"},
        {"seed": "tuned"},
        {"segments": 16, "segment_slopes": False},
        {"segments": 32},
        {"segments": 64, "segment_slopes": False},
    ],
    ids=str,
)
def test_other_seeds_stay_within_their_bounds(seed, steps):
    build = DEFAULT.with_(**seed, newton_steps=steps)
    x = ROWS["normal"] * np.float16(2.0) ** np.linspace(-4, 4, 24).astype(np.float16)[:, None]
    assert excess(x, *parameters(768, False), build) <= 1


@pytest.mark.parametrize("kind", ["normal", "massive outlier", "log-uniform"])
def test_the_window_accumulator_stays_within_its_bound(kind):
    build = DEFAULT.with_(accumulator="window")
    x = ROWS[kind]
    gamma, beta = parameters(x.shape[1], False)
    got, exact = normalize(x, gamma, beta, configuration=build), reference(x, gamma, beta)
    bound = error_bound(build, variance=float((1 / exact.isd**2).min()))
    settings = LayerSettings(n=x.shape[1])
    absolute = absolute_error(build, settings, gamma, 1.0) / ulp(exact.gamma_xhat)
    assert (ulp_error(got.y, exact.y, exact.gamma_xhat) <= bound + absolute).all()


@pytest.mark.parametrize(("first", "stride", "n_sub"), [(0, 1, 96), (3, 4, 128), (0, 8, 96)])
@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_subsampled_rows_are_judged_by_their_own_statistics(mode, first, stride, n_sub):
    build = DEFAULT.with_(subsampling=True)
    options = {"mode": mode, "first": first, "stride": stride, "n_sub": n_sub}
    for kind in ("normal", "massive outlier", "mean far beyond spread", "large"):
        # A small gamma, because an outlier that was not sampled is thousands of deviations off.
        gamma = np.full(768, 2.0**-9 * 1.999, dtype=np.float16)
        assert excess(ROWS[kind], gamma, None, build, **options) <= 1


def test_rounding_before_gamma_stays_within_its_bound():
    build = DEFAULT.with_(cast_before_gamma=True)
    gamma, beta = parameters(768, False)
    x = ROWS["normal"]
    settings = LayerSettings(n=768, mode="rmsnorm", affine="gamma", cast_before_gamma=True)
    got = normalize(x, gamma, configuration=build, mode="rmsnorm", cast_before_gamma=True)
    exact = reference(x, gamma, mode="rmsnorm")
    error = ulp_error(got.y, exact.y, exact.gamma_xhat)
    absolute = absolute_error(build, settings, gamma, 1.0) / ulp(exact.y)
    assert (error <= error_bound(build, settings) + absolute).all()
    assert error.max() > 1.2


@pytest.mark.parametrize("one_plus", [False, True])
def test_real_rmsnorm_rows(one_plus):
    stored = np.load(DATA / "smollm2_rmsnorm_selected.npz")
    for k in stored["norm_index"]:
        x, gamma = stored[f"n{k}_x"], stored[f"n{k}_gamma"]
        gamma = gamma - np.float32(1) if one_plus else gamma
        eps = float(stored["eps"])
        options = {"mode": "rmsnorm", "eps": eps, "one_plus_gamma": one_plus}
        assert excess(x, gamma, None, FP32, **options) <= 1
        isd = normalize(x, mode="rmsnorm", eps=eps).isd
        assert np.allclose(isd, stored[f"n{k}_isd"], rtol=1e-5, atol=0)


def test_real_layernorm_rows():
    stored = np.load(DATA / "minilm_layernorm.npz")
    norms = [name.removesuffix("_x") for name in stored.files if name.endswith("_x")]
    assert len(norms) == 13
    for norm in norms:
        x, gamma, beta = (stored[f"{norm}_{part}"] for part in ("x", "gamma", "beta"))
        eps = float(stored[f"{norm}_eps"])
        assert excess(x, gamma, beta, FP32, eps=eps) <= 1
        half = gamma.astype(np.float16), beta.astype(np.float16)
        assert excess(x, *half, eps=eps) <= 1
        got = normalize(x, eps=eps)
        assert np.allclose(got.isd, stored[f"{norm}_isd"], rtol=1e-5, atol=0)
        assert np.allclose(got.mean, stored[f"{norm}_mean"], rtol=1e-7, atol=1e-10)


def test_a_hostile_search_comes_near_the_bound_but_not_over_it():
    """The elements of 32,768 whose x-hat is farthest off; each with every gamma, and a beta that puts the sum beside a tie."""
    random = np.random.default_rng(2)
    x = random.standard_normal((2048, 16)) * 2.0 ** random.integers(-3, 4, (2048, 1))
    x = (x + random.standard_normal((2048, 1)) * 2.0 ** random.integers(-4, 6, (2048, 1))).astype(
        np.float16
    )
    bits, settings = x.view(np.uint16), LayerSettings(n=16)
    s1, s2, _ = sums(bits, None, DEFAULT)
    row, *_ = row_constants(s1, s2, settings, DEFAULT)
    xhat, exact = np.abs(normalized(bits, row, DEFAULT, False)), np.abs(reference(x).y)
    # Near zero it is the window that counts.
    far = np.where(exact > 2.0**-6, xhat / np.maximum(exact, 2.0**-6) - 1, 0)
    chosen = np.argsort(-np.abs(far), axis=None)[:300]
    gamma = np.arange(1024, 2048) / 1024
    product = odd(xhat.flat[chosen][:, None] * gamma, 18)
    scaled = exact.flat[chosen][:, None] * gamma
    worst = 0.0
    for away in range(-6, 7):
        tie = (np.floor(product / ulp(scaled)) + away + 0.5) * ulp(scaled)
        nearest = (tie - product).astype(np.float16)
        for other in (-np.inf, None, np.inf):
            beta = nearest if other is None else np.nextafter(nearest, np.float16(other))
            y = round_fp16(add(product, beta.astype(np.float64)))[0].view(np.float16)
            worst = max(worst, float(ulp_error(y, scaled + beta, scaled).max()))
    assert 0.535 < worst <= error_bound(DEFAULT)


def test_the_default_configurations_bound():
    assert error_bound(DEFAULT) <= 0.55
    assert error_bound(DEFAULT.with_(parameter_format="fp32")) <= 0.55


def table(columns: int) -> set[tuple[str, ...]]:
    """Rows of docs/accuracy.md's tables of so many columns."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = [tuple(re.split(r" \| ", line.strip("| "))) for line in lines if line.startswith("| ")]
    return {row for row in rows if len(row) == columns}


def up(value: float, digits: int) -> str:
    """As the document rounds a bound: upwards."""
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f}"


BUILDS = DEFAULT, DEFAULT.with_(parameter_format="fp32")


def test_the_documented_terms_are_all_that_there_are():
    fp16, fp32 = (error_terms(build) for build in BUILDS)
    rows = {(name, *(up(part, 5) for part in (*fp16[name], *fp32[name]))) for name in fp16}
    assert rows == {row for row in table(5) if row[0] != "term" and "---" not in row[0]}


@pytest.mark.parametrize("seed", ["classic", "tuned", "16", "32", "64"])
def test_the_documented_bounds_by_seed(seed):
    for slopes in (False, True) if seed.isdigit() else (True,):
        how = {"segments": int(seed)} if seed.isdigit() else {"seed": seed}
        name = f"{seed} segments{', slopes' if slopes else ''}" if seed.isdigit() else seed
        for steps in range(4):
            builds = [b.with_(**how, segment_slopes=slopes, newton_steps=steps) for b in BUILDS]
            bounds = [up(error_bound(build), 4) for build in builds]
            assert [name, str(steps), *bounds] in [[*row[:2], *row[5:]] for row in table(7)]


def test_the_documented_bounds_by_what_a_row_asks_for():
    for mode in ("layernorm", "rmsnorm"):
        for affine in ("none", "gamma", "beta", "gamma+beta"):
            settings = LayerSettings(n=1, mode=mode, affine=affine)
            bounds = (up(error_bound(build, settings), 4) for build in BUILDS)
            assert (mode, affine, *bounds) in table(4)


def test_the_reference_is_good_to_twelve_digits():
    """Against fractions, where the mean is far larger than the spread."""
    x = np.float16([[60000] * 5 + [60032], [4096] * 5 + [4100], [0.1, 0.2, 0.3, -0.1, 7, 9]])
    got = reference(x, eps=0.0)
    for row, y, mean, isd in zip(x.tolist(), got.y.tolist(), got.mean, got.isd, strict=True):
        exact = [Fraction(z) for z in row]
        middle = sum(exact) / 6
        variance = sum((z - middle) ** 2 for z in exact) / 6
        assert abs(Fraction(mean) - middle) <= abs(middle) / 10**15
        assert abs(Fraction(isd) ** 2 * variance - 1) < Fraction(1, 10**13)
        for z, value in zip(exact, y, strict=True):
            want = (z - middle) * Fraction(isd)
            assert abs(Fraction(value) - want) <= abs(want) / 10**13


@pytest.mark.parametrize(
    ("y", "y64", "gamma_xhat", "error"),
    [
        (1.0, 1.0 + 2.0**-11, 1.0, 0.5),
        (1.0, 1.0 - 2.0**-11, 0.5, 1.0),
        (2.0**-12, 0.0, 1.0, 0.25),
        (2.0**-24, 0.0, 0.0, 1.0),
        (np.inf, 65520.0, 65520.0, 0.5),
        (np.inf, 1e9, 1e9, 0.0),
        (65504.0, 65519.0, 1.0, 15 / 32),
        (-np.inf, -65536.0, 1.0, 0.0),
    ],
)
def test_errors_in_units_of_the_last_place(y, y64, gamma_xhat, error):
    got = ulp_error(np.float16([y]), np.array([y64]), np.array([gamma_xhat]))
    assert got.tolist() == [error]
