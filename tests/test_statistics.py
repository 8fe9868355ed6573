# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The statistics unit against the golden model: sums, flags, and the cycle in which they come."""

import numpy as np
import pytest

from haan.config import Configuration
from haan.golden.statistics import sums
from haan.hdl import generate_unit
from haan.latency import statistics_latency
from haan.numerics import Numerics
from haan.sim import run_vectors, stimulus

BUILDS = [
    Configuration().with_(max_n=max_n, p_n=max(8, p_d), p_d=p_d, accumulator=accumulator, pipeline=pipeline)
    for max_n, p_d, accumulator, pipeline in [
        (4096, 1, "exact", "balanced"),
        (1000, 2, "window", "short"),
        (4096, 8, "window", "balanced"),
        (65536, 16, "exact", "short"),
    ]
]  # fmt: skip


def beats_of_rows(
    build: Configuration, random: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Rows as (bits, sampled, fault): (beats, p_d) each; up to max_n elements, extremes among them."""
    p_d, longest = build.how.p_d, build.what.max_n // build.how.p_d
    rows = []
    for kind in (*stimulus.KINDS, "any bits") * 3:
        beats = int(random.choice([1, 2, 3, 7, min(30, longest)]))
        bits = stimulus.row(kind, beats * p_d, random).reshape(beats, p_d)
        rows.append((bits, random.random(bits.shape) < random.choice([0.1, 0.9, 1.0])))
    for value in (0x7C00, 0xFC00, 0x7E00, 0xFC01):
        for sampled in (False, True):
            bits = stimulus.finite(random, 3 * p_d).reshape(3, p_d)
            mask = np.ones(bits.shape, dtype=np.bool_)
            at = random.integers(3), random.integers(p_d)
            bits[at], mask[at] = value, sampled
            rows.append((bits, mask))
    for value in (0x7BFF, 0xFBFF):
        bits = np.full((min(longest, 500), p_d), value, dtype=np.uint16)
        rows.append((bits, np.ones(bits.shape, dtype=np.bool_)))
    return [(bits, mask, int(random.integers(2))) for bits, mask in rows]


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: f"{build.how.p_d}-{build.what.max_n}")
@pytest.mark.parametrize("gaps", [0.0, 0.4])
def test_sums(build, gaps):
    random = np.random.default_rng(1)
    p_d, latency = build.how.p_d, statistics_latency(build)
    ports = ("i_valid", "first", "last", "z", "sampled", "fault")
    inputs: dict[str, list[int]] = {name: [] for name in ports}
    want: dict[int, tuple[int, int, int, int]] = {}
    for bits, mask, fault in beats_of_rows(build, random):
        for beat, (elements, sampled) in enumerate(zip(bits, mask, strict=True)):
            # Between valid beats everything else is garbage.
            while random.random() < gaps:
                for name, width in zip(ports[1:], (1, 1, 16 * p_d, p_d, 1), strict=True):
                    inputs[name].append(int.from_bytes(random.bytes(-(-width // 8))) % (1 << width))
                inputs["i_valid"].append(0)
            last = beat == len(bits) - 1
            inputs["i_valid"].append(1)
            inputs["first"].append(int(beat == 0))
            inputs["last"].append(int(last))
            inputs["z"].append(int.from_bytes(elements.astype("<u2").tobytes(), "little"))
            inputs["sampled"].append(sum(int(take) << i for i, take in enumerate(sampled)))
            inputs["fault"].append(fault if last else 1 - fault)
        s1, s2, nonfinite = sums(bits.reshape(1, -1), mask.reshape(1, -1), build)
        width = Numerics(build).s1_bits
        at = len(inputs["z"]) - 1 + latency
        want[at] = int(s1[0]) % (1 << width), int(s2[0]), int(nonfinite[0]), fault
    cycles = len(inputs["z"])
    inputs["i_valid"].append(0)
    got = run_vectors(
        generate_unit(build, "statistics"),
        "statistics",
        inputs,
        ["o_valid", "s1", "s2", "nonfinite", "o_fault"],
        cycles + latency + 5,
    )
    assert [i for i, valid in enumerate(got["o_valid"]) if valid] == list(want)
    for at, right in want.items():
        assert tuple(got[name][at] for name in ("s1", "s2", "nonfinite", "o_fault")) == right
