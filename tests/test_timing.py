# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Cycles: latency from idle and the interval of equal rows, each exactly as `haan.latency` and the bound say."""

import numpy as np
import pytest

from haan.config import Configuration
from haan.latency import core_latency
from haan.layer import LayerSettings
from haan.sim import Row, SimulationResult, simulate

SMALL = {"max_n": 600, "layers": 2, "slots": 1, "token_slots": 2}
SIXTEEN = Configuration().with_(p_d=16, p_n=16, **SMALL)
"""The lanes for which the goals of latency are stated."""


def run(build: Configuration, rows: list[LayerSettings]) -> SimulationResult:
    """Rows back to back, the sink always ready."""
    random = np.random.default_rng(1)
    return simulate(
        build,
        [Row(random.normal(size=layer.n).astype(np.float16), layer) for layer in rows],
        [],
    )


@pytest.mark.parametrize(
    ("changes", "goal"),
    [
        ({"affine": "gamma+beta"}, 64),
        ({"affine": "gamma+beta", "norms": ["rmsnorm"]}, 56),
        ({"affine": "gamma"}, 48),
        ({"affine": "gamma", "norms": ["rmsnorm"]}, 48),
        ({"affine": "gamma+beta", "pipeline": "short"}, 40),
    ],
    ids=["layernorm-beta", "rmsnorm-beta", "layernorm", "rmsnorm", "short"],
)
def test_latency_from_idle(changes, goal):
    build = SIXTEEN.with_(**changes)
    mode = build.what.norms[0]
    for n in (1, 16, 17, 576):
        beats = -(-n // 16)
        (row,) = run(build, [LayerSettings(n=n, mode=mode)]).rows
        assert row.in_cycles == list(range(row.in_cycles[0], row.in_cycles[0] + beats))
        assert row.out_cycles[0] == row.in_cycles[-1] + core_latency(build)
        assert row.latency == 2 * (beats - 1) + core_latency(build)
        assert row.latency <= 2 * beats + goal


def intervals(build: Configuration, layers: list[LayerSettings]) -> list[set[int]]:
    """Distances of the last beats of equal rows, 40 of each layer, once they flow."""
    rows = run(build, [layer for layer in layers for _ in range(40)]).rows
    leaves = np.array([row.out_cycles[-1] for row in rows]).reshape(len(layers), 40)
    return [set(np.diff(group[8:]).tolist()) for group in leaves]


def bound(build: Configuration, layer: LayerSettings) -> int:
    """Cycles a row that no build can go below."""
    how = build.how
    return max(-(-layer.samples // how.p_d), -(-layer.n // how.p_n), how.isd_interval)


@pytest.mark.parametrize(
    "changes",
    [
        {"p_n": 16, "p_d": 16},
        {"p_n": 8, "p_d": 2, "subsampling": True},
        {"p_n": 4, "p_d": 4, "isd_interval": 16},
    ],
    ids=["16x16", "8x2", "every-16"],
)
def test_interval_of_equal_rows(changes):
    build = Configuration().with_(**SMALL | {"max_n": 256}, **changes)
    layers = []
    for n in (1, 3, 8, 16, 17, 33, 64, 250):
        few = {1, max(1, n // 5), max(1, n // 2), max(1, n - 1)}
        counts = few | {n} if build.what.subsampling else {n}
        layers += [LayerSettings(n=n, n_sub=n_sub) for n_sub in sorted(counts)]
    bounds = [{bound(build, layer)} for layer in layers]
    assert intervals(build, layers) == bounds


def test_strided_samples_cost_no_more_cycles():
    build = Configuration().with_(**SMALL | {"max_n": 256}, p_n=8, p_d=2, subsampling=True)
    layers = [
        LayerSettings(n=256, n_sub=256 // stride, stride=stride, first=first)
        for stride in (2, 4, 8)
        for first in range(stride)
    ]
    assert intervals(build, layers) == [{bound(build, layer)} for layer in layers]
