# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Synthesizes a build with the open tools and reports clock, area and depth: `python bench/synth.py --help`; docs/synthesis.md says how it is measured."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from haan.config import Configuration, ConfigurationError
from haan.hdl import generate, generate_unit
from haan.netlist import Area, Depth, area, depth
from haan.synthesis import ECP5_PACKAGES, Routing, SynthesisError, map_verilog, route_ecp5

LANES = {
    "LayerNorm, beta": (678, ["layernorm", "rmsnorm"], "gamma+beta"),
    "LayerNorm": (470, ["layernorm", "rmsnorm"], "gamma"),
    "RMSNorm, beta": (384, ["rmsnorm"], "gamma+beta"),
    "RMSNorm": (176, ["rmsnorm"], "gamma"),
}
"""Kinds of lanes: the LUTs that one may take with FP16, norms, affine."""
STATISTICS_LUTS = 300
"""The LUTs that a lane of the statistics unit may take with FP16, its part of tree and accumulators included."""
CORES = {"u280-int8-256x256": (40_000, 768)}
"""The LUTs, those used as memory included, and the multipliers that the core of a preset may take."""
MHZ = 100.0
LUT_LEVELS = 7
CARRY_BITS = 48


@dataclass(frozen=True)
class Unit:
    """A mapped unit (UltraScale+)."""

    name: str
    lanes: int
    area: Area
    depth: Depth
    target_luts: float | None
    """A lane; None: no target."""

    @property
    def luts(self) -> float:
        """A lane."""
        return self.area.luts / self.lanes


@dataclass(frozen=True)
class Result:
    """All figures of a run."""

    configuration: str
    lanes: int
    device: str
    seed: int
    routing: Routing | None
    """On the ECP5, with the harness; None: not asked for."""
    area: Area
    """UltraScale+."""
    depth: Depth
    units: list[Unit]

    def core(self) -> dict[str, tuple[int, int]]:
        """What the core has of that for which there is a target, and the target."""
        if self.configuration not in CORES:
            return {}
        used = self.area.luts + self.area.lut_memory, self.area.multipliers
        most = CORES[self.configuration]
        return dict(zip(("LUT", "multipliers"), zip(used, most, strict=True), strict=True))

    def misses(self) -> list[str]:
        """What is beyond its target."""
        found = [
            f"{unit.name}: {unit.luts:.0f} LUT a lane, target {unit.target_luts:.0f}"
            for unit in self.units
            if unit.target_luts is not None and unit.luts > unit.target_luts
        ]
        for name, (used, most) in self.core().items():
            if used > most:
                found.append(f"{used} {name}, target {most}")
        if self.routing and self.routing.mhz < MHZ:
            found.append(f"{self.routing.mhz:.1f} MHz, target {MHZ:.0f}")
        if self.depth.lut_levels > LUT_LEVELS:
            found.append(f"{self.depth.lut_levels} LUT levels, target {LUT_LEVELS}")
        if self.depth.carry_bits > CARRY_BITS:
            found.append(f"carry chain of {self.depth.carry_bits} bits, target {CARRY_BITS}")
        return found


def measure(
    configuration: Configuration,
    folder: Path,
    *,
    device: str,
    seed: int,
    route: bool,
    step: Callable[[str], None],
) -> Result:
    """Runs the tools; `step` is told before each one."""
    units = []
    fp16 = not configuration.what.int8
    for name, (target, norms, affine) in LANES.items():
        step(f"map lane: {name}")
        kind = configuration.with_(norms=norms, affine=affine)
        luts = target if fp16 else None
        units.append(map_unit(kind, "lane", f"lane: {name}", 1, luts, folder))
    lanes = configuration.how.p_d
    step(f"map statistics, {lanes} lanes")
    luts = STATISTICS_LUTS if fp16 else None
    units.append(map_unit(configuration, "statistics", "statistics", lanes, luts, folder))
    step("generate the core")
    verilog = generate(configuration, "haan_core")
    step("map the core")
    netlist = map_verilog(verilog, "haan_core", "xcup", folder, "core_xcup")
    routing = None
    if route:
        step(f"route the core on an ECP5-{device}F")
        routing = route_ecp5(verilog, "haan_core", folder, "core_ecp5", device=device, seed=seed)
    return Result(
        configuration=configuration.name,
        lanes=configuration.how.p_n,
        device=device,
        seed=seed,
        routing=routing,
        area=area(netlist),
        depth=depth(netlist),
        units=units,
    )


def map_unit(
    configuration: Configuration,
    unit: str,
    name: str,
    lanes: int,
    target: float | None,
    folder: Path,
) -> Unit:
    verilog = generate_unit(configuration, unit)
    netlist = map_verilog(verilog, unit, "xcup", folder, unit)
    return Unit(name, lanes, area(netlist), depth(netlist), target)


def core_table(result: Result) -> Table:
    table = Table(title=f"haan_core, {result.configuration}, {result.lanes} lanes")
    table.add_column("")
    table.add_column("figure", justify="right")
    table.add_column("target", justify="right")
    if result.routing:
        routing = result.routing
        table.add_row(f"ECP5-{result.device}F, MHz", f"{routing.mhz:.1f}", f">= {MHZ:.0f}")
        table.add_row("longest path, ns", f"{1000 / routing.mhz:.2f}", "")
        table.add_row(
            "  in cells / in wires, ns", f"{routing.logic_ns:.2f} / {routing.routing_ns:.2f}", ""
        )
        table.add_row("  from", routing.start, "")
        table.add_row("  through", routing.through, "")
        table.add_row("  to", routing.end, "")
        for name, used in routing.used.items():
            if used:
                share = 100 * used / routing.available[name]
                table.add_row(f"{name} (with harness)", f"{used} ({share:.0f} %)", "")
        table.add_section()
    table.add_row("UltraScale+, LUT", str(result.area.luts), "")
    table.add_row("LUT as memory", str(result.area.lut_memory), "")
    table.add_row("registers", str(result.area.registers), "")
    table.add_row("multipliers", str(result.area.multipliers), "")
    for name, (used, most) in result.core().items():
        table.add_row(f"{name}, all together", str(used), f"<= {most}")
    table.add_row("block RAM (36 Kbit)", f"{result.area.block_rams:g}", "")
    table.add_row("LUT levels", str(result.depth.lut_levels), f"<= {LUT_LEVELS}")
    table.add_row("  from", result.depth.start, "")
    table.add_row("  to", result.depth.end, "")
    table.add_row("carry chains on a path", str(result.depth.carry_chains), "")
    table.add_row("longest carry chain, bits", str(result.depth.carry_bits), f"<= {CARRY_BITS}")
    return table


def unit_table(result: Result) -> Table:
    table = Table(title="Units alone, UltraScale+, a lane")
    table.add_column("unit")
    for heading in ("LUT", "target", "registers", "multipliers", "LUT levels", "carry bits"):
        table.add_column(heading, justify="right")
    for unit in result.units:
        table.add_row(
            unit.name,
            f"{unit.luts:.0f}",
            "" if unit.target_luts is None else f"<= {unit.target_luts:.0f}",
            f"{unit.area.registers / unit.lanes:.0f}",
            f"{unit.area.multipliers / unit.lanes:g}",
            str(unit.depth.lut_levels),
            str(unit.depth.carry_bits),
        )
    return table


def synth(
    preset: Annotated[str, typer.Option(help="Preset to build.")] = "ecp5",
    lanes: Annotated[int | None, typer.Option(help="Lanes of both units, p_n = p_d.")] = None,
    device: Annotated[str, typer.Option(help=f"ECP5 device: {', '.join(ECP5_PACKAGES)}.")] = "85",
    seed: Annotated[int, typer.Option(help="Seed of the placement.")] = 1,
    route: Annotated[bool, typer.Option(help="Route the core, the longest step.")] = True,
    keep: Annotated[Path | None, typer.Option(help="Folder for the tools' files.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    check: Annotated[
        bool, typer.Option(help="End with status 1 where a target is missed.")
    ] = False,
) -> None:
    """Clock, area and depth of a build, from the open tools.

    Example: python bench/synth.py --preset ecp5 --lanes 8
    """
    console = Console(stderr=True)
    try:
        if device not in ECP5_PACKAGES:
            raise ConfigurationError(
                f"device = {device!r} is not one of {', '.join(ECP5_PACKAGES)}"
            )
        configuration = Configuration.preset(preset)
        if lanes is not None:
            configuration = configuration.with_(p_n=lanes, p_d=lanes)
    except ConfigurationError as error:
        console.print(f"[bold red]error:[/] {error}")
        raise typer.Exit(2) from None
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with TemporaryDirectory() as temporary, Progress(*columns, console=console) as progress:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)

        def step(name: str) -> None:
            for task in progress.tasks:
                progress.update(task.id, total=1, completed=1)
            progress.add_task(name, total=None)

        try:
            result = measure(
                configuration, folder, device=device, seed=seed, route=route, step=step
            )
        except SynthesisError as error:
            console.print(f"[bold red]error:[/] {error}")
            raise typer.Exit(1) from None
    if as_json:
        json.dump(asdict(result) | {"misses": result.misses()}, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        output = Console()
        output.print(unit_table(result))
        output.print(core_table(result))
        for miss in result.misses():
            output.print(f"[yellow]beyond its target:[/] {miss}")
    if check and result.misses():
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(synth)
