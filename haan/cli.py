# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The command `haan`.

Exit status: 0; 1 where hardware or installation turned out bad; 2, with one sentence, where the input was.
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from . import __version__, doctor, estimate, latency
from .config import Configuration, ConfigurationError, presets
from .fusesoc import CORE, TOP, VERILOG, core_file, core_name
from .layer import LayerSettings
from .layers import LayersFile, LayerTable
from .link import BAUD
from .stack import Stack
from .tensors import Tensors, write
from .tools import require_simulator

MANIFEST_SCHEMA = 1
"""Schema of manifest.json."""
LONGEST_SENTENCE = 1000
"""Characters of a refusal."""
_RUINED = (
    "subsampling ruined the model that was measured (SmolLM2-135M), whose energy sits in a few channels: "
    "check your own model first"
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


class SimulatorName(StrEnum):
    """Simulators to choose from."""

    verilator = "verilator"
    icarus = "icarus"


Config = Annotated[
    Path | None, typer.Argument(metavar="CONFIG.toml", help="Configuration; or give --preset.")
]
Preset = Annotated[
    str | None, typer.Option("--preset", metavar="NAME", help=f"One of: {', '.join(presets())}.")
]
Layers = Annotated[
    Path | None, typer.Option("--layers", metavar="LAYERS.toml", help="Settings of all layers.")
]
Baud = Annotated[int, typer.Option(help="Rate of the serial line.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    try:
        return app(arguments, standalone_mode=False) or 0
    except typer.TyperException as error:
        return _refuse(error.format_message())
    except ConfigurationError as error:
        return _refuse(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return _refuse("interrupted", 130)


@app.callback(invoke_without_command=True)
def _haan(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Generator of LayerNorm and RMSNorm accelerators for FPGAs."""
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def generate(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder; made if missing.")
    ],
    config: Config = None,
    preset: Preset = None,
    layers: Layers = None,
    json_: Json = False,
) -> None:
    """Writes the accelerator's Verilog, DIR/haan_axi.v, the documents of its registers, DIR/manifest.json (ports, registers,
    latencies, configuration), and DIR/haan.core for FuseSoC. With --layers these layers are in the hardware from the start.

    Example: `haan generate --preset ecp5 -o build/ecp5`
    """
    configuration = _configuration(config, preset)
    table = None if layers is None else _layers(layers, configuration)
    _make_folder(output)
    with _progress() as step:
        step("Generating Verilog")
        manifest = _generate(configuration, table, output)
    if json_:
        _print_json(manifest | {"folder": str(output)})
    else:
        print(f"{output / VERILOG}: module {TOP}, {len(manifest['ports'])} ports")
        for name in manifest["register_documents"]:
            print(f"{output / name}: {len(manifest['registers'])} registers")
        print(f"{output / 'manifest.json'}: ports, registers, latencies, configuration")
        print(f"{output / CORE}: for FuseSoC, {core_name(configuration)}")


@app.command("estimate")
def estimate_(
    config: Config = None,
    preset: Preset = None,
    n: Annotated[
        int | None, typer.Option("--n", metavar="N", help="Elements in a row (default: max_n).")
    ] = None,
    n_sub: Annotated[
        int | None, typer.Option("--n-sub", metavar="N_SUB", help="Sampled elements.")
    ] = None,
    mode: Annotated[str | None, typer.Option(metavar="MODE", help="layernorm or rmsnorm.")] = None,
    mhz: Annotated[float, typer.Option(help="Clock for rows a second.")] = 100.0,
    json_: Json = False,
) -> None:
    """Says before any synthesis what a build gives: cycles, memory and multipliers, each exact.

    Example: `haan estimate --preset ecp5 --n 576`
    """
    configuration = _configuration(config, preset)
    given = {"mode": mode, "n": configuration.what.max_n if n is None else n, "n_sub": n_sub}
    given = {name: value for name, value in given.items() if value is not None}
    settings = LayerSettings.from_dict(LayerSettings.defaults(configuration) | given)
    figures = estimate.estimate(configuration, settings, mhz)
    if json_:
        _print_json(asdict(figures))
    else:
        Console().print(estimate.as_table(figures))


@app.command()
def simulate(
    input_: Annotated[
        Path,
        typer.Option(
            "--input",
            metavar="X.npz",
            help="x (rows, N), optional gamma and beta (N), scalars eps, mode, ...; with --layers x.K, gamma.K and beta.K "
            "of each layer K. Also X.safetensors.",
        ),
    ],
    config: Config = None,
    preset: Preset = None,
    layers: Layers = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="Y.npz",
            help="Where to write y, cycles and flags; also mean and isd if the build has statistics_stream.",
        ),
    ] = None,
    simulator: Annotated[
        SimulatorName, typer.Option(help="What simulates the Verilog.")
    ] = SimulatorName.verilator,
    waves: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Record waves: VCD with Verilator, FST with Icarus."),
    ] = None,
    json_: Json = False,
) -> None:
    """Simulates the Verilog on real rows: cycles, error against float64, comparison with the golden model.

    With --layers a stack of layers: also what skipping and subsampling save.

    Exit status 1 where the hardware is not exactly what the golden model says, in bits and in cycles.

    Example: `haan simulate --preset tiny --input rows.npz --output normalized.npz`
    """
    configuration = _configuration(config, preset)
    given: Stack | Tensors
    if layers is None:
        given = Tensors.read(input_, configuration)
    else:
        given = Stack.read(input_, _layers(layers, configuration), configuration)
    require_simulator(simulator.value)
    for path in (output, waves):
        if path is not None:
            _require_writable(path)
    # Imported here: what precedes works without cocotb.
    from . import report, stack_report
    from .sim import SimulationError

    outcome: report.Outcome | stack_report.StackOutcome
    try:
        with _progress() as step:
            if isinstance(given, Stack):
                outcome = stack_report.measure_stack(
                    configuration, given, simulator.value, waves, step
                )
            else:
                outcome = report.measure(configuration, given, simulator.value, waves, step)
    except SimulationError as error:
        raise typer.Exit(_refuse(str(error), 1)) from None
    if output is not None:
        write(output, **outcome.arrays())
    found = outcome.report
    if json_:
        _print_json(found.to_dict())
    else:
        Console().print(*found.as_tables())
    if not (found.bit_exact and found.cycle_exact):
        raise typer.Exit(1)


@app.command("build")
def build_(
    board: Annotated[str, typer.Option(metavar="NAME", help="Board to build for.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder; made if missing.")
    ],
    config: Config = None,
    preset: Preset = None,
    mhz: Annotated[float, typer.Option(help="Clock; the PLL comes as near as it can.")] = 100.0,
    baud: Baud = BAUD,
    seed: Annotated[int, typer.Option(help="Seed of the placement.")] = 1,
    json_: Json = False,
) -> None:
    """Makes a bitstream for a board: the accelerator behind a serial line. With an ECP5 by Yosys and nextpnr, DIR/haan_board.bit. For an Alveo card a
    project that Vivado builds without a click, DIR/build.tcl; it is built where Vivado is on the PATH.

    Exit status 1 where the routed design is slower than its clock.

    Example: `haan build --preset ulx3s --board ulx3s-85f -o build/ulx3s`
    """
    configuration = _configuration(config, preset)
    from . import boards, build, vivado
    from .synthesis import SynthesisError

    chosen = boards.board(board)
    _make_folder(output)
    options: dict[str, Any] = {"mhz": mhz, "baud": baud}
    result: build.Result | vivado.Result
    try:
        with _progress() as step:
            if isinstance(chosen, boards.Board):
                result = build.build(configuration, chosen, output, seed=seed, step=step, **options)
            else:
                result = vivado.build(configuration, chosen, output, step=step, **options)
    except SynthesisError as error:
        raise typer.Exit(_refuse(str(error), 1)) from None
    if json_:
        _print_json(result.to_dict())
    else:
        Console().print(result.as_table())
        if result.bitstream is not None:
            print(f"{result.bitstream}: for {chosen.name}, serial line at {baud:,} baud")
    if isinstance(result, vivado.Result):
        if result.bitstream is None:
            _say(
                f"Vivado is not on the PATH. The project is complete; this builds it: "
                f"cd {output} && {' '.join(vivado.COMMAND)}"
            )
    elif not result.good:
        _say(
            f"error: {result.achieved_mhz:.1f} MHz is slower than the clock of {result.wanted_mhz:g} MHz; "
            f"try another --seed, or --mhz {int(result.achieved_mhz)}"
        )
        raise typer.Exit(1)


@app.command("run")
def run_(
    port: Annotated[
        str, typer.Option(metavar="PORT", help='A serial port, for example /dev/ttyUSB0; or "sim".')
    ],
    input_: Annotated[
        Path,
        typer.Option("--input", metavar="X.npz", help="As for `haan simulate`, without --layers."),
    ],
    config: Config = None,
    preset: Preset = None,
    baud: Baud = BAUD,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="Y.npz", help="Where to write y and flags.")
    ] = None,
    json_: Json = False,
) -> None:
    """Sends rows through an accelerator behind a serial line, on a board or simulated with the line, bit by bit.

    Exit status 1 where the hardware doesn't answer, or not exactly what the golden model says.

    Example: `haan run --preset ulx3s --port /dev/ttyUSB0 --input rows.npz`
    """
    configuration = _configuration(config, preset)
    tensors = Tensors.read(input_, configuration)
    if output is not None:
        _require_writable(output)
    if port == "sim":
        require_simulator("verilator")
    from . import driver, run

    try:
        with _progress() as step:
            found, rows = run.run(configuration, tensors, port, baud, step)
    except driver.LinkError as error:
        raise typer.Exit(_refuse(str(error), 1)) from None
    if output is not None:
        write(output, y=rows.y, flags=rows.flags)
    if json_:
        _print_json(found.to_dict())
    else:
        Console().print(found.as_table())
    if not found.bit_exact:
        raise typer.Exit(1)


@app.command("doctor")
def doctor_(json_: Json = False) -> None:
    """Says which tools are here, and which command installs a missing one.

    Exit status 1 where `haan generate` or `haan simulate` lacks one.

    Example: `haan doctor`
    """
    lines = doctor.diagnose()
    if json_:
        _print_json(doctor.as_json(lines))
    else:
        Console().print(doctor.as_table(lines))
    if not doctor.healthy(lines):
        raise typer.Exit(1)


@app.command()
def schema(
    layers: Annotated[bool, typer.Option("--layers", help="Of layers.toml instead.")] = False,
) -> None:
    """Prints the JSON schema of configurations, for editors and scripts.

    Example: `haan schema > configuration.schema.json`
    """
    _print_json((LayersFile if layers else Configuration).model_json_schema(by_alias=True))


def _configuration(config: Path | None, preset: str | None) -> Configuration:
    if (config is None) == (preset is None):
        raise ConfigurationError("give either a configuration file or --preset NAME")
    if config is not None:
        configuration = Configuration.from_toml(config)
    else:
        configuration = Configuration.preset(preset or "")
    n_sub = configuration.what.n_sub
    if n_sub is not None:
        _say(
            f"warning: n_sub = {n_sub}: rows take their statistics from {n_sub} elements; {_RUINED}"
        )
    return configuration


def _layers(path: Path, configuration: Configuration) -> LayerTable:
    """The layers of a file, which the build can do."""
    table = LayerTable.read(path)
    table.check(configuration)
    if table.subsampled:
        layer, *others = table.subsampled
        settings = table.settings[layer]
        more = f" and {len(others)} more" if others else ""
        _say(
            f"warning: {_one_line(str(path))}: {table.label(layer)}{more}: n_sub = {settings.samples} of n = {settings.n}; {_RUINED}"
        )
    return table


def _generate(
    configuration: Configuration, layers: LayerTable | None, folder: Path
) -> dict[str, Any]:
    # Imported here: Amaranth takes a moment to load, and no other command needs it at once.
    from . import hdl
    from .register_documents import access, documents
    from .registers import register_map

    records = None if layers is None else layers.records(configuration)
    verilog = hdl.generate(configuration, records=records)
    texts = documents(configuration)
    what = configuration.what
    predicts = what.skipping and what.rmsnorm
    skipped = {"skipped": latency.skipped_latency(configuration)} if predicts else {}
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "version": __version__,
        "digest": configuration.digest(),
        "top": TOP,
        "verilog": VERILOG,
        "verilog_sha256": hashlib.sha256(verilog.encode()).hexdigest(),
        "ports": [
            {"name": name, "direction": direction, "width": width}
            for name, direction, width in hdl.ports(configuration)
        ],
        "register_documents": list(texts),
        "registers": [
            {
                "name": name,
                "address": register.address,
                "access": access(register),
                "fields": [
                    {"name": field.name, "low": field.low, "width": field.width}
                    for field in register.fields
                ],
            }
            for name, register in register_map(configuration).items()
        ],
        "latency_cycles": {
            "statistics": latency.statistics_latency(configuration),
            "inverse_sqrt": latency.inverse_sqrt_latency(configuration),
            "normalization": latency.normalization_latency(configuration),
            "core": latency.core_latency(configuration),
            **skipped,
        },
        "configuration": configuration.to_dict(),
    }
    if layers is not None:
        manifest["layers"] = {"digest": layers.digest(), "layer": layers.to_list()}
    for name, text in (
        (VERILOG, verilog),
        *texts.items(),
        (CORE, core_file(configuration)),
        ("manifest.json", json.dumps(manifest, indent=2) + "\n"),
    ):
        try:
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise _unwritable(folder / name, error) from None
    return manifest


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _require_writable(path: Path) -> None:
    """Tried before long work, so that its result isn't lost."""
    _make_folder(path.parent)
    there = path.exists()
    try:
        path.open("ab").close()
        if not there:
            path.unlink()
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{path}: can't be written: {error.strerror or error}")


@contextmanager
def _progress() -> Iterator[Any]:
    """A function that shows what is being done, with the time that it takes, where somebody watches."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=None)
        yield lambda text: progress.update(task, description=text)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def _say(text: str) -> None:
    print(f"haan: {text}", file=sys.stderr)


def _refuse(sentence: str, status: int = 2) -> int:
    if sentence:  # There is none where the help was shown instead.
        _say(_one_line(sentence))
    return status


def _one_line(sentence: str) -> str:
    """What is quoted from a file may hold anything, and much of it."""
    line = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in sentence
    )
    return line if len(line) <= LONGEST_SENTENCE else f"{line[:LONGEST_SENTENCE]} ..."
