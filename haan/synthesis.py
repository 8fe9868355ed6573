# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Synthesis, and place and route, with the open tools (YoWASP's Yosys and nextpnr); figures come from the files that they write."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

from .ecp5 import pack_multiplier_registers
from .netlist import Netlist, Port

_SCRIPTS = {
    # No pads and no clock buffers: a unit has more ports than a chip has pins.
    "xcup": "synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top {top}",
    "ecp5": "synth_ecp5 -top {top}",
}
FAMILIES = tuple(_SCRIPTS)
"""Families that `map_verilog` knows: UltraScale+ and ECP5."""
ECP5_PACKAGES = {"25": "CABGA381", "45": "CABGA381", "85": "CABGA756"}
"""The package that each ECP5 device is routed in, by thousands of LUTs."""

_PACKAGES = {"ecppack": "nextpnr_ecp5"}
"""Tools that come with another one."""


class SynthesisError(RuntimeError):
    """A tool is missing or failed; the message is a sentence for the user."""


def run_tool(tool: str, arguments: list[str], folder: Path) -> None:
    """Runs a YoWASP tool (`yosys`, `nextpnr_ecp5`, `ecppack`) of this interpreter's environment.

    File names must be relative to the folder: the tools see their own /tmp.
    """
    module = f"yowasp_{_PACKAGES.get(tool, tool)}"
    if find_spec(module) is None:
        name = module.replace("_", "-")
        raise SynthesisError(
            f"{name} is not installed here: {sys.executable} -m pip install 'haan[synth]'"
        )
    start = f"import sys, {module} as tool; sys.exit(tool.run_{tool}(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", start, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
        raise SynthesisError(f"{tool} failed: {' '.join(errors)}")


def run_yosys(verilog: str, script: list[str], folder: Path, stem: str) -> dict[str, Any]:
    """Reads Verilog, runs a script and returns the netlist in Yosys' JSON, which stays in the folder as `<stem>.json`."""
    (folder / f"{stem}.v").write_text(verilog, encoding="utf-8")
    commands = [f"read_verilog {stem}.v", *script, f"write_json {stem}.json"]
    (folder / f"{stem}.ys").write_text("\n".join([*commands, ""]), encoding="utf-8")
    run_tool("yosys", ["-q", "-s", f"{stem}.ys"], folder)
    netlist: dict[str, Any] = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
    return netlist


def read_ports(verilog: str, top: str, folder: Path) -> dict[str, Port]:
    """Ports of a module, as Yosys reads them."""
    data = run_yosys(verilog, [f"hierarchy -check -top {top}", "proc"], folder, f"{top}_ports")
    return Netlist(data, top).ports


def map_verilog(verilog: str, top: str, family: str, folder: Path, stem: str) -> Netlist:
    """The flat netlist of a module in the cells of a family (`FAMILIES`).

    UltraScale+ figures are pessimistic: Yosys packs no register into a DSP48E2 and builds carries from CARRY4.
    """
    script = [_SCRIPTS[family].format(top=top), "delete t:$scopeinfo", "autoname"]
    return Netlist(run_yosys(verilog, script, folder, stem), top)


def harness(ports: dict[str, Port], top: str) -> str:
    """A Verilog module `harness` with four pins around `top`, which has more ports than a chip has pins.

    A shift register feeds all inputs (`clk` apart); all outputs are registered and folded, a register behind each XOR, into one
    pin. So each path of `top` lies between two registers, and no part of `top` can be optimized away. (The shift register inverts:
    else a register of `top` behind an input would be the same as the next one of the shift register.)
    """
    inputs = {name: port.width for name, port in ports.items() if port.direction == "input"}
    outputs = {name: port.width for name, port in ports.items() if port.direction == "output"}
    if "clk" not in inputs:
        raise SynthesisError(f"{top} has no input clk, so it can't be routed by itself")
    del inputs["clk"]
    feed, caught = sum(inputs.values()), sum(outputs.values())
    connections = [".clk(clk)"]
    for register, group in (("feed", inputs), ("result", outputs)):
        low = 0
        for name, width in group.items():
            # Escaped: a port may be named like a keyword.
            connections.append(f".\\{name} ({register}[{low + width - 1}:{low}])")
            low += width
    return "\n".join(
        [
            "module harness(input clk, input serial_in, output serial_out);",
            f"  reg [{feed - 1}:0] feed;",
            f"  wire [{caught - 1}:0] result;",
            f"  reg [{caught - 1}:0] caught;",
            f"  reg [{caught - 1}:0] folded;",
            "  assign serial_out = folded[0];",
            "  always @(posedge clk) begin",
            "    feed <= ~({serial_in, feed} >> 1);",
            "    caught <= result;",
            "    folded <= (folded >> 1) ^ caught;",
            "  end",
            f"  {top} core({', '.join(connections)});",
            "endmodule",
            "",
        ]
    )


_KINDS = re.compile(
    r"TRELLIS_FF|TRELLIS_DPR16X4|FD[RS]E|LUT[1-6]|CCU2C|CARRY4|PFUMX|L6MUX21|MUXF[789]|INV|MULT18X18D|DSP48E2|"
    r"DP16KD|PDPW16KD|ALU54B|RAMB\d+E2"
)


def signal_name(name: str) -> str:
    """The signal that a cell or net of a mapped netlist is named after: Yosys appends the kinds of cells to it."""
    return re.split(rf"_(?:{_KINDS.pattern})(?:_|$)", name.removeprefix("core."))[0]


def _kind(cell: str) -> str:
    """The kind of a cell, from its name."""
    kinds = _KINDS.findall(cell)
    return kinds[-1] if kinds else "cell"


@dataclass(frozen=True)
class Step:
    """One step of a routed path."""

    kind: str
    """`clk-to-q`, `logic`, `routing` or `setup`."""
    delay_ns: float
    cell: str
    net: str
    """The net, for routing; else empty."""


@dataclass(frozen=True)
class Routing:
    """A placed and routed design."""

    mhz: float
    path: tuple[Step, ...]
    """The longest path between registers."""
    used: dict[str, int]
    """Cells in use, by nextpnr's name (TRELLIS_COMB, TRELLIS_FF, MULT18X18D, DP16KD ...)."""
    available: dict[str, int]

    @property
    def logic_ns(self) -> float:
        """Delay of the longest path in cells; the rest is wires."""
        return sum(step.delay_ns for step in self.path if step.kind != "routing")

    @property
    def routing_ns(self) -> float:
        return sum(step.delay_ns for step in self.path if step.kind == "routing")

    @property
    def start(self) -> str:
        """The register that the longest path comes from, by the name of its signal."""
        return signal_name(self.path[0].cell)

    @property
    def end(self) -> str:
        return signal_name(self.path[-1].cell)

    @property
    def through(self) -> str:
        """The cells between, in order, equal neighbours counted. nextpnr splits a carry cell in two; here it is one."""
        cells = [step.cell.split("$CCU2_COMB")[0] for step in self.path if step.kind == "logic"]
        kinds = groupby((cell for cell, _ in groupby(cells)), key=_kind)
        return ", ".join(f"{len(list(run))} {kind}" for kind, run in kinds)


def route_ecp5(
    verilog: str,
    top: str,
    folder: Path,
    stem: str,
    *,
    device: str = "85",
    speed: int = 6,
    mhz: float = 100.0,
    seed: int = 1,
) -> Routing:
    """Routes a module inside `harness` on an ECP5 and reads nextpnr's report.

    Parameters
    ----------
    device, speed : the part (`ECP5_PACKAGES`)
    mhz : the clock that the router works for; it may end below or above
    seed : of the placement, which moves the result by some percent
    """
    source = verilog + harness(read_ports(verilog, top, folder), top)
    map_ecp5(source, "harness", folder, stem)
    chip = [f"--{device}k", "--package", ECP5_PACKAGES[device], "--speed", str(speed)]
    return place_ecp5([*chip, "--lpf-allow-unconstrained"], folder, stem, mhz=mhz, seed=seed)


def map_ecp5(verilog: str, top: str, folder: Path, stem: str) -> None:
    """Maps a design to the cells of an ECP5: `<stem>.json`."""
    script = [
        # What is there many times is mapped once, and registers that each of them has of its own aren't merged into one far away.
        "setattr -mod -set keep_hierarchy 1 *lane parameter_bank",
        _SCRIPTS["ecp5"].format(top=top),
        "setattr -mod -unset keep_hierarchy *",
        "flatten",
        "delete t:$scopeinfo",
    ]
    netlist = run_yosys(verilog, script, folder, stem)
    pack_multiplier_registers(netlist, top)
    (folder / f"{stem}.json").write_text(json.dumps(netlist), encoding="utf-8")


def place_ecp5(chip: list[str], folder: Path, stem: str, *, mhz: float, seed: int) -> Routing:
    """Places and routes `<stem>.json`. `chip`: what nextpnr is told of chip, pins and output."""
    report = f"{stem}_report.json"
    arguments = [*chip, "--freq", str(mhz), "--seed", str(seed), "--json", f"{stem}.json"]
    # Memory blocks and multipliers stand in few columns: with the default weight of 10 the ways to them are the longest paths.
    arguments += ["--report", report, "--placer-heap-timingweight", "100"]
    arguments += ["--timing-allow-fail", "--quiet"]
    run_tool("nextpnr_ecp5", arguments, folder)
    return read_report(json.loads((folder / report).read_text(encoding="utf-8")))


def read_report(report: dict[str, Any]) -> Routing:
    """The figures of a nextpnr report of a design with one clock."""
    if len(report["fmax"]) != 1:
        raise SynthesisError(
            f"the design has the clocks {sorted(report['fmax'])}; one was expected"
        )
    ((clock, limits),) = report["fmax"].items()
    between = [
        entry["path"]
        for entry in report["critical_paths"]
        if entry["from"] == entry["to"] == f"posedge {clock}"
    ]
    if len(between) != 1:
        raise SynthesisError(
            f"the report holds {len(between)} longest paths of {clock}; one was expected"
        )
    steps = [
        Step(step["type"], step["delay"], step["to"]["cell"], step.get("net", ""))
        for step in between[0]
    ]
    usage = report["utilization"]
    return Routing(
        mhz=limits["achieved"],
        path=tuple(steps),
        used={name: cells["used"] for name, cells in usage.items()},
        available={name: cells["available"] for name, cells in usage.items()},
    )
