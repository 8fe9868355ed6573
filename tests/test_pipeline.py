# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Tensors through the presets: what `haan.golden.normalize` says of whole tensors is what the hardware gives row by row."""

import numpy as np
import pytest

from haan.config import Configuration, presets
from haan.golden import normalize
from haan.layer import LayerSettings
from haan.sim import ParameterVector, Row, simulate
from haan.sim.verdict import compare

LARGE = ("u280-256x256", "u280-32x512")
INTEGER = "u280-int8-256x256"


def test_all_presets_are_known():
    assert {"tiny", "ecp5", "ecp5-16", "ulx3s", *LARGE, INTEGER} == set(presets())


@pytest.mark.parametrize(
    "preset",
    [
        "tiny",
        "ecp5",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("ecp5-16", "ulx3s", *LARGE)),
    ],
)
@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("affine", ["none", "gamma", "gamma+beta"])
def test_tensor(preset, mode, affine):
    build = Configuration.preset(preset)
    random = np.random.default_rng(1)
    n = min(build.what.max_n, 1536)
    # A few channels carry most of the energy, as in language models.
    channels = np.exp2(random.integers(0, 8, n) * (random.random(n) < 0.02))
    x = (random.normal(0.3, 1.0, (12, n)) * channels).astype(np.float16)
    vectors = {
        "gamma": random.normal(1.0, 0.3, n).astype(np.float16),
        "beta": random.normal(0.0, 0.3, n).astype(np.float16),
    }
    used = {name: vectors[name] for name in affine.split("+") if name in vectors}
    want = normalize(x, **used, configuration=build, mode=mode, eps=1e-6)
    settings = LayerSettings(
        n=n, mode=mode, eps=1e-6, affine=affine, slot=1, n_sub=build.what.n_sub
    )
    rows = [Row(row, settings) for row in x]
    parameters = [ParameterVector(name, values, slot=1) for name, values in vectors.items()]
    got = simulate(build, rows, parameters)
    verdict = compare(build, rows, parameters, got)
    assert verdict.exact, verdict.sentence
    assert np.array_equal([row.bits for row in got.rows], want.bits)
    assert [int(row.flags) for row in got.rows] == want.flags.tolist()
