# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Estimates are exact: cycles as the model of cycles and the hardware have them, memories and multipliers as Yosys finds them."""

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haan.cli import main
from haan.config import Configuration, ConfigurationError, presets
from haan.estimate import DP16KD, Estimate, Memory, blocks, bubble_free_n, estimate, interval
from haan.golden import Packet, passages
from haan.hdl import generate
from haan.latency import skipped_latency
from haan.layer import LayerSettings
from haan.layout import memories
from haan.sim import Row, simulate
from haan.synthesis import run_yosys

TINY = Configuration.preset("tiny")

# Cycles


def flow(build: Configuration, settings: LayerSettings, rows: int) -> list[tuple[list[int], ...]]:
    """Cycles of equal rows, with a source that never idles and a sink that never stalls."""
    beats = -(-settings.n // build.how.p_n)
    return [
        (passage.in_cycles, passage.out_cycles)
        for passage in passages(build, [Packet(beats, settings)] * rows, [True], [True])
    ]


def samplings(n: int, p_n: int) -> list[dict[str, int]]:
    """All elements, and parts of them."""
    wanted = [
        {"n_sub": -(-n // 2)},
        {"n_sub": 1, "first": n - 1},
        {"n_sub": n // 3, "first": n // 4},
        *({"n_sub": (n - 2) // stride, "first": 1, "stride": stride} for stride in (2, 4, 2 * p_n)),
    ]
    return [{}] + [
        sampling
        for sampling in wanted
        if sampling["n_sub"] >= 1
        and sampling.get("first", 0) + sampling.get("stride", 1) * (sampling["n_sub"] - 1) < n
    ]


LANES = [(1, 1), (2, 1), (4, 4), (8, 2), (16, 16), (32, 4)]
"""p_n, p_d"""


@pytest.mark.parametrize("lanes", LANES, ids=str)
@pytest.mark.parametrize("isd_interval", [1, 16, 40])
@pytest.mark.parametrize("subsampling", [False, True])
def test_cycles_are_those_of_the_model(
    lanes: tuple[int, int], isd_interval: int, subsampling: bool
) -> None:
    """Which every simulation is compared with, beat by beat."""
    p_n, p_d = lanes
    for pipeline, norms in product(("balanced", "short"), (["layernorm"], ["rmsnorm"])):
        build = TINY.with_(
            p_n=p_n,
            p_d=p_d,
            isd_interval=isd_interval,
            subsampling=subsampling,
            pipeline=pipeline,
            norms=norms,
            max_n=700,
        )
        for n in (1, 2, 3, p_n, p_n + 1, 16 * p_n, 16 * p_n - 1, 577, 700):
            if n > build.what.max_n:
                continue
            for sampling in samplings(n, p_n) if subsampling else [{}]:
                settings = LayerSettings(n=n, mode=norms[0], **sampling)
                rows = flow(build, settings, 24)
                figures = estimate(build, settings)
                (first_in, first_out), steady = rows[0], [out[-1] for _, out in rows[-4:]]
                where = (build.how, settings)
                assert figures.latency_cycles == first_out[-1] - first_in[0], where
                assert set(np.diff(steady)) == {figures.cycles_per_row}, where


INT8_BOTH = {"n": 61, "input_format": "int8", "output_format": "int8", "affine": "gamma"}
# The other ones, too, have their cycles compared by tests of their own: what is asked here is the estimate.
CYCLES = {
    "8x8": ({"p_n": 8, "p_d": 8}, {"n": 60}),
    "8x2-subsampled": (
        {"p_n": 8, "p_d": 2, "subsampling": True},
        {"n": 61, "n_sub": 20, "first": 3},
    ),
    "every-16": ({"p_n": 4, "p_d": 4, "isd_interval": 16}, {"n": 9}),
    "quarter": ({"p_n": 8, "bus_bytes": 4}, {"n": 29}),
    "half-subsampled": (
        {"p_n": 8, "bus_bytes": 8, "subsampling": True},
        {"n": 64, "n_sub": 3, "stride": 16},
    ),
    "int8-quarter": (
        {"p_n": 8, "p_d": 8, "bus_bytes": 4, "formats": ["fp16", "int8"]},
        INT8_BOTH,
    ),
    "int8-alone": ({"p_n": 8, "p_d": 8, "formats": ["int8"]}, INT8_BOTH),
    "int8-alone-half": ({"p_n": 8, "p_d": 4, "bus_bytes": 4, "formats": ["int8"]}, INT8_BOTH),
}
QUICK = ("8x2-subsampled", "every-16", "int8-quarter")


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.slow] * (name not in QUICK))
        for name, case in CYCLES.items()
    ],
)
def test_cycles_are_those_of_the_hardware(
    changes: dict[str, Any], settings: dict[str, Any]
) -> None:
    build, layer = TINY.with_(**changes), LayerSettings(**settings)
    x = np.random.default_rng(1).normal(size=layer.n)
    x = x.astype(np.int8 if layer.int8_input else np.float16)
    rows = simulate(build, [Row(x, layer)] * 24).rows
    figures = estimate(build, layer)
    assert figures.beats_per_row == len(rows[0].in_cycles)
    assert figures.latency_cycles == rows[0].latency
    steady = [row.out_cycles[-1] for row in rows[12:]]
    assert set(np.diff(steady)) == {figures.cycles_per_row}


@pytest.mark.parametrize("changes", [{}, {"bus_bytes": 4}], ids=["wide", "half"])
def test_cycles_of_rows_that_take_no_statistics(changes: dict[str, Any]) -> None:
    build = TINY.with_(skipping=True, p_n=4, p_d=1, **changes)
    layer = LayerSettings(n=27, mode="rmsnorm")
    figures = estimate(build, layer)
    skip = layer.model_copy(update={"skip": True})
    packet = Packet(figures.beats_per_row, skip, predicted=True)
    rows = passages(build, [packet] * 20, [True], [True])
    assert figures.skipped_latency_cycles == rows[0].out_cycles[-1] - rows[0].in_cycles[0]
    assert set(np.diff([row.out_cycles[-1] for row in rows[10:]])) == {
        figures.skipped_cycles_per_row
    }
    assert figures.cycles_per_row == 27
    if not changes:
        assert figures.skipped_latency_cycles == 6 + skipped_latency(build)
    for other in (layer.model_copy(update={"mode": "layernorm"}), layer):
        build = build.with_(skipping=other.mode == "layernorm")
        assert estimate(build, other).skipped_latency_cycles is None


def test_the_smallest_n_without_a_bubble() -> None:
    """From it on a beat leaves in every cycle; with one element less there is an idle one."""
    for changes, want in (
        ({"p_n": 4, "p_d": 4}, 1),
        ({"p_n": 4, "p_d": 4, "isd_interval": 16}, 61),
        ({"p_n": 4, "p_d": 2}, 1),
        ({"p_n": 4, "p_d": 2, "isd_interval": 16}, None),
    ):
        build = TINY.with_(**changes)
        assert bubble_free_n(build, LayerSettings(n=5)) == want
    build = TINY.with_(p_n=4, p_d=2, subsampling=True)
    settings = LayerSettings(n=64, n_sub=20)
    assert bubble_free_n(build, settings) == 37
    for n, gapless in ((37, True), (36, False)):
        rows = flow(build, settings.model_copy(update={"n": n}), 20)
        leaves = [cycle for _, out in rows[8:] for cycle in out]
        assert (set(np.diff(leaves)) == {1}) == gapless


# Memory


def yosys(build: Configuration, script: list[str], folder: Path) -> dict[str, Any]:
    found = run_yosys(generate(build), [*script, "flatten"], folder, "core")
    return found["modules"]["haan_axi"]["cells"]


BUILDS = {
    "tiny": TINY,
    "rmsnorm alone": TINY.with_(norms=["rmsnorm"], affine="none", p_n=1, p_d=1),
    "layernorm alone": TINY.with_(norms=["layernorm"], affine="gamma", max_n=100, slots=3),
    "everything": TINY.with_(
        subsampling=True,
        parameter_format="fp32",
        one_plus_gamma=True,
        cast_before_gamma=True,
        isd_interval=16,
        seed="tuned",
        newton_steps=2,
        p_n=8,
        max_n=70,
    ),
    "subsampled": TINY.with_(subsampling=True, p_n=4, p_d=4, newton_steps=0, max_n=1, bus_bytes=2),
    "window": TINY.with_(p_n=4, accumulator="window", token_slots=65536, max_n=300),
    "skipping": TINY.with_(skipping=True, anchors=4, subsampling=True, p_n=4, layers=8, slots=3),
    "skipping rmsnorm": TINY.with_(norms=["rmsnorm"], affine="gamma", skipping=True, layers=1),
    "int8": TINY.with_(formats=["fp16", "int8"], p_n=4, max_n=300),
    "int8, skipping": TINY.with_(
        formats=["fp16", "int8"], norms=["rmsnorm"], affine="gamma", skipping=True, bus_bytes=2
    ),
    "int8, skipping, every 16": TINY.with_(
        formats=["fp16", "int8"], skipping=True, subsampling=True, isd_interval=16
    ),
    "int8 alone": TINY.with_(
        formats=["int8"], p_n=8, p_d=8, max_n=300, isd_interval=16, isd_multipliers=False
    ),
    "int8 alone, subsampled": TINY.with_(
        formats=["int8"],
        p_n=4,
        norms=["rmsnorm"],
        affine="gamma",
        subsampling=True,
        parameter_format="fp32",
        bus_bytes=2,
    ),
    "every 64": TINY.with_(isd_interval=64, max_n=300, newton_steps=3, seed="classic"),
}


@pytest.mark.parametrize("name", BUILDS)
def test_memories_are_those_of_the_verilog(name: str, tmp_path: Path) -> None:
    build = BUILDS[name]
    script = ["hierarchy -check -top haan_axi", "proc -norom", "memory_collect"]
    cells = yosys(build, script, tmp_path)
    found = Counter(
        (int(cell["parameters"]["WIDTH"], 2), int(cell["parameters"]["SIZE"], 2))
        for cell in cells.values()
        if cell["type"] == "$mem_v2"
    )
    want: Counter[tuple[int, int]] = Counter()
    for memory in memories(build):
        want[memory.width, memory.depth] += memory.count
    assert found == want
    figures = estimate(build, LayerSettings(n=1, **LayerSettings.defaults(build)))
    assert figures.memory_bits == sum(
        width * depth * count for (width, depth), count in found.items()
    )


def test_block_rams_of_a_memory() -> None:
    assert blocks(Memory("", 36, 512), DP16KD) == 1
    assert blocks(Memory("", 37, 512), DP16KD) == 2
    assert blocks(Memory("", 1, 16385), DP16KD) == 2
    assert blocks(Memory("", 17, 1024, 8), DP16KD) == 8
    figures = estimate(TINY, LayerSettings(n=1))
    assert figures.dp16kd == sum(memory.dp16kd for memory in figures.memories)
    assert figures.ramb36 == sum(memory.ramb36 for memory in figures.memories)


def test_memory_for_a_given_n_is_that_of_a_build_for_it() -> None:
    for preset in presets():
        build = Configuration.preset(preset)
        sub = min(build.what.n_sub or 40, 40)
        given = {"n_sub": sub if build.what.subsampling else None}
        settings = LayerSettings(n=40, **LayerSettings.defaults(build) | given)
        figures = estimate(build, settings)
        small = build.with_(max_n=40, n_sub=build.what.n_sub and 40)
        assert figures.memory_bits_for_n == estimate(small, settings).memory_bits
        assert figures.memory_bits_for_n <= figures.memory_bits


# Multipliers

MAPPED = {
    "mult18x18d": ("synth_ecp5 -top haan_axi -run begin:map_ram", "MULT18X18D"),
    "dsp48e2": (
        "synth_xilinx -family xcup -flatten -top haan_axi -run begin:map_memory",
        "DSP48E2",
    ),
}
"""The first steps of synthesis, up to the mapping of products; the presets have products with a single bit."""


@pytest.mark.parametrize("family", MAPPED)
def test_multipliers_are_those_that_yosys_maps(family: str, tmp_path: Path) -> None:
    check_multipliers(TINY, family, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", MAPPED)
def test_multipliers_of_lanes_in_fixed_point(family: str, tmp_path: Path) -> None:
    check_multipliers(TINY.with_(formats=["int8"]), family, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", MAPPED)
@pytest.mark.parametrize("build", [*sorted(BUILDS.keys() - {"tiny"}), *presets()[:2]])
def test_multipliers_of_larger_builds(build: str, family: str, tmp_path: Path) -> None:
    check_multipliers(BUILDS.get(build) or Configuration.preset(build), family, tmp_path)


def check_multipliers(build: Configuration, family: str, folder: Path) -> None:
    command, kind = MAPPED[family]
    counts = Counter(
        cell["type"] for cell in yosys(build, [command, "hierarchy -purge_lib"], folder).values()
    )
    figures = estimate(build, LayerSettings(n=1, **LayerSettings.defaults(build)))
    assert getattr(figures, family) == counts[kind]


# The command


def figures_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Estimate:
    assert main(["estimate", *arguments, "--json"]) == 0
    return Estimate(**json.loads(capsys.readouterr().out))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    figures = figures_of(
        capsys, "--preset", "ecp5", "--n", "576", "--mode", "rmsnorm", "--mhz", "80"
    )
    assert (figures.n, figures.n_sub, figures.mode) == (576, 576, "rmsnorm")
    assert (figures.cycles_per_row, figures.limited_by) == (72, "output")
    assert figures.rows_per_second == pytest.approx(80e6 / 72)
    assert (figures.beats_per_row, figures.bytes_per_row) == (72, 1152)
    assert figures.bytes_per_second == pytest.approx(80e6 * 16)
    assert main(["estimate", "--preset", "ecp5", "--n", "576"]) == 0
    table = capsys.readouterr().out
    for text in ("72, limited by output", "1,388,889 rows/s", "131,072 bits", "MULT18X18D"):
        assert text in table


def test_int8_alone_is_int8_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    figures = figures_of(capsys, "--preset", "u280-int8-256x256", "--n", "768")
    assert (figures.cycles_per_row, figures.limited_by) == (16, "isd_interval")
    assert (figures.beats_per_row, figures.bytes_per_row) == (3, 768)
    assert figures.multipliers["row"] == 0
    assert figures.dsp48e2 == 3 * 256
    assert figures.mult18x18d == 5 * 256


def test_the_default_is_the_longest_row_of_the_first_norm(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = figures_of(capsys, "--preset", "u280-32x512")
    assert (figures.n, figures.n_sub, figures.mode) == (4096, 256, "layernorm")
    assert figures.cycles_per_row == interval(
        Configuration.preset("u280-32x512"), LayerSettings(n=4096, n_sub=256)
    )
    assert figures_of(capsys, "--preset", "u280-32x512", "--n-sub", "64").n_sub == 64


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--n", "0"], "n = 0: input should be greater than or equal to 1"),
        (["--n", "65"], "n = 65 exceeds this build's max_n = 64"),
        (["--n-sub", "4"], "this build has subsampling = false"),
        (["--mode", "batchnorm"], "mode = 'batchnorm'"),
        (["--mhz", "0"], "mhz = 0.0: a clock is a positive number"),
        (["--mhz", "nan"], "mhz = nan: a clock is a positive number"),
        (["--mhz", "fast"], "'--mhz': Input should be a valid number"),
    ],
)
def test_what_it_refuses(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(["estimate", "--preset", "tiny", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err


def test_a_clock_must_be_a_number() -> None:
    with pytest.raises(ConfigurationError, match="mhz = inf"):
        estimate(TINY, LayerSettings(n=1), float("inf"))
