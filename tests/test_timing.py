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


def interval(build: Configuration, layer: LayerSettings) -> set[int]:
    """Distances of the last beats of equal rows, once they flow."""
    rows = run(build, [layer] * 40).rows
    leaves = [row.out_cycles[-1] for row in rows]
    return set(np.diff(leaves[8:]).tolist())


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
    how = build.how
    for n in (1, 3, 8, 16, 17, 33, 64, 250):
        # Fewer samples than elements: as many as lie in two beats, what the framer can hold back.
        few = {max(1, n // 2), 2 * how.p_n} & set(range(1, min(n, 2 * how.p_n) + 1))
        for n_sub in {n} | (few if build.what.subsampling else set()):
            bound = max(-(-n_sub // how.p_d), -(-n // how.p_n), how.isd_interval)
            assert interval(build, LayerSettings(n=n, n_sub=n_sub)) == {bound}, (n, n_sub)


def test_strided_samples_cost_no_more_cycles():
    build = Configuration().with_(**SMALL | {"max_n": 256}, p_n=8, p_d=2, subsampling=True)
    for stride in (2, 4, 8):
        for first in range(stride):
            layer = LayerSettings(n=256, n_sub=256 // stride, stride=stride, first=first)
            assert interval(build, layer) == {max(256 // stride // 2, 32)}
