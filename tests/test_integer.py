# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""INT8 alone in the hardware: rows through the core and through `haan_axi`, compared with the golden model in elements, flags and
cycles; real activations, compared with float64; the rate."""

import numpy as np
import pytest

from haan.config import Configuration
from haan.flags import RowFlag
from haan.golden import lsb_error, reference
from haan.latency import row_products
from haan.layer import LayerSettings, float32_bits
from haan.scaling import divided, quantized
from haan.sim import ParameterVector, Row, simulate, stimulus

from .test_golden_int8 import real_rows
from .test_int8 import BAD_SCALES, any_layer, any_row, check, choose, make_parameters
from .test_rows import STALLS, pairwise

PLAIN = Configuration().with_(
    formats=["int8"], p_n=4, p_d=4, max_n=256, layers=5, slots=3, token_slots=4
)
BUILD = {
    "lanes": [(4, 4), (8, 2), (1, 1), (16, 8)],
    "affine": ["gamma+beta", "gamma"],
    "parameter_format": ["fp16", "fp32"],
    "norms": [("layernorm", "rmsnorm"), ("rmsnorm",), ("layernorm",)],
    "max_n": [100, 16, 1000],
    "newton_steps": [1, 0, 2],
    "subsampling": [False, True],
    "pipeline": ["balanced", "short"],
    "isd": [(1, True), (16, True), (16, False), (37, False)],
}
BUILDS = [
    PLAIN.with_(
        **{key: level for key, level in case.items() if key not in ("lanes", "isd")},
        p_n=case["lanes"][0],
        p_d=case["lanes"][1],
        isd_interval=case["isd"][0],
        isd_multipliers=case["isd"][1],
    )
    for case in pairwise(BUILD)
]
QUICK = 4
"""So many of them have most of the pairs."""


def name(build):
    how, what = build.how, build.what
    isd = f"every-{how.isd_interval}" + "-added" * (not how.isd_multipliers)
    return f"{how.p_n}x{how.p_d}-{'-'.join(what.norms)}-{what.affine}-{isd}"


BAD_RECORDS = [
    *({"x_scale": float32_bits(scale)} for scale in BAD_SCALES),
    *({"input_format": number} for number in (0, 2, 3)),
    *({"output_format": number} for number in (0, 2, 3)),
    {"gamma": 0},
    {"valid": 0},
    {"n": 0},
    {"eps": float32_bits(-1.0)},
]


def any_rows(build, random, count):
    layers = [any_layer(build, random, ("int8", "int8")) for _ in range(12)]
    rows = []
    for _ in range(count):
        number = int(random.integers(len(layers)))
        layer = number % build.what.layers
        if random.random() < 0.04:
            fields = choose(random, BAD_RECORDS)
            x = stimulus.integers("any", layers[number].n, random)
            rows.append(Row(x, layers[number], layer, fields=fields))
        else:
            rows.append(any_row(build, layers[number], layer, random))
    return rows


def check_any(build, seed, count, /, simulation=None, **options):
    random = np.random.default_rng(seed)
    parameters = make_parameters(build, random)
    rows = any_rows(build, random, count)
    how = {} if simulation is None else {"simulation": simulation}
    return rows, check(build, rows, parameters, **how, **options).rows


@pytest.mark.parametrize(
    "build",
    [*BUILDS[:QUICK], *(pytest.param(build, marks=pytest.mark.slow) for build in BUILDS[QUICK:])],
    ids=name,
)
def test_rows(build):
    """Whole rows and broken ones follow each other."""
    _, results = check_any(build, BUILDS.index(build), 400, **STALLS["random"])
    seen = {flag for row in results for flag in RowFlag if flag in row.flags}
    assert seen >= {RowFlag.SHORT, RowFlag.LONG, RowFlag.SETTINGS, RowFlag.OVERFLOW}
    assert RowFlag.NONFINITE not in seen


@pytest.mark.slow
@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("build", BUILDS, ids=name)
def test_many_rows(build, stalls):
    for seed in range(100, 104):
        check_any(build, seed, 1000, seed=seed, **STALLS[stalls])


@pytest.mark.icarus
def test_rows_on_icarus():
    build = PLAIN.with_(isd_interval=16, isd_multipliers=False, subsampling=True)
    check_any(build, 50, 60, simulator="icarus", **STALLS["random"])


@pytest.mark.parametrize("stalls", ["flowing", "random"])
def test_a_narrow_bus(stalls):
    """Through the top, layers and parameters over AXI4-Lite."""
    build = PLAIN.with_(p_n=8, p_d=4, bus_bytes=2, max_n=60)
    random = np.random.default_rng(11)
    layers = [any_layer(build, random, ("int8", "int8")) for _ in range(4)]
    rows = [
        any_row(build, layers[number], number, random)
        for number in random.integers(4, size=200).tolist()
    ]
    check(build, rows, make_parameters(build, random), simulate, **STALLS[stalls])


@pytest.mark.parametrize("n", [64, 33, 4])
def test_rows_flow_without_a_bubble(n):
    random = np.random.default_rng(9)
    layer = LayerSettings(n=n, input_format="int8", output_format="int8", affine="gamma+beta")
    rows = [Row(stimulus.integers("any", n, random), layer) for _ in range(60)]
    results = check(PLAIN, rows, make_parameters(PLAIN, random)).rows
    last = np.array([row.out_cycles[-1] for row in results])
    assert set(np.diff(last)) == {-(-n // 4)}
    assert all(len(row.in_cycles) == -(-n // 4) for row in results)


def test_real_activations_are_at_most_one_lsb_off():
    """Against float64: each row has its own scale, each norm one of its output, the largest result being 127."""
    norms = list(real_rows())
    build = Configuration().with_(formats=["int8"], max_n=576, slots=len(norms))
    rows, parameters, exact = [], [], []
    for slot, (mode, x, gamma, beta, eps) in enumerate(norms):
        q, scale = quantized(x)
        options = {"mode": mode, "eps": eps, "x_scale": scale}
        largest = np.abs(reference(q, gamma, beta, **options).y).max()
        y_scale = float(np.float32(largest / 127))
        exact += list(reference(q, gamma, beta, y_scale=y_scale, **options).y)
        layer = LayerSettings(
            n=q.shape[1],
            mode=mode,
            eps=eps,
            affine="gamma" if beta is None else "gamma+beta",
            slot=slot,
            input_format="int8",
            output_format="int8",
            y_scale=y_scale,
        )
        rows += [Row(row, layer, x_scale=s) for row, s in zip(q, scale.tolist(), strict=True)]
        written = divided(gamma, beta, layer.n, y_scale, build)
        parameters += [
            ParameterVector(kind, vector, slot)
            for kind, vector in zip(("gamma", "beta"), written, strict=True)
            if vector is not None
        ]
    results = check(build, rows, parameters).rows
    errors = [
        lsb_error(got.bits.view(np.int8), want) for got, want in zip(results, exact, strict=True)
    ]
    assert max(error.max() for error in errors) <= 1
    assert np.mean(np.concatenate(errors) == 0) >= 0.99
    assert sum(map(len, errors)) > 100_000


def test_ties_go_to_even_and_what_does_not_fit_saturates():
    """x-hat is -1 and 1: 127.5 is 128, which INT8 hasn't, -128.5 is -128."""
    cases = [(126.5, [126, 127], True), (126.375, [125, 127], False), (-127.5, [-128, -126], False)]
    parameters, rows = [], []
    for slot, (beta, _, _) in enumerate(cases):
        layer = LayerSettings(
            n=2,
            eps=0.0,
            affine="gamma+beta",
            slot=slot,
            input_format="int8",
            output_format="int8",
            x_scale=1.0,
        )
        parameters += [
            ParameterVector(kind, np.full(2, value, np.float16), slot)
            for kind, value in (("gamma", 1.0), ("beta", beta))
        ]
        rows.append(Row(np.array([-1, 1], np.int8), layer, layer=slot))
    results = check(PLAIN, rows, parameters).rows
    for row, (_, y, saturated) in zip(results, cases, strict=True):
        assert row.bits.view(np.int8).tolist() == y
        assert row.flags == (RowFlag.OVERFLOW if saturated else 0)


def test_products_without_multipliers_need_none():
    """The path from the sums to the ISD: nothing for a multiplier to do."""
    build = PLAIN.with_(isd_interval=16, isd_multipliers=False)
    assert build.how.products.operand_widths(24, 24) == []
    assert all(not build.how.products.operand_widths(*pair) for pair in row_products(build))
