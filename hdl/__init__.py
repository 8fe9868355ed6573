# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The hardware: Amaranth modules, and the functions that turn a configuration into Verilog."""

from ..config import Configuration
from .core import Core, core_ports
from .emit import emit
from .inverse_sqrt import InverseSqrtUnit
from .lane import Lane
from .statistics import StatisticsUnit

UNITS = {"statistics": StatisticsUnit, "inverse_sqrt": InverseSqrtUnit, "lane": Lane}
"""The units that `generate_unit` makes a top module of."""


def generate(configuration: Configuration) -> str:
    """Verilog of the accelerator; top module `haan_core`. The same configuration gives the same bytes."""
    return emit(Core(configuration), "haan_core")


def generate_unit(configuration: Configuration, unit: str) -> str:
    """Verilog of one unit of `UNITS`, with the unit's name as its top module."""
    return emit(UNITS[unit](configuration), unit)


def ports(configuration: Configuration) -> list[tuple[str, str, int]]:
    """(name, "input" | "output", width in bits) of every port of `haan_core`."""
    return [("clk", "input", 1), ("rst", "input", 1), *core_ports(configuration)]
