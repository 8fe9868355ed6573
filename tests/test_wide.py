# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Wide builds: hundreds of lanes are generated in seconds, the same to the byte each time, and simulate rows of real models."""

import hashlib
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from haan.cli import main
from haan.config import Configuration
from haan.hdl import generate
from haan.sim.runner import repeated_modules

DATA = Path(__file__).parent / "data"
INTEGERS = Configuration.preset("tiny").with_(formats=["int8"])
SMALL = Configuration.preset("tiny").with_(p_n=8, p_d=2, subsampling=True)


def digest_elsewhere(preset: str, changes: dict[str, object], hash_seed: str) -> str:
    """SHA-256 of a configuration's Verilog, from another process."""
    program = (
        "import hashlib, json, sys; from haan.config import Configuration; from haan.hdl import generate; "
        "build = Configuration.preset(sys.argv[1]).with_(**json.loads(sys.argv[2])); "
        "print(hashlib.sha256(generate(build).encode()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, preset, json.dumps(changes)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def digest(build: Configuration) -> str:
    return hashlib.sha256(generate(build).encode()).hexdigest()


@pytest.mark.slow
def test_the_same_bytes_with_subsampling() -> None:
    changes = {"p_n": 8, "p_d": 2, "subsampling": True}
    assert {digest_elsewhere("tiny", changes, seed) for seed in ("1", "2")} == {digest(SMALL)}


@pytest.mark.slow
def test_512_lanes_are_the_same_bytes_within_the_limits() -> None:
    """CPU time, since the machine may be busy: 30 s and 2 GiB."""
    first = digest_elsewhere("u280-32x512", {}, "1")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert digest_elsewhere("u280-32x512", {}, "2") == first
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 30
    assert after.ru_maxrss < 2 << 20


def test_text_grows_no_faster_than_lanes() -> None:
    """What a lane adds is a few lines, however wide the beat that it looks at."""
    sizes = {n: len(generate(SMALL.with_(p_n=n, p_d=4))) for n in (16, 32, 64)}
    assert sizes[64] - sizes[32] < 2.5 * (sizes[32] - sizes[16])


def test_what_is_compiled_by_itself() -> None:
    assert repeated_modules(generate(SMALL)) == []
    many = generate(SMALL.with_(p_n=16, p_d=16))
    assert sorted(repeated_modules(many)) == ["lane", "statistics_lane"]
    assert len(re.findall(r"^  lane ", many, re.MULTILINE)) == 16


def test_lanes_in_fixed_point_are_compiled_by_themselves() -> None:
    many = generate(INTEGERS.with_(p_n=32, p_d=32))
    assert repeated_modules(many) == ["integer_lane"]
    assert len(re.findall(r"^  integer_lane ", many, re.MULTILINE)) == 32
    sizes = {n: len(generate(INTEGERS.with_(p_n=n, p_d=4))) for n in (16, 32, 64)}
    assert sizes[64] - sizes[32] < 2.5 * (sizes[32] - sizes[16])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["rmsnorm", "layernorm"])
def test_256_lanes_in_fixed_point_on_real_rows(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    if mode == "rmsnorm":
        with np.load(DATA / "smollm2_rmsnorm_selected.npz") as rows:
            given = {name: rows[f"n30_{name}"] for name in ("x", "gamma")} | {"eps": rows["eps"]}
    else:
        with np.load(DATA / "minilm_layernorm.npz") as rows:
            given = {name: rows[f"n6_{name}"] for name in ("x", "gamma", "beta", "eps")}
    np.savez(tmp_path / "rows.npz", mode=mode, **given)
    arguments = ["--preset", "u280-int8-256x256", "--input", str(tmp_path / "rows.npz"), "--json"]
    assert main(["simulate", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bit_exact"]
    assert report["cycle_exact"]
    assert report["max_error_lsb"] <= 1
    assert report["cycles_per_row"] == report["bound_cycles_per_row"] == 16


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["rmsnorm", "layernorm"])
def test_512_lanes_on_real_rows(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    if mode == "rmsnorm":
        with np.load(DATA / "smollm2_rmsnorm_selected.npz") as rows:
            x = np.concatenate([rows[f"n{i}_x"] for i in rows["norm_index"]])
            parameters = {"gamma": rows["n30_gamma"]}
            eps = rows["eps"]
    else:
        with np.load(DATA / "minilm_layernorm.npz") as rows:
            x, eps = rows["n6_x"], rows["n6_eps"]
            parameters = {"gamma": rows["n6_gamma"], "beta": rows["n6_beta"]}
    parameters = {name: values.astype(np.float16) for name, values in parameters.items()}
    np.savez(tmp_path / "rows.npz", x=x, eps=eps, mode=mode, **parameters)
    arguments = ["--preset", "u280-32x512", "--input", str(tmp_path / "rows.npz"), "--json"]
    assert main(["simulate", *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bit_exact"]
    assert report["cycle_exact"]
    assert report["rows"] == len(x)
    assert report["cycles_per_row"] == report["bound_cycles_per_row"] == 256 // 32
    assert report["n_sub"] == 256
