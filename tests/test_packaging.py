# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The repository as a whole: what is packed, what imports what, and what the README promises."""

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import haan
from haan.cli import main
from haan.config import presets

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PACKAGES = PYPROJECT["tool"]["setuptools"]["packages"]
FOLDERS = {name: ROOT / name.removeprefix("haan.").replace(".", "/") for name in PACKAGES}
"""Package -> its folder."""
SOURCES = sorted(
    path
    for folder in (*FOLDERS.values(), ROOT / "tests", ROOT / "bench", ROOT / "examples")
    for path in folder.glob("*.py")
)


def name_of(path):
    return str(path.relative_to(ROOT))


def packed():
    """Every file that must be in the wheel, by its name there."""
    files = {
        f"{package.replace('.', '/')}/{path.name}"
        for package, folder in FOLDERS.items()
        for path in folder.glob("*.py")
    }
    return (
        files
        | {"haan/py.typed", "haan/registers.rdl"}
        | {f"haan/presets/{name}.toml" for name in presets()}
    )


def build(hook, source, output):
    """Runs a hook of the build backend, as pip does, and returns the file that it made."""
    code = f"from setuptools import build_meta; print(build_meta.{hook}({str(output)!r}))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return output / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the repository, so that a build leaves nothing behind, and without links, as some systems unpack it."""
    copy = tmp_path_factory.mktemp("source") / "haan"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "data")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
    for link in (path for path in (copy / "haan").iterdir() if path.is_symlink()):
        link.unlink()
    return copy


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    return build("build_wheel", source, tmp_path_factory.mktemp("wheel"))


def contents(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


def test_the_package_list_is_what_is_on_the_disk():
    on_disk = {path.parent for path in ROOT.glob("*/__init__.py")} - {ROOT / "tests"}
    assert set(FOLDERS.values()) == on_disk
    nested = [path for folder in on_disk for path in folder.glob("*/__init__.py")]
    assert {path.parent.resolve() for path in nested} <= on_disk
    for package, folder in FOLDERS.items():
        if package != "haan":
            assert (ROOT / package.replace(".", "/")).resolve() == folder


def test_the_wheel_holds_every_source_and_nothing_else(wheel):
    assert contents(wheel) == packed()
    with zipfile.ZipFile(wheel) as file:
        names = {name.partition(".dist-info/")[2]: name for name in file.namelist()}
        assert "haan = haan.cli:main" in file.read(names["entry_points.txt"]).decode()
        assert "Version 2.0, January 2004" in file.read(names["licenses/LICENSE"]).decode()
        metadata = file.read(names["METADATA"]).decode()
    assert f"Version: {haan.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata


def test_a_wheel_from_the_source_distribution_is_the_same(source, wheel, tmp_path):
    archive = build("build_sdist", source, tmp_path)
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert contents(build("build_wheel", unpacked, tmp_path)) == contents(wheel)


def test_the_wheel_works_away_from_the_repository(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import haan.boards, haan.golden, haan.hdl, haan.sim
from haan.config import Configuration
assert all(m.__file__.startswith({str(tmp_path)!r}) for n, m in sys.modules.items() if n.split(".")[0] == "haan")
assert "module haan_axi(" in haan.hdl.generate(Configuration.preset("tiny"))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_license_header(path):
    assert path.read_text("utf-8").startswith(
        "# SPDX-FileCopyrightText: 2026 The HAAN developers\n# SPDX-License-Identifier: Apache-2.0\n"
    )


def imports(path):
    """Full names of the modules that a source file imports anywhere in it, and their members."""
    package = next((name for name, folder in FOLDERS.items() if folder == path.parent), "")
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join(
                [*(parents if node.level else []), *([node.module] if node.module else [])]
            )
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def within(modules, *packages):
    return {m for m in modules if any(f"{m}.".startswith(f"{package}.") for package in packages)}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_what_may_import_what(path):
    """Golden and hdl are two implementations of one page: what one took from the other would be compared with itself."""
    modules = imports(path)
    assert not within(modules, "hdl", "golden", "sim", "boards"), (
        "makes a second copy of the module"
    )
    if path.parent == FOLDERS["haan.golden"]:
        assert not within(modules, "amaranth", "haan.hdl", "haan.sim", "cocotb")
    if path.parent == FOLDERS["haan.hdl"]:
        assert not within(modules, "haan.golden", "haan.sim")
    if path.parent == FOLDERS["haan"]:
        assert not within(modules, "amaranth")


def test_golden_runs_without_amaranth():
    code = """
import sys
sys.modules["amaranth"] = None
import haan.golden
assert not [name for name in sys.modules if name.startswith("haan.hdl")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_readme_s_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text("utf-8")))
    assert {"demo", "test"} <= named
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def readme_lines(start):
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith(start)]


def test_the_readme_s_quick_start_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = readme_lines("haan generate ")
    assert commands
    for command in commands:
        assert main(command.split()[1:]) == 0


def test_the_readme_s_links_lead_somewhere():
    links = re.findall(r"\]\((?!http)([^)#]+)", (ROOT / "README.md").read_text("utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_both_commands_of_the_gate():
    gate = (ROOT / ".ci" / "run").read_text("utf-8")
    assert gate.rstrip().endswith("make test PYTEST_OPTIONS=--require-tools")
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
