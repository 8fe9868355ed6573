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

Bit = int | str
Cell = dict[str, Any]


def pack_multiplier_registers(netlist: dict[str, Any], top: str) -> int:
    """Moves registers into the multipliers of a flat netlist in ECP5 cells, as Yosys writes it in JSON; changes the netlist.

    The factors move if each of their bits is a constant 0 or comes from a register, those of one factor with one reset; the product,
    if each of its bits goes to a register without a reset and nowhere else. No other net sees another value at any time.

    Returns
    -------
    How many registers left the fabric. One that also feeds other cells stays there as well.
    """
    module = netlist["modules"][top]
    cells: dict[str, Cell] = module["cells"]
    size = len(cells)
    multipliers = [cell for cell in cells.values() if cell["type"] == "MULT18X18D"]
    registers = {name: cell for name, cell in cells.items() if _movable(cell)}
    ahead = {_net(cell, "Q"): cell for cell in registers.values()}
    for multiplier in multipliers:
        _move_factors(multiplier, ahead)
    loads = _loads(module)
    for name, cell in list(registers.items()):
        if not loads[_net(cell, "Q")]:
            del cells[name], registers[name]
    loads = _loads(module)
    behind = {_net(cell, "DI"): name for name, cell in registers.items()}
    for multiplier in multipliers:
        _move_product(multiplier, behind, cells, loads)
    return size - len(cells)


def _movable(cell: Cell) -> bool:
    parameters = cell["parameters"]
    return cell["type"] == "TRELLIS_FF" and all(
        parameters.get(name, value).strip() == value for name, value in _MOVABLE.items()
    )


def _net(cell: Cell, port: str) -> Bit:
    bit: Bit = cell["connections"].get(port, ["0"])[0]
    return bit


def _loads(module: dict[str, Any]) -> Counter[Bit]:
    """How many pins read each net."""
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


def _move_factors(multiplier: Cell, ahead: dict[Bit, Cell]) -> None:
    """Has the factors registered in the multiplier; `ahead`: the register that drives a net."""
    pins = {
        port: [pin for pin in names if _net(multiplier, pin) != "0"]
        for port, names in _FACTORS.items()
    }
    if any(_net(multiplier, pin) not in ahead for names in pins.values() for pin in names):
        return
    controls = [_control(ahead[_net(multiplier, pin)] for pin in names) for names in pins.values()]
    if None in controls or len({control[0] for control in controls if control}) > 1:
        return
    for place, ((port, names), control) in enumerate(zip(pins.items(), controls, strict=True)):
        assert control is not None
        _register(multiplier, f"REG_INPUT{port}", f"RST{place}", *control)
        for pin in names:
            multiplier["connections"][pin] = [_net(ahead[_net(multiplier, pin)], "DI")]


def _move_product(
    multiplier: Cell, behind: dict[Bit, str], cells: dict[str, Cell], loads: Counter[Bit]
) -> None:
    """Has the product registered in the multiplier; `behind`: the register that takes a net."""
    pins = [pin for pin in _PRODUCT if loads[_net(multiplier, pin)]]
    nets = [_net(multiplier, pin) for pin in pins]
    if any(loads[net] > 1 or net not in behind for net in nets):
        return
    control = _control(cells[behind[net]] for net in nets)
    if control is None or control[1] != "0":
        return
    if "CLK0" in multiplier["connections"] and _net(multiplier, "CLK0") != control[0]:
        return
    _register(multiplier, "REG_OUTPUT", "RST2", *control)
    for pin, net in zip(pins, nets, strict=True):
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
