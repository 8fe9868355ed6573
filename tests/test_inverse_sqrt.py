# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The inverse square root unit against the golden model, at its latency."""

import numpy as np
import pytest

from haan.config import Configuration
from haan.golden.inverse_sqrt import inverse_sqrt
from haan.hdl import generate_unit
from haan.latency import inverse_sqrt_latency
from haan.sim import run_vectors

ONE = 1 << 20
BUILDS = [
    Configuration().with_(
        seed=seed,
        segments=segments,
        segment_slopes=slopes,
        newton_steps=steps,
        isd_interval=interval,
        pipeline=pipeline,
    )
    for seed, segments, slopes, steps, interval, pipeline in [
        ("segmented", 64, True, 1, 1, "balanced"),
        ("segmented", 64, False, 2, 16, "balanced"),
        ("segmented", 32, True, 0, 1, "short"),
        ("segmented", 16, False, 3, 64, "short"),
        ("segmented", 16, True, 1, 23, "balanced"),
        ("segmented", 32, False, 1, 64, "balanced"),
        ("tuned", 64, True, 1, 1, "balanced"),
        ("tuned", 64, True, 2, 16, "short"),
        ("tuned", 64, True, 0, 64, "balanced"),
        ("classic", 64, True, 1, 16, "short"),
        ("classic", 64, True, 3, 1, "balanced"),
    ]
]


def name(build: Configuration) -> str:
    how = build.how
    return f"{how.seed}-{how.segments}-{how.newton_steps}-{how.isd_interval}-{how.pipeline}"


def check(build: Configuration, x: np.ndarray) -> None:
    """Each x once every `isd_interval` cycles, with garbage between."""
    interval, latency = build.how.isd_interval, inverse_sqrt_latency(build)
    driven = np.random.default_rng(1).integers(0, 4 * ONE, len(x) * interval)
    driven[::interval] = x
    valid = [int(i == 0) for i in range(interval)] * len(x)
    got = run_vectors(
        generate_unit(build, "inverse_sqrt"),
        "inverse_sqrt",
        {"x": driven.tolist(), "i_valid": [*valid, 0]},
        ["isd", "exponent"],
        len(driven) + latency,
    )
    isd, exponent = inverse_sqrt(x, np.zeros_like(x), build.how)
    assert got["isd"][latency::interval][: len(x)] == isd.tolist()
    assert got["exponent"][latency::interval][: len(x)] == (exponent % 8).tolist()


@pytest.mark.parametrize("build", BUILDS, ids=name)
def test_root(build):
    """Both ends and the middle of every segment, and arguments between."""
    edges = np.arange(ONE, 4 * ONE, ONE // 64)
    random = np.random.default_rng(2).integers(ONE, 4 * ONE, 20_000 // build.how.isd_interval)
    check(build, np.concatenate([edges, edges + 1, edges + ONE // 64 - 1, random]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "build", [build for build in BUILDS if build.how.isd_interval == 1], ids=name
)
def test_root_of_everything(build):
    check(build, np.arange(ONE, 4 * ONE))
