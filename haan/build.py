# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Bitstreams for boards, with the open tools: synthesis, placement and routing, packing; figures come from the tools' files."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from .boards import Board
from .config import Configuration
from .estimate import interval
from .hdl import generate_board
from .hdl.board import BoardTop, Pll
from .layer import LayerSettings
from .synthesis import Routing, map_ecp5, place_ecp5, run_tool

STEM = "haan_board"
CELLS = {
    "TRELLIS_COMB": "LUT",
    "TRELLIS_FF": "registers",
    "MULT18X18D": "multipliers",
    "DP16KD": "memory blocks (18 Kbit)",
}
"""nextpnr's names of what a design takes, and ours."""


@dataclass(frozen=True)
class Result:
    """A bitstream, and what it is like."""

    board: str
    device: str
    configuration: str
    bitstream: str
    """The file."""
    wanted_mhz: float
    """The clock that the PLL makes."""
    achieved_mhz: float
    """The fastest that the routed design is good for."""
    baud: int
    used: dict[str, int]
    """By the names of `CELLS`."""
    available: dict[str, int]
    start: str
    """The registers at both ends of the longest path."""
    end: str
    rows_per_second: dict[int, float]
    """N -> rows that the accelerator does in a second; the serial line brings far fewer."""

    @property
    def good(self) -> bool:
        """The design is as fast as its clock."""
        return self.achieved_mhz >= self.wanted_mhz

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"good": self.good}

    def as_table(self) -> Table:
        """For the terminal."""
        table = Table(title=f"{self.configuration} on {self.board} ({self.device})")
        table.add_column("")
        table.add_column("", justify="right")
        table.add_column("of the chip", justify="right")
        for name, used in self.used.items():
            share = f"{100 * used / self.available[name]:.0f} %"
            table.add_row(name, f"{used:,}", share)
        table.add_section()
        table.add_row("clock", f"{self.wanted_mhz:g} MHz", "")
        table.add_row("fastest, routed with nextpnr", f"{self.achieved_mhz:.1f} MHz", "")
        table.add_row("longest path from", self.start, "")
        table.add_row("  to", self.end, "")
        for n, rows in self.rows_per_second.items():
            table.add_row(f"rows a second, N = {n}", f"{rows:,.0f}", "")
        return table


def build(
    configuration: Configuration,
    board: Board,
    folder: Path,
    *,
    mhz: float,
    baud: int,
    seed: int,
    step: Callable[[str], None],
) -> Result:
    """Makes `haan_board.bit` in the folder, beside the files it comes from; `step` is told what is being done.

    Raises ConfigurationError where the clock or the line can't be made, and SynthesisError where a tool is missing or fails, for
    example as the design doesn't fit.
    """
    step("Generating Verilog")
    pll = Pll.nearest(board.clock_hz, mhz * 1e6)
    ports = {pin.port for pin in board.pins()}
    verilog = generate_board(configuration, pll, baud, led="led" in ports, high=board.high)
    (folder / f"{STEM}.lpf").write_text(constraints(board), encoding="utf-8")
    step("Synthesis (Yosys)")
    map_ecp5(verilog, BoardTop.MODULE, folder, STEM)
    step("Placement and routing (nextpnr)")
    chip = [*board.options, "--lpf", f"{STEM}.lpf", "--textcfg", f"{STEM}.config"]
    routing = place_ecp5(chip, folder, STEM, mhz=pll.hz / 1e6, seed=seed)
    step("Bitstream (ecppack)")
    pack = ["--compress", "--input", f"{STEM}.config", "--bit", f"{STEM}.bit"]
    run_tool("ecppack", pack, folder)
    return _result(configuration, board, folder, pll, baud, routing)


def constraints(board: Board) -> str:
    """Pins and clock of the board, as nextpnr reads them (LPF)."""
    lines = []
    for pin in board.pins():
        attributes = " ".join(f"{name}={value}" for name, value in pin.attributes.items())
        lines += [f'LOCATE COMP "{pin.port}" SITE "{pin.site}";']
        lines += [f'IOBUF PORT "{pin.port}" {attributes};']
    lines.append(f'FREQUENCY PORT "clock" {board.clock_hz / 1e6:g} MHZ;')
    return "\n".join([*lines, ""])


def _result(
    configuration: Configuration,
    board: Board,
    folder: Path,
    pll: Pll,
    baud: int,
    routing: Routing,
) -> Result:
    lengths = [n for n in (64, 768, 4096) if n <= configuration.what.max_n]
    rows = {}
    for n in lengths or [configuration.what.max_n]:
        given = LayerSettings.defaults(configuration)
        given["n_sub"] = min(n, configuration.what.n_sub or n)
        rows[n] = pll.hz / interval(configuration, LayerSettings(n=n, **given))
    return Result(
        board=board.name,
        device=board.device,
        configuration=configuration.name,
        bitstream=str(folder / f"{STEM}.bit"),
        wanted_mhz=pll.hz / 1e6,
        achieved_mhz=routing.mhz,
        baud=baud,
        used={name: routing.used[cell] for cell, name in CELLS.items()},
        available={name: routing.available[cell] for cell, name in CELLS.items()},
        start=routing.start,
        end=routing.end,
        rows_per_second=rows,
    )
