# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Netlists as Yosys writes them (`write_json`): what they are made of, and which paths lie between their registers."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

Bit = int | str
"""A net of one bit: its number, or "0", "1", "x", "z"."""


class NetlistError(RuntimeError):
    """A netlist holds something that this module can't judge."""


class Pin(NamedTuple):
    """One bit of a port of a cell."""

    port: str
    place: int
    """Index of the bit in the port."""
    bit: Bit


class Port(NamedTuple):
    """A port of a module."""

    direction: str
    """`input` or `output`."""
    bits: tuple[Bit, ...]

    @property
    def width(self) -> int:
        return len(self.bits)


class Cell(NamedTuple):
    """A cell of a netlist."""

    name: str
    kind: str
    parameters: dict[str, str]
    inputs: tuple[Pin, ...]
    outputs: tuple[Pin, ...]


class Netlist:
    """One flat module.

    Parameters
    ----------
    data : the parsed JSON
    top : name of the module
    """

    def __init__(self, data: dict[str, Any], top: str) -> None:
        if top not in data["modules"]:
            raise NetlistError(
                f"no module {top!r}; there are: {', '.join(sorted(data['modules']))}"
            )
        module = data["modules"][top]
        self.ports = {
            name: Port(port["direction"], tuple(port["bits"]))
            for name, port in module["ports"].items()
        }
        self.cells = [_cell(name, cell) for name, cell in module["cells"].items()]
        self._names = module["netnames"]

    @cached_property
    def counts(self) -> Counter[str]:
        """Cells of each kind."""
        return Counter(cell.kind for cell in self.cells)

    @cached_property
    def drivers(self) -> dict[Bit, tuple[Cell, Pin]]:
        """The cell and pin that drive a net."""
        return {pin.bit: (cell, pin) for cell in self.cells for pin in cell.outputs}

    @cached_property
    def names(self) -> dict[Bit, str]:
        """A readable name for each net: of several the one that the source gave it, the shortest first."""
        names: dict[Bit, str] = {}
        order = sorted(
            self._names.items(), key=lambda item: (item[1]["hide_name"], len(item[0]), item[0])
        )
        for name, net in order:
            for index, bit in enumerate(net["bits"]):
                names.setdefault(bit, f"{name}[{index}]" if len(net["bits"]) > 1 else name)
        return names

    def name(self, bit: Bit | None) -> str:
        """A readable name of a net; its number if it has none."""
        return "" if bit is None else self.names.get(bit, str(bit))

    def combinational_path(
        self, start: Bit, ends: dict[Bit, str], boundary: Callable[[Cell], bool]
    ) -> list[str] | None:
        """Walks from a net against the direction of the signals through cells that are no boundary (a cell counts as passing
        everything from each input to each output). The names of the nets on the way to one of `ends`, or None.
        """
        came: dict[Bit, Bit | None] = {start: None}
        queue = [start]
        for bit in queue:
            if bit in ends:
                path, step = [ends[bit]], came[bit]
                while step is not None:
                    path.append(self.name(step))
                    step = came[step]
                return path
            driver = self.drivers.get(bit)
            if driver is None or boundary(driver[0]):
                continue
            for pin in driver[0].inputs:
                if isinstance(pin.bit, int) and pin.bit not in came:
                    came[pin.bit] = bit
                    queue.append(pin.bit)
        return None


def _cell(name: str, cell: dict[str, Any]) -> Cell:
    pins: dict[str, list[Pin]] = {"input": [], "output": []}
    for port, bits in cell["connections"].items():
        direction = cell["port_directions"][port]
        if direction not in pins:
            raise NetlistError(
                f"cell {name} of kind {cell['type']} has the {direction} port {port}"
            )
        pins[direction] += [Pin(port, place, bit) for place, bit in enumerate(bits)]
    return Cell(name, cell["type"], cell["parameters"], tuple(pins["input"]), tuple(pins["output"]))


# What the mapped netlists of the two families are made of.

_LUT = re.compile(r"LUT[1-6]")
_REGISTERS = re.compile(r"FD[RS]E|TRELLIS_FF")
_BLOCK_RAMS = {"RAMB36E2": 1.0, "RAMB18E2": 0.5, "DP16KD": 1.0, "PDPW16KD": 1.0}
_MULTIPLIERS = {"DSP48E2", "MULT18X18D"}
_MULTIPLIER_REGISTERS = ("AREG", "BREG", "CREG", "DREG", "MREG", "PREG")
_FREE = re.compile(r"INV|MUXF[789]|PFUMX|L6MUX21|[IO]BUFG?|BUFG|TRELLIS_IO")
_ALU = {"ALU54B"}
_LUT_MEMORIES = {
    "SRL16E": 1,
    "SRLC32E": 1,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
    "TRELLIS_DPR16X4": 4,
}
"""LUTs that a memory made of LUTs takes."""
_READ_ADDRESS = re.compile(r"A\d?|ADDR[A-H]|DPRA|RAD")
_CARRIES = {"CARRY4": 4, "CCU2C": 2}
"""Bits of a carry chain in a cell."""


@dataclass(frozen=True)
class Area:
    """What a mapped netlist takes."""

    luts: int
    """LUT1 to LUT6; on ECP5 LUT4, the two LUTs of a carry cell included."""
    lut_memory: int
    """LUTs used as memory or shift registers."""
    registers: int
    multipliers: int
    block_rams: float
    """RAMB36 (a RAMB18 is half of one) or DP16KD."""


def area(netlist: Netlist) -> Area:
    """Counts a netlist that `synth_xilinx` or `synth_ecp5` mapped."""
    counts = netlist.counts
    return Area(
        luts=sum(n for kind, n in counts.items() if _LUT.fullmatch(kind)) + 2 * counts["CCU2C"],
        lut_memory=sum(luts * counts[kind] for kind, luts in _LUT_MEMORIES.items()),
        registers=sum(n for kind, n in counts.items() if _REGISTERS.fullmatch(kind)),
        multipliers=sum(counts[kind] for kind in _MULTIPLIERS),
        block_rams=sum(blocks * counts[kind] for kind, blocks in _BLOCK_RAMS.items()),
    )


class Arc(NamedTuple):
    """A combinational way through a cell."""

    pin: Pin
    luts: int
    enters: int
    """1 where a carry chain is entered (not where it goes on in the next cell)."""


def arcs(cell: Cell, output: Pin) -> Iterator[Arc]:
    """The ways that end at an output of a mapped cell. A register, a block RAM or a multiplier with registers has none."""
    kind = cell.kind
    if _LUT.fullmatch(kind):
        yield from (Arc(pin, 1, 0) for pin in cell.inputs)
    elif kind in _CARRIES:
        yield from _carry_arcs(cell, output)
    elif _FREE.fullmatch(kind) or kind in _ALU:
        yield from (Arc(pin, 0, 0) for pin in cell.inputs)
    elif kind in _LUT_MEMORIES:
        yield from (Arc(pin, 1, 0) for pin in cell.inputs if _READ_ADDRESS.fullmatch(pin.port))
    elif kind in _MULTIPLIERS:
        if not any("1" in cell.parameters.get(name, "0") for name in _MULTIPLIER_REGISTERS):
            yield from (Arc(pin, 0, 0) for pin in cell.inputs)
    elif not (
        _REGISTERS.fullmatch(kind)
        or kind in _BLOCK_RAMS
        or kind in ("EHXPLLL", "GND", "VCC", "$scopeinfo")
    ):
        raise NetlistError(f"cell {cell.name} is of the unknown kind {kind}")


def _carry_arcs(cell: Cell, output: Pin) -> Iterator[Arc]:
    """Position i of a chain depends on the positions up to i, and on the carry into the cell."""
    last = _position(cell.kind, output)
    for pin in cell.inputs:
        carried = pin.port in ("CI", "CIN")
        if carried or pin.port == "CYINIT" or _position(cell.kind, pin) <= last:
            # A CCU2C holds the LUTs before its carries.
            luts = int(cell.kind == "CCU2C" and not carried)
            yield Arc(pin, luts, int(not carried))


def _position(kind: str, pin: Pin) -> int:
    """Place of a pin in its cell's part of the chain, from 0."""
    if kind == "CARRY4":
        return pin.place
    return 1 if pin.port == "COUT" or pin.port.endswith("1") else 0


@dataclass(frozen=True)
class Depth:
    """The longest ways between registers (or ports), each kind by itself."""

    lut_levels: int
    """LUTs on a way; carries, wide multiplexers and multipliers count nothing."""
    start: str
    """Where the way with the most LUTs comes from: the net of a register's output, or of a port."""
    end: str
    """The net that it ends at, or the output of the register that takes it."""
    carry_chains: int
    """Carry chains on a way."""
    carry_bits: int
    """Bits of the longest carry chain."""


def depth(netlist: Netlist) -> Depth:
    """Measures a netlist that `synth_xilinx` or `synth_ecp5` mapped; raises NetlistError for a combinational loop."""
    luts: dict[Bit, int] = {}
    chains: dict[Bit, int] = {}
    came: dict[Bit, Bit | None] = {}
    for bit in _sorted_from_registers(netlist):
        cell, output = netlist.drivers[bit]
        luts[bit] = chains[bit] = 0
        came[bit] = None
        for arc in arcs(cell, output):
            level = luts.get(arc.pin.bit, 0) + arc.luts
            chains[bit] = max(chains[bit], chains.get(arc.pin.bit, 0) + arc.enters)
            if isinstance(arc.pin.bit, int) and (level > luts[bit] or came[bit] is None):
                luts[bit], came[bit] = level, arc.pin.bit
    deepest: Bit | None = max(luts, key=lambda bit: luts[bit], default=None)
    first = deepest
    while (before := came.get(first) if first is not None else None) is not None:
        first = before
    return Depth(
        lut_levels=max(luts.values(), default=0),
        start=netlist.name(first),
        end=netlist.name(_taken(netlist, deepest)),
        carry_chains=max(chains.values(), default=0),
        carry_bits=longest_carry(netlist),
    )


@dataclass(frozen=True)
class Levels:
    """Logic before and behind each net, up to the next registers: LUTs, and one more for each carry chain."""

    before: dict[Bit, int]
    behind: dict[Bit, int]


def levels(netlist: Netlist) -> Levels:
    """Measures a netlist that `synth_xilinx` or `synth_ecp5` mapped."""
    before: dict[Bit, int] = {}
    behind: dict[Bit, int] = {}
    order = list(_sorted_from_registers(netlist))
    for bit in order:
        found = arcs(*netlist.drivers[bit])
        before[bit] = max(
            (before.get(arc.pin.bit, 0) + arc.luts + arc.enters for arc in found), default=0
        )
    for bit in reversed(order):
        for arc in arcs(*netlist.drivers[bit]):
            length = behind.get(bit, 0) + arc.luts + arc.enters
            behind[arc.pin.bit] = max(behind.get(arc.pin.bit, 0), length)
    return Levels(before, behind)


def _taken(netlist: Netlist, bit: Bit | None) -> Bit | None:
    """The output of a register that takes a net, or the net itself."""
    for cell in netlist.cells:
        if _REGISTERS.fullmatch(cell.kind) and any(pin.bit == bit for pin in cell.inputs):
            return cell.outputs[0].bit
    return bit


def _sorted_from_registers(netlist: Netlist) -> Iterable[Bit]:
    """Driven nets, each after the nets it depends on."""
    done: dict[Bit, bool] = {}
    order: list[Bit] = []
    for root in netlist.drivers:
        stack = [root]
        while stack:
            bit = stack[-1]
            if bit in done:
                if not done[bit]:
                    done[bit] = True
                    order.append(bit)
                stack.pop()
                continue
            done[bit] = False
            cell, output = netlist.drivers[bit]
            for arc in arcs(cell, output):
                if arc.pin.bit in netlist.drivers:
                    if arc.pin.bit not in done:
                        stack.append(arc.pin.bit)
                    elif not done[arc.pin.bit]:
                        name = netlist.name(arc.pin.bit)
                        raise NetlistError(f"{name} depends on itself without a register between")
    return order


def longest_carry(netlist: Netlist) -> int:
    """Bits of the longest carry chain, the unused end of its last cell left out."""
    used = {pin.bit for cell in netlist.cells for pin in cell.inputs}
    used |= {
        bit for port in netlist.ports.values() if port.direction == "output" for bit in port.bits
    }
    before: dict[str, str] = {}
    carries = {cell.name: cell for cell in netlist.cells if cell.kind in _CARRIES}
    for cell in carries.values():
        for pin in cell.inputs:
            driver = netlist.drivers.get(pin.bit)
            if pin.port in ("CI", "CIN") and driver and driver[0].name in carries:
                before[cell.name] = driver[0].name
    longest = 0
    for cell in carries.values():
        places = [_position(cell.kind, pin) + 1 for pin in cell.outputs if pin.bit in used]
        length, name = max(places, default=0), cell.name
        while name in before:
            name = before[name]
            length += _CARRIES[cell.kind]
        longest = max(longest, length)
    return longest
