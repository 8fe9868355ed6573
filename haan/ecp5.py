# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Registers of a mapped ECP5 netlist that move into the multipliers beside them.

Yosys maps a product to a MULT18X18D without its registers, and leaves those before and behind it in the fabric: then the ways to and
from one of the few columns of multipliers lie in the same clock period as the product. Each product of this design has a register on
either side; nextpnr knows the delays with and without them.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from .netlist import Bit, Netlist, levels

_FACTORS = {port: [f"{port}{place}" for place in range(18)] for port in "AB"}
_PRODUCT = [f"P{place}" for place in range(36)]
"""Pins of a MULT18X18D."""
_MOVABLE = {
    "CEMUX": "1",
    "CLKMUX": "CLK",
    "LSRMUX": "LSR",
    "REGSET": "RESET",
    "SRMODE": "LSR_OVER_CE",
}
"""What the registers of a multiplier can do: no enable, rising edge, a synchronous reset to 0."""
_SHALLOW = 3
"""Levels of logic that leave time for the way to or from a multiplier."""

Cell = dict[str, Any]


def pack_multiplier_registers(netlist: dict[str, Any], top: str) -> int:
    """Moves registers into the multipliers of a flat netlist in ECP5 cells, as Yosys writes it in JSON; changes the netlist.

    The factors can move if each of their bits is a constant 0 or comes from a register, those of one factor with one reset; the product,
    if each of its bits goes to a register without a reset and nowhere else. Those move that have little logic before the factors or
    behind the product, for the way to or from the multiplier comes on top of it; if there is much on either side, the better one.
    No other net sees another value at any time.

    Returns
    -------
    How many registers left the fabric. One that also feeds other cells stays there as well.
    """
    cells: dict[str, Cell] = netlist["modules"][top]["cells"]
    size = len(cells)
    multipliers = [cell for cell in cells.values() if cell["type"] == "MULT18X18D"]
    wanted = _sides(netlist, top, multipliers)
    # Between two multipliers the first keeps its register if it can get no other.
    loads, behind = _loads(netlist, top), _behind(cells)
    for multiplier, sides in zip(multipliers, wanted, strict=True):
        if sides == {"product"}:
            _move_product(multiplier, behind, cells, loads)
    ahead = _ahead(cells)
    for multiplier, sides in zip(multipliers, wanted, strict=True):
        if "factors" in sides:
            _move_factors(multiplier, ahead)
    loads = _loads(netlist, top)
    for name, cell in list(cells.items()):
        if _movable(cell) and not loads[_net(cell, "Q")]:
            del cells[name]
    loads, behind = _loads(netlist, top), _behind(cells)
    for multiplier, sides in zip(multipliers, wanted, strict=True):
        if sides == {"factors", "product"}:
            _move_product(multiplier, behind, cells, loads)
    return size - len(cells)


def _sides(netlist: dict[str, Any], top: str, multipliers: list[Cell]) -> list[set[str]]:
    """What is to move, of each multiplier: its `factors`, its `product`."""
    cells = netlist["modules"][top]["cells"]
    logic, loads = levels(Netlist(netlist, top)), _loads(netlist, top)
    ahead, behind = _ahead(cells), _behind(cells)
    wanted = []
    for multiplier in multipliers:
        depths = {}
        if _factor_controls(multiplier, ahead):
            inputs = [_net(ahead[net], "DI") for net in _factor_nets(multiplier)]
            depths["factors"] = max(logic.before.get(net, 0) for net in inputs)
        if _product_control(multiplier, behind, cells, loads):
            outputs = [_net(cells[behind[net]], "Q") for net in _product_nets(multiplier, loads)]
            depths["product"] = max(logic.behind.get(net, 0) for net in outputs)
        shallow = {side for side, levels in depths.items() if levels <= _SHALLOW}
        wanted.append(shallow or set(sorted(depths, key=depths.__getitem__)[:1]))
    return wanted


def _movable(cell: Cell) -> bool:
    parameters = cell["parameters"]
    return cell["type"] == "TRELLIS_FF" and all(
        parameters.get(name, value).strip() == value for name, value in _MOVABLE.items()
    )


def _net(cell: Cell, port: str) -> Bit:
    bit: Bit = cell["connections"].get(port, ["0"])[0]
    return bit


def _ahead(cells: dict[str, Cell]) -> dict[Bit, Cell]:
    """The register that drives a net, of those that can move."""
    return {_net(cell, "Q"): cell for cell in cells.values() if _movable(cell)}


def _behind(cells: dict[str, Cell]) -> dict[Bit, str]:
    """The register that takes a net, of those that can move."""
    return {_net(cell, "DI"): name for name, cell in cells.items() if _movable(cell)}


def _loads(netlist: dict[str, Any], top: str) -> Counter[Bit]:
    """How many pins read each net."""
    module = netlist["modules"][top]
    loads = Counter(bit for port in module["ports"].values() for bit in port["bits"])
    for cell in module["cells"].values():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input":
                loads.update(bits)
    return loads


def _control(registers: Iterable[Cell]) -> tuple[Bit, Bit] | None:
    """Clock and reset that the registers share."""
    found = {(_net(cell, "CLK"), _net(cell, "LSR")) for cell in registers}
    return found.pop() if len(found) == 1 else None


def _factor_nets(multiplier: Cell, port: str = "AB") -> list[Bit]:
    nets = [_net(multiplier, pin) for each in port for pin in _FACTORS[each]]
    return [net for net in nets if net != "0"]


def _factor_controls(multiplier: Cell, ahead: dict[Bit, Cell]) -> list[tuple[Bit, Bit]]:
    """Clock and reset of the registers before either factor; none if they can't move."""
    if any(net not in ahead for net in _factor_nets(multiplier)):
        return []
    found = [_control(ahead[net] for net in _factor_nets(multiplier, port)) for port in _FACTORS]
    controls = [control for control in found if control]
    return controls if len(controls) == 2 and controls[0][0] == controls[1][0] else []


def _move_factors(multiplier: Cell, ahead: dict[Bit, Cell]) -> None:
    # Registers between two multipliers may have moved into the other one.
    controls = _factor_controls(multiplier, ahead)
    if not controls:
        return
    for place, ((port, pins), control) in enumerate(zip(_FACTORS.items(), controls, strict=True)):
        _register(multiplier, f"REG_INPUT{port}", f"RST{place}", *control)
        for pin in pins:
            if _net(multiplier, pin) != "0":
                multiplier["connections"][pin] = [_net(ahead[_net(multiplier, pin)], "DI")]


def _product_nets(multiplier: Cell, loads: Counter[Bit]) -> list[Bit]:
    return [net for net in (_net(multiplier, pin) for pin in _PRODUCT) if loads[net]]


def _product_control(
    multiplier: Cell, behind: dict[Bit, str], cells: dict[str, Cell], loads: Counter[Bit]
) -> tuple[Bit, Bit] | None:
    """Clock and reset of the registers behind the product; None if they can't move."""
    nets = _product_nets(multiplier, loads)
    if any(loads[net] > 1 or net not in behind for net in nets):
        return None
    control = _control(cells[behind[net]] for net in nets)
    if control is None or control[1] != "0":
        return None
    if "CLK0" in multiplier["connections"] and _net(multiplier, "CLK0") != control[0]:
        return None
    return control


def _move_product(
    multiplier: Cell, behind: dict[Bit, str], cells: dict[str, Cell], loads: Counter[Bit]
) -> None:
    control = _product_control(multiplier, behind, cells, loads)
    if control is None:
        return
    _register(multiplier, "REG_OUTPUT", "RST2", *control)
    for pin in _PRODUCT:
        net = _net(multiplier, pin)
        if loads[net]:
            multiplier["connections"][pin] = [_net(cells.pop(behind[net]), "Q")]


def _register(multiplier: Cell, kind: str, reset_pin: str, clock: Bit, reset: Bit) -> None:
    """Switches one of a multiplier's registers on."""
    for port, bit in {"CLK0": clock, "CE0": "1", reset_pin: reset}.items():
        multiplier["connections"][port] = [bit]
        multiplier["port_directions"][port] = "input"
    multiplier["parameters"] |= {
        "RESETMODE": "SYNC",
        f"{kind}_CLK": "CLK0",
        f"{kind}_CE": "CE0",
        f"{kind}_RST": reset_pin,
    }
