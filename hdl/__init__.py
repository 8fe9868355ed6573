# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The hardware: Amaranth modules, and the functions that turn a configuration into Verilog."""

from collections.abc import Callable, Collection
from typing import Literal

from amaranth.lib import wiring

from ..config import Configuration
from .alveo import AlveoTop, Mmcm
from .axi import HaanAxi, axi_ports
from .board import BoardTop, Pll
from .control import Records
from .core import Core, core_ports
from .emit import emit
from .inverse_sqrt import InverseSqrtUnit
from .link import HaanUart, check_link
from .normalization import lane_kind
from .registers import RegisterBlock
from .row import RowUnit
from .statistics import StatisticsUnit

Top = Literal["haan_axi", "haan_core"]
"""The accelerator with its control plane, and the bare one that it contains."""


def _lane(configuration: Configuration) -> wiring.Component:
    return lane_kind(configuration.what)(configuration)


UNITS: dict[str, Callable[[Configuration], wiring.Component]] = {
    "statistics": StatisticsUnit,
    "inverse_sqrt": InverseSqrtUnit,
    "lane": _lane,
    "row": RowUnit,
    "registers": RegisterBlock,
}
"""The units that `generate_unit` makes a top module of."""


def generate(
    configuration: Configuration, top: Top = "haan_axi", records: Records | None = None
) -> str:
    """Verilog of the accelerator with this top module. The same arguments give the same bytes.

    `records`, for `haan_axi` alone: layers that exist from the start (`haan.layers.LayerTable.records`).
    """
    made = HaanAxi(configuration, records) if top == "haan_axi" else Core(configuration)
    return emit(made, top)


def generate_uart(configuration: Configuration, clock_hz: float, baud: int) -> str:
    """Verilog of the accelerator behind a serial line, module `haan_uart`. `clock_hz`: frequency of its clock."""
    check_link(configuration, clock_hz, baud)
    return emit(HaanUart(configuration, clock_hz, baud), HaanUart.MODULE)


def generate_board(
    configuration: Configuration, pll: Pll, baud: int, *, led: bool, high: Collection[str] = ()
) -> str:
    """Verilog of the top of an ECP5 board, module `haan_board`; arguments as for `hdl.board.BoardTop`."""
    check_link(configuration, pll.hz, baud)
    return emit(BoardTop(configuration, pll, baud, led=led, high=high), BoardTop.MODULE)


def generate_alveo(
    configuration: Configuration, mmcm: Mmcm, baud: int, *, reset: bool, cattrip: bool
) -> str:
    """Verilog of the top of an Alveo card, module `haan_alveo`; arguments as for `hdl.alveo.AlveoTop`."""
    check_link(configuration, mmcm.hz, baud)
    top = AlveoTop(configuration, mmcm, baud, reset=reset, cattrip=cattrip)
    return emit(top, AlveoTop.MODULE)


def generate_unit(configuration: Configuration, unit: str) -> str:
    """Verilog of one unit of `UNITS`, with the unit's name as its top module."""
    return emit(UNITS[unit](configuration), unit)


def ports(configuration: Configuration, top: Top = "haan_axi") -> list[tuple[str, str, int]]:
    """(name, "input" | "output", width in bits) of every port of a top module."""
    if top == "haan_axi":
        return axi_ports(configuration)
    return [("clk", "input", 1), ("rst", "input", 1), *core_ports(configuration)]
