# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Whole rows through the core, compared with the golden model bit by bit: elements and flags, on every kind of build and of row.

Factors of the build and of the row are combined so that every pair of levels occurs. Lanes alone are dealt out in turn: no result
depends on them, and each build takes a compiler half a minute.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, cycle, product
from typing import Any

import numpy as np
import pytest
from allpairspy import AllPairs

from haan.config import Configuration
from haan.flags import SKIPPING, RowFlag
from haan.layer import LayerSettings
from haan.sim import ParameterVector, Row, SimulationResult, StallPattern, simulate_core, stimulus
from haan.sim.verdict import compare

Case = dict[str, Any]


def pairwise(
    factors: Mapping[str, Sequence[Any]], possible: Callable[[Case], bool] = lambda case: True
) -> list[Case]:
    """Cases in which every pair of levels of two factors occurs that any possible case has. `possible` judges incomplete cases
    too: those of the first factors. The same cases every time."""
    names = list(factors)

    def named(levels: Sequence[Any]) -> Case:
        return dict(zip(names, levels, strict=False))

    found = AllPairs(list(factors.values()), filter_func=lambda levels: possible(named(levels)))
    cases = [named(levels) for levels in found]
    # It gives up when the next case has nothing new, though one behind it might.
    for a, b in combinations(names, 2):
        for pair in ({a: x, b: y} for x, y in product(factors[a], factors[b])):
            if not any(case | pair == case for case in cases):
                changed = (case | pair for case in cases)
                cases += [case for case in changed if possible(case)][:1]
    return cases


BUILD = {
    "newton_steps": [1, 0, 2, 3],
    "parameters": ["gamma+beta fp16", "gamma+beta fp32 one_plus", "gamma fp32", "none"],
    "max_n": [769, 4096, 40],
    "norms": [("layernorm", "rmsnorm"), ("layernorm",), ("rmsnorm",)],
    "seed": ["segmented", "tuned", "classic"],
    "segments": [64, 32, 16],
    "isd_interval": [1, 16, 64],
    "segment_slopes": [True, False],
    "accumulator": ["exact", "window"],
    "pipeline": ["balanced", "short"],
    "subsampling": [False, True],
    "cast_before_gamma": [False, True],
    "anchors": [0, 1, 4],
}
LANES = [(4, 4), (16, 2), (2, 1), (8, 8), (1, 1), (32, 8), (4, 2)]
"""p_n, p_d"""


def build_possible(case: Case) -> bool:
    return not (case.get("cast_before_gamma") and case.get("parameters") == "none")


def configuration(case: Case, lanes: tuple[int, int]) -> Configuration:
    affine, *rest = case["parameters"].split()
    changes = {name: level for name, level in case.items() if name not in ("parameters", "anchors")}
    return Configuration().with_(
        **changes,
        skipping=case["anchors"] > 0,
        anchors=max(1, case["anchors"]),
        affine=affine,
        parameter_format="fp32" if "fp32" in rest else "fp16",
        one_plus_gamma="one_plus" in rest,
        p_n=lanes[0],
        p_d=lanes[1],
        layers=5,
        slots=3,
        token_slots=6,
    )


BUILDS = [
    configuration(case, lanes)
    for case, lanes in zip(pairwise(BUILD, build_possible), cycle(LANES), strict=False)
]
ON_ICARUS = [build for build in BUILDS if build.how.p_n <= 4][:4]

ROW = {
    "kind": [*stimulus.KINDS, "any bits"],
    "eps": [1e-5, 0.0, 1e-12, 1e-8, 1e-6, 0.1],
    "slot": [0, 1, 2],
    "affine": ["gamma+beta", "none", "gamma", "beta"],
    "samples": ["all", "first half", "every second", "few from the middle"],
    "mode": ["layernorm", "rmsnorm"],
    "cast_before_gamma": [False, True],
    "isd": ["computed", "kept", "predicted or held", "predicted or computed"],
}
SHORT_ROWS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 40]
LONG_ROWS = [*SHORT_ROWS, 513, 520, 576, 768, 769, 1152, 2560, 2880, 4096]
SPREADS = ["plain", "wide", "special"]
SLOT_LENGTHS = [65536, 768, 40]
"""Parameters that are written to each slot, at most: each takes a cycle."""
STALLS = {
    "flowing": {},
    "random": {
        "source_idle": StallPattern(probability=0.3, burst=3),
        "sink_stall": StallPattern(probability=0.3, burst=4),
    },
    "regular": {
        "source_idle": StallPattern(period=3, busy=1),
        "sink_stall": StallPattern(period=5, busy=2),
    },
}


def row_levels(build: Configuration) -> dict[str, list[Any]]:
    """The levels of the factors of a row that a build allows."""
    what = build.what
    affine = {
        "none": ["none"],
        "gamma": ["none", "gamma"],
        "gamma+beta": ROW["affine"],
    }[what.affine]
    return ROW | {
        "affine": affine,
        "mode": list(what.norms),
        "samples": ROW["samples"] if what.subsampling else ["all"],
        "cast_before_gamma": [False, True] if what.cast_before_gamma else [False],
        "isd": ROW["isd"] if what.skipping else ["computed"],
    }


def sampling(samples: str, n: int) -> dict[str, int]:
    if samples == "first half":
        return {"n_sub": -(-n // 2)}
    if samples == "every second":
        return {"n_sub": -(-n // 2), "stride": 2}
    if samples == "few from the middle":
        stride = 1 << (max(1, n // 8)).bit_length()
        first = n // 3
        return {"n_sub": 1 + (n - 1 - first) // stride, "first": first, "stride": stride}
    return {}


def skipping(isd: str, random: np.random.Generator) -> dict[str, Any]:
    if not isd.startswith("predicted"):
        return {"keep_isd": isd == "kept"}
    return {
        "skip": True,
        "anchor": int(random.integers(5)),
        "ratio": float(np.exp2(random.normal())),
        "guard_low": float(random.choice([0.0, 0.1])),
        "guard_high": float(random.choice([np.inf, 2.0])),
        "guard_action": "exact" if isd.endswith("computed") else "hold",
    }


def make_row(case: Case, n: int, random: np.random.Generator) -> Row:
    settings = LayerSettings(
        n=n,
        mode=case["mode"],
        eps=case["eps"],
        affine=case["affine"],
        slot=case["slot"],
        cast_before_gamma=case["cast_before_gamma"],
        **sampling(case["samples"], n),
        **skipping(case["isd"], random),
    )
    return Row(
        stimulus.row(case["kind"], n, random),
        settings,
        layer=int(random.integers(5)),
        token=int(random.integers(6)),
    )


def make_rows(
    build: Configuration, lengths: Sequence[int], random: np.random.Generator
) -> list[Row]:
    """Rows in which each pair of levels occurs, and each length; in an order without sense."""
    max_n = build.what.max_n
    lengths = [*(n for n in lengths if n < max_n), max_n]
    short = [n for n in lengths if n <= 40] or [max_n]
    levels = row_levels(build)
    rows = [make_row(case, int(random.choice(short)), random) for case in pairwise(levels)]
    for n in lengths:
        case = {name: random.choice(np.array(choices)).item() for name, choices in levels.items()}
        if n > SLOT_LENGTHS[case["slot"]]:
            case["slot"] = 0
        rows.append(make_row(case, n, random))
    return [rows[i] for i in random.permutation(len(rows))]


def make_parameters(build: Configuration, random: np.random.Generator) -> list[ParameterVector]:
    what = build.what
    kinds = ["gamma"] * what.gamma + ["beta"] * what.beta
    return [
        ParameterVector(
            kind,
            stimulus.parameters(spread, min(what.max_n, length), what.parameters.width, random),
            slot,
            one_plus=kind == "gamma" and what.one_plus_gamma and slot != 1,
        )
        for slot, (spread, length) in enumerate(zip(SPREADS, SLOT_LENGTHS, strict=True))
        for kind in kinds
    ]


def check(build: Configuration, rows: list[Row], seed: int, **options: Any) -> SimulationResult:
    parameters = make_parameters(build, np.random.default_rng(seed))
    result = simulate_core(build, rows, parameters, seed=seed, **options)
    verdict = compare(build, rows, parameters, result)
    assert verdict.exact, verdict.sentence
    return result


def name(build: Configuration) -> str:
    how, what = build.how, build.what
    return f"{how.p_n}x{how.p_d}-{what.affine}-{what.max_n}-{how.newton_steps}-{how.isd_interval}"


def test_pairs_of_levels_all_occur():
    factors = {"a": [1, 2, 3], "b": [1, 2, 3, 4], "c": [False, True], "d": [0, 1, 2]}
    cases = pairwise(factors, lambda case: not (case.get("a") == 2 and case.get("d") == 1))
    assert len(cases) <= 18
    for (a, levels_a), (b, levels_b) in combinations(factors.items(), 2):
        seen = {(case[a], case[b]) for case in cases}
        want = {(x, y) for x in levels_a for y in levels_b} - (
            {(2, 1)} if (a, b) == ("a", "d") else set()
        )
        assert seen == want


def test_builds_cover_all_lanes():
    assert {build.how.p_n for build in BUILDS} == {1, 2, 4, 8, 16, 32}
    assert len(ON_ICARUS) * 5 >= len(BUILDS) - 1
    assert {build.what.skipping for build in FAULTY} == {False, True}
    assert {build.what.skipping for build in ON_ICARUS} == {False, True}


@pytest.mark.parametrize("build", BUILDS, ids=name)
def test_rows(build):
    random = np.random.default_rng(BUILDS.index(build))
    rows = make_rows(build, LONG_ROWS, random)
    check(build, rows, 1, **STALLS["random"])


@pytest.mark.icarus
@pytest.mark.parametrize("build", ON_ICARUS, ids=name)
def test_rows_on_icarus(build):
    random = np.random.default_rng(50 + BUILDS.index(build))
    rows = make_rows(build, SHORT_ROWS, random)[:60]
    check(build, rows, 2, simulator="icarus", **STALLS["random"])


@pytest.mark.parametrize("stalls", STALLS)
def test_results_do_not_depend_on_stalls(stalls):
    build = BUILDS[0]
    rows = make_rows(build, SHORT_ROWS, np.random.default_rng(3))
    check(build, rows, 3, **STALLS[stalls])


def test_results_do_not_depend_on_lanes():
    """The same rows through builds that differ in lanes, and lanes alone."""
    builds = [BUILDS[0], BUILDS[0].with_(p_n=16, p_d=4), BUILDS[0].with_(p_n=1, p_d=1)]
    rows = make_rows(builds[0], [*SHORT_ROWS, 513, 768], np.random.default_rng(4))
    parameters = make_parameters(builds[0], np.random.default_rng(5))
    first, *others = (simulate_core(build, rows, parameters) for build in builds)
    for other in others:
        for a, b in zip(first.rows, other.rows, strict=True):
            assert np.array_equal(a.bits, b.bits)
            assert a.flags == b.flags


def test_reset_leaves_no_trace():
    build = BUILDS[0]
    rows = make_rows(build, SHORT_ROWS, np.random.default_rng(6))[:40]
    check(build, rows, 6)
    for cycle_of_reset in (1, 2, 50, 77, 120):
        check(build, rows, 6, reset_at=cycle_of_reset)


def faulty_rows(build: Configuration, random: np.random.Generator) -> list[Row]:
    """Every way to break a packet or a setting, each between right rows."""
    p_n, max_n = build.how.p_n, build.what.max_n
    full = (1 << 2 * p_n) - 1
    n = 3 * p_n + (1 if p_n > 1 else 0)
    half = {"n_sub": n // 2} if build.what.subsampling else {}
    plain = {"mode": build.what.norms[0], "eps": 1e-5, "affine": "none", "slot": 0}
    skips = [LayerSettings(n=n, **plain, skip=True)] * build.what.skipping
    finite = stimulus.finite(random, max_n)

    def elements(count: int, **special: int) -> np.ndarray:
        bits = finite[:count].copy()
        for at, value in special.items():
            bits[int(at.removeprefix("at"))] = value
        return bits

    bad: list[Row] = []
    for settings in (LayerSettings(n=n, **plain), LayerSettings(n=n, **plain, **half), *skips):
        for count in (0, 1, p_n - 1, p_n, n - 1, n + 1, n + p_n, 5 * p_n, 9 * p_n):
            if 0 <= count <= max_n:
                bad.append(Row(elements(count), settings))
        for beat in range(-(-n // p_n)):
            for keep in {0, 1, 2, full >> 1, full >> 2, full & ~4, full & ~1, full}:
                bad.append(Row(elements(n), settings, keep={beat: keep}))
            bad.append(Row(elements(n), settings, layer=1, ids={beat: 2}))
        for value in (0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFFFF):
            for at in {0, p_n - 1, n // 2, n - 1}:
                bad.append(Row(elements(n, **{f"at{at}": value}), settings))
    good = LayerSettings(n=n, **plain, keep_isd=build.what.skipping)
    for record in (
        {"valid": 0},
        {"n": 0},
        {"n": max_n + 1},
        {"eps": 0xB727C5AC},
        {"eps": 0x7F800000},
        {"eps": 0x7FC00000},
        {"eps": 0x80000000},
        {"eps": 0x80000001},
        {"eps": 0x00000001},
        {"n_sub": 0},
        {"first": 1},
        {"stride_log2": 1},
    ):
        if build.what.subsampling or not record.keys() & {"n_sub", "first", "stride_log2"}:
            bad += [Row(elements(count), good, fields=record) for count in (1, n, 9 * p_n)]
    for settings in skips:
        for record in (
            {"ratio": 0},
            {"keep_isd": 1},
            {"guard_low": 1 << 31},
            {"guard_high": -1 % (1 << 32)},
        ):
            bad.append(Row(elements(n), settings, fields=record))
    bad.append(Row(elements(n), None))
    rows = []
    for index in random.permutation(len(bad)):
        rows += [bad[index], Row(stimulus.finite(random, n), good)]
    return rows


FAULTY = [build for build in BUILDS if build.what.max_n >= 769 and build.how.p_n <= 8][:4]


@pytest.mark.parametrize("build", FAULTY, ids=name)
def test_faults(build):
    rows = faulty_rows(build, np.random.default_rng(7))
    flags = check(build, rows, 7, **STALLS["random"]).rows
    assert not any(row.flags & ~RowFlag.OVERFLOW for row in flags[1::2])
    seldom = RowFlag.OVERFLOW | RowFlag.ZERO_VARIANCE | RowFlag.GUARD | RowFlag.NO_ANCHOR
    never = RowFlag(0) if build.what.skipping else SKIPPING
    for flag in set(RowFlag) - set(seldom | never):
        assert any(row.flags & flag for row in flags)


@pytest.mark.icarus
def test_faults_on_icarus():
    build = FAULTY[0]
    check(build, faulty_rows(build, np.random.default_rng(8))[:120], 8, simulator="icarus")


HALF = np.float16


PUBLISHED = [
    ([0.0] * 10, {"eps": 1e-12}, [0.0] * 10),
    ([0.0] * 10, {"eps": 0.0}, [0.0] * 10),
    ([1234.0] * 256, {}, [0.0] * 256),
    ([65504.0] * 33, {"eps": 0.0}, [0.0] * 33),
    ([256.0, -256.0], {"eps": 0.0}, [1.0, -1.0]),
    ([256.0, 256.0], {"eps": 0.0, "mode": "rmsnorm"}, [1.0, 1.0]),
    ([256.0] * 768, {"eps": 0.0, "mode": "rmsnorm"}, [1.0] * 768),
    ([4.0] * 769, {"eps": 0.0, "mode": "rmsnorm"}, [1.0] * 769),
    ([2048.0, 2050.0] * 384, {"eps": 0.0}, [-1.0, 1.0] * 384),
    ([60000.0, 60032.0] * 384, {"eps": 0.0}, [-1.0, 1.0] * 384),
    ([0.0, 2.0], {"eps": 0.0}, [-1.0, 1.0]),
    ([0.0, 4.0], {"eps": 0.0}, [-1.0, 1.0]),
    ([-1.0, 5.0], {"eps": 0.0}, [-1.0, 1.0]),
    ([1000.0], {}, [0.0]),
    ([2.0**-24, 0.0], {"eps": 0.0}, [1.0, -1.0]),
    ([65504.0, -65504.0], {"eps": 0.0}, [1.0, -1.0]),
]
"""Rows with exact answers that others got wrong: elements, settings, result."""


def test_published_answers():
    rows = [
        Row(np.array(values, HALF), LayerSettings(n=len(values), **settings))
        for values, settings, _ in PUBLISHED
    ]
    results = simulate_core(BUILDS[0], rows).rows
    for (values, settings, want), got in zip(PUBLISHED, results, strict=True):
        assert got.bits.view(HALF).tolist() == want
        zero = settings.get("eps") == 0.0 and len(set(values)) == 1 and "mode" not in settings
        assert got.flags == (RowFlag.ZERO_VARIANCE if zero else 0)


def test_constant_rows_give_exactly_beta():
    """Whatever N, and whatever the constant."""
    build = BUILDS[0]
    assert build.what.beta
    random = np.random.default_rng(9)
    beta = stimulus.parameters("wide", build.what.max_n, 16, random)
    gamma = stimulus.parameters("plain", build.what.max_n, 16, random)
    vectors = [ParameterVector("gamma", gamma), ParameterVector("beta", beta)]
    rows = [
        Row(np.full(n, value, HALF), LayerSettings(n=n, affine="gamma+beta", eps=eps))
        for n in (1, 2, 3, 7, 17, 513, 576, 767, 768, 769)
        for value in (0.1, -1234.0, 65504.0, 6e-8)
        for eps in (0.0, 1e-5)
    ]
    for row, got in zip(rows, simulate_core(build, rows, vectors).rows, strict=True):
        assert np.array_equal(got.bits.view(HALF), beta[: len(row.bits)].view(HALF))


SLOW_BUILDS = [
    *(
        configuration(case, case.pop("lanes"))
        for case in pairwise({"lanes": LANES} | BUILD, build_possible)
    ),
    *(
        BUILDS[0].with_(p_n=p_n, p_d=p_d, subsampling=subsampling)
        for p_n in (1, 2, 4, 8, 16, 32)
        for p_d in (1, 2, 4, 8, 16, 32)
        for subsampling in (False, True)
        if p_d <= p_n
    ),
]
"""Lanes as one more factor; and all pairs of lanes."""


@pytest.mark.slow
@pytest.mark.parametrize("build", SLOW_BUILDS, ids=name)
def test_all_lanes(build):
    rows = make_rows(build, LONG_ROWS, np.random.default_rng(10))
    faulty = faulty_rows(build, np.random.default_rng(11)) if build.what.max_n >= 769 else []
    for stalls in STALLS.values():
        check(build, rows + faulty, 10, **stalls)
