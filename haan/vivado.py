# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Projects for Vivado that build without a click: Verilog, constraints and a Tcl script for an Alveo card without its shell."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from .boards.alveo import Alveo
from .config import Configuration
from .hdl import generate_alveo, generate_uart
from .hdl.alveo import AlveoTop, Mmcm
from .netlist import area, depth
from .synthesis import SynthesisError, map_verilog

STEM = AlveoTop.MODULE
SCRIPT = "build.tcl"
COMMAND = ("vivado", "-mode", "batch", "-source", SCRIPT)


@dataclass(frozen=True)
class Result:
    """A project, and what the open tools say of it."""

    board: str
    part: str
    configuration: str
    project: str
    """The script that builds it."""
    bitstream: str | None
    """The file; None: Vivado isn't here."""
    mhz: float
    baud: int
    luts: int
    lut_memory: int
    registers: int
    multipliers: int
    block_rams: float
    """Of 36 Kbit."""
    lut_levels: int
    carry_bits: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def as_table(self) -> Table:
        """For the terminal."""
        table = Table(
            title=f"{self.configuration} on {self.board}, mapped to UltraScale+ with Yosys",
            show_header=False,
        )
        rows = {
            "LUT": self.luts,
            "LUT as memory": self.lut_memory,
            "registers": self.registers,
            "multipliers (DSP48E2)": self.multipliers,
            "block RAM (36 Kbit)": self.block_rams,
            "most LUTs between registers": self.lut_levels,
            "longest carry chain, bits": self.carry_bits,
        }
        for name, figure in rows.items():
            table.add_row(name, f"{figure:,g}")
        table.add_row("clock", f"{self.mhz:g} MHz")
        return table


def build(
    configuration: Configuration,
    card: Alveo,
    folder: Path,
    *,
    mhz: float,
    baud: int,
    step: Callable[[str], None],
) -> Result:
    """Writes the project, builds it if Vivado is on the PATH, and maps the design with Yosys; `step` is told what is being done.

    Raises ConfigurationError where the clock or the line can't be made, and SynthesisError where a tool fails.
    """
    step("Generating Verilog")
    mmcm = Mmcm.nearest(card.clock_hz, mhz * 1e6)
    pins = card.pins()
    verilog = generate_alveo(
        configuration, mmcm, baud, reset="reset_n" in pins, cattrip="hbm_cattrip" in pins
    )
    texts = {
        f"{STEM}.v": verilog,
        f"{STEM}.xdc": constraints(card),
        SCRIPT: script(card),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    built = shutil.which(COMMAND[0]) is not None
    if built:
        step("Vivado")
        _run(folder)
    step("Synthesis (Yosys)")
    inner = generate_uart(configuration, mmcm.hz, baud)
    netlist = map_verilog(inner, "haan_uart", "xcup", folder, "haan_uart")
    found, deep = area(netlist), depth(netlist)
    return Result(
        board=card.name,
        part=card.part,
        configuration=configuration.name,
        project=str(folder / SCRIPT),
        bitstream=str(folder / f"{STEM}.bit") if built else None,
        mhz=mmcm.hz / 1e6,
        baud=baud,
        luts=found.luts,
        lut_memory=found.lut_memory,
        registers=found.registers,
        multipliers=found.multipliers,
        block_rams=found.block_rams,
        lut_levels=deep.lut_levels,
        carry_bits=deep.carry_bits,
    )


def constraints(card: Alveo) -> str:
    """Pins, the clock, and that all other pins belong to no clock (XDC)."""
    lines = [
        f"set_property -dict {{PACKAGE_PIN {site} IOSTANDARD {standard}}} [get_ports {port}]"
        for port, (site, standard) in card.pins().items()
    ]
    lines.append(f"create_clock -period {1e9 / card.clock_hz:.4f} [get_ports clock_p]")
    for port in card.pins():
        if not port.startswith("clock"):
            way = "to" if port in ("tx", "hbm_cattrip") else "from"
            lines.append(f"set_false_path -{way} [get_ports {port}]")
    lines += [
        "set_property CONFIG_VOLTAGE 1.8 [current_design]",
        "set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]",
        "set_property BITSTREAM.CONFIG.OVERTEMPSHUTDOWN ENABLE [current_design]",
    ]
    return "\n".join([*lines, ""])


def script(card: Alveo) -> str:
    """Makes the project `vivado/` beside the script and from it the bitstream. Ends with status 1 where timing isn't met."""
    return f"""# vivado -mode batch -source {SCRIPT}
set here [file dirname [file normalize [info script]]]
create_project -force {STEM} $here/vivado -part {card.part}
add_files $here/{STEM}.v
add_files -fileset constrs_1 $here/{STEM}.xdc
set_property top {STEM} [current_fileset]
launch_runs impl_1 -to_step write_bitstream
wait_on_run impl_1
if {{[get_property PROGRESS [get_runs impl_1]] ne "100%"}} {{ exit 1 }}
open_run impl_1
report_utilization -file $here/utilization.txt
report_timing_summary -file $here/timing.txt
file copy -force $here/vivado/{STEM}.runs/impl_1/{STEM}.bit $here/{STEM}.bit
if {{[get_property SLACK [get_timing_paths]] < 0}} {{
    puts "ERROR: the design is slower than its clock: timing.txt"
    exit 1
}}
"""


def _run(folder: Path) -> None:
    with (folder / "vivado.txt").open("w", encoding="utf-8") as log:
        done = subprocess.run(
            COMMAND, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        text = (folder / "vivado.txt").read_text(encoding="utf-8", errors="replace")
        errors = [line for line in text.splitlines() if line.startswith("ERROR")][:3]
        raise SynthesisError(f"Vivado failed, see {log.name}: {' '.join(errors)}")
