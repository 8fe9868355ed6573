# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What the netlist proves of the generated hardware: no combinational way from an input to an output, no latch, no memory that tools
get wrong. And the measures of `haan.netlist` and `haan.synthesis`, on circuits whose figures are known."""

import re
import runpy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pytest

from haan.config import Configuration
from haan.hdl import Top, generate, generate_unit, ports
from haan.netlist import Area, Cell, Netlist, NetlistError, area, depth
from haan.synthesis import (
    SynthesisError,
    harness,
    map_verilog,
    read_ports,
    read_report,
    route_ecp5,
    run_yosys,
)

SMALL = Configuration.preset("tiny").with_(max_n=16, p_n=1, p_d=1)
CONFIGURATIONS = {
    "one lane": SMALL,
    "two lanes": Configuration.preset("tiny"),
    "rmsnorm": SMALL.with_(norms=["rmsnorm"], affine="none", pipeline="short"),
    "subsampling": SMALL.with_(subsampling=True, p_n=4, p_d=2, parameter_format="fp32"),
    "shared multipliers": SMALL.with_(isd_interval=16, cast_before_gamma=True),
    "narrow bus": SMALL.with_(p_n=4, p_d=1, bus_bytes=2),
    "skipping": SMALL.with_(p_n=2, p_d=1, skipping=True, anchors=2),
}
TOPS = get_args(Top)
LUT_MEMORIES = {"control.layers.memory", "control.slots.last_users"}
"""Small memories of the control plane that are read in the cycle of the address."""
LUT_MEMORIES_OF_SKIPPING = {"core.predictor.found"}
"""Likewise: four anchors of rows that wait to be framed."""

FLATTEN = [
    "proc",
    "check -assert",
    "flatten",
    "opt_expr",
    "opt_clean",
    "opt",
    "memory -nomap",
    "delete t:$scopeinfo",
    "select -set registers t:*dff*",
    "simplemap t:* @registers %d",
    "opt_clean",
]
"""To one module of single gates, in which registers and memories are still whole. `memory` finds transparent read ports."""

REGISTERS = {"$dff", "$dffe", "$sdff", "$sdffe", "$sdffce"}
"""Whose output changes with the clock alone. An asynchronous reset or a latch passes its inputs on."""


def flat_netlist(verilog: str, top: str) -> Netlist:
    with TemporaryDirectory() as folder:
        script = [f"hierarchy -check -top {top}", *FLATTEN]
        return Netlist(run_yosys(verilog, script, Path(folder), "flat"), top)


@cache
def verilog_of(name: str, top: Top = "haan_axi") -> str:
    return generate(CONFIGURATIONS[name], top)


@cache
def netlist_of(name: str, top: Top = "haan_axi") -> Netlist:
    return flat_netlist(verilog_of(name, top), top)


def flag(cell: Cell, parameter: str) -> bool:
    """Whether a parameter has any bit that isn't 0."""
    return set(cell.parameters[parameter]) != {"0"}


def holds_state(cell: Cell) -> bool:
    """Whether the outputs of a cell change with the clock alone."""
    if cell.kind == "$mem_v2":
        return set(cell.parameters["RD_CLK_ENABLE"]) == {"1"}
    return cell.kind in REGISTERS


def ways_through(netlist: Netlist, outputs: list[str]) -> list[str]:
    """The combinational ways from any input port to these output ports, one for each output bit that has one."""
    ends = {
        bit: name
        for name, port in netlist.ports.items()
        if port.direction == "input"
        for bit in port.bits
    }
    ways = []
    for name in outputs:
        for index, bit in enumerate(netlist.ports[name].bits):
            way = (
                netlist.combinational_path(bit, ends, holds_state) if bit in netlist.names else None
            )
            if way:
                ways.append(f"{' -> '.join([way[0], *way[1:-1], name])} (bit {index})")
    return ways


def outputs_of(netlist: Netlist) -> list[str]:
    return [name for name, port in netlist.ports.items() if port.direction == "output"]


@pytest.mark.parametrize(
    ("name", "top"),
    [
        # The core stands in the other top as well.
        pytest.param(name, top, marks=[pytest.mark.slow] * (top == "haan_core" and index > 0))
        for index, name in enumerate(CONFIGURATIONS)
        for top in TOPS
    ],
)
def test_no_input_reaches_an_output_combinationally(name: str, top: Top) -> None:
    netlist = netlist_of(name, top)
    outputs = outputs_of(netlist)
    promised = [
        port for port, direction, _ in ports(CONFIGURATIONS[name], top) if direction == "output"
    ]
    assert sorted(outputs) == sorted(promised)
    assert ways_through(netlist, outputs) == []


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_latches(name: str) -> None:
    kinds = netlist_of(name).counts
    assert [kind for kind in kinds if "latch" in kind.lower() or "$sr" in kind] == []
    # Every other kind of state than plain registers and memories would show here.
    assert {kind for kind in kinds if "ff" in kind} <= REGISTERS


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_transparent_memory_ports(name: str) -> None:
    memories = [cell for cell in netlist_of(name).cells if cell.kind.startswith("$mem")]
    assert {cell.kind for cell in memories} == {"$mem_v2"}
    assert [cell.name for cell in memories if flag(cell, "RD_TRANSPARENCY_MASK")] == []
    # What is written must be block RAM everywhere, read with the clock, but for some that are small.
    written = [cell for cell in memories if int(cell.parameters["WR_PORTS"], 2)]
    small = LUT_MEMORIES
    if CONFIGURATIONS[name].what.skipping:
        small = small | LUT_MEMORIES_OF_SKIPPING
    assert len(written) > len(small)
    assert {cell.name for cell in written if not holds_state(cell)} <= small


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_empty_modules(name: str, tmp_path: Path) -> None:
    script = ["hierarchy -check -top haan_axi", "proc"]
    modules = run_yosys(verilog_of(name), script, tmp_path, "modules")["modules"]
    assert len(modules) > 3
    for module in modules.values():
        assert module["cells"]
        assert {port["direction"] for port in module["ports"].values()} == {"input", "output"}


PLANTED = {
    "wire": "assign ready = valid;",
    "logic": "reg s; always @(posedge clk) s <= other; assign ready = s & ~valid;",
    "latch": "reg s; always @* if (other) s = valid; assign ready = s;",
    "asynchronous reset": (
        "reg s; always @(posedge clk or posedge valid) if (valid) s <= 0; else s <= other; assign ready = s;"
    ),
    "memory": (
        "reg [1:0] m [3:0]; reg [1:0] w; always @(posedge clk) begin w <= w + 1; m[w] <= w; end "
        "assign ready = m[{valid, other}];"
    ),
    "module": "inner inner(.a(valid), .b(other), .y(ready));",
}
INNER = "module inner(input a, input b, output y); assign y = a ? b : 1'b1; endmodule\n"


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_way_is_found(kind: str) -> None:
    body = PLANTED[kind]
    verilog = (
        f"{INNER}module top(input clk, input valid, input other, output ready); {body} endmodule"
    )
    (way,) = ways_through(flat_netlist(verilog, "top"), ["ready"])
    assert way.startswith(("valid", "other"))
    assert way.endswith("ready (bit 0)")


def test_registered_way_is_no_way() -> None:
    verilog = (
        "module top(input clk, input rst, input valid, output ready); reg s; "
        "always @(posedge clk) if (rst) s <= 0; else s <= valid; assign ready = s; endmodule"
    )
    assert ways_through(flat_netlist(verilog, "top"), ["ready"]) == []


def test_way_planted_in_the_core_is_found() -> None:
    verilog = verilog_of("one lane", "haan_core")
    source = ".i_ready(s_axis_tready)"
    declaration = "wire s_axis_tready;"
    assert (verilog.count(source), verilog.count(declaration)) == (1, 1)
    extra = "wire planted; assign s_axis_tready = planted | m_axis_tready;"
    planted = verilog.replace(source, ".i_ready(planted)")
    planted = planted.replace(declaration, f"{declaration} {extra}")
    netlist = flat_netlist(planted, "haan_core")
    (way,) = ways_through(netlist, outputs_of(netlist))
    assert way == "m_axis_tready -> s_axis_tready (bit 0)"


def test_transparent_port_is_found() -> None:
    verilog = (
        "module top(input clk, input [7:0] d, input [3:0] w, input [3:0] r, output [7:0] q); "
        "reg [7:0] m [15:0]; reg [3:0] a; assign q = m[a]; "
        "always @(posedge clk) begin a <= r; m[w] <= d; end endmodule"
    )
    (memory,) = [cell for cell in flat_netlist(verilog, "top").cells if cell.kind == "$mem_v2"]
    assert flag(memory, "RD_TRANSPARENCY_MASK")


# The measures, on circuits whose figures are known by thought.

XOR = """
module top(input clk, input [6:0] a, output reg y);
  reg [6:0] r;
  always @(posedge clk) begin r <= a; y <= ^r; end
endmodule
"""
ADDER = """
module top(input clk, input [31:0] a, input [31:0] b, output reg [31:0] y);
  reg [31:0] r, s;
  always @(posedge clk) begin r <= a; s <= b; y <= r + s; end
endmodule
"""
MULTIPLIER = """
module top(input clk, input [15:0] a, input [15:0] b, output reg [31:0] y);
  reg [15:0] r, s;
  always @(posedge clk) begin r <= a; s <= b; y <= r * s; end
endmodule
"""
LOOP = """
module top(input a, output y);
  wire n = ~(a & y);
  assign y = n ^ a;
endmodule
"""


def test_depth_and_area_of_a_parity(tmp_path: Path) -> None:
    netlist = map_verilog(XOR, "top", "xcup", tmp_path, "parity")
    measured = depth(netlist)
    assert area(netlist).registers == 8
    assert area(netlist).luts == 2
    assert (measured.lut_levels, measured.carry_chains, measured.carry_bits) == (2, 0, 0)
    assert re.fullmatch(r"r\[\d+\]", measured.start)
    assert measured.end == "y"


@pytest.mark.parametrize("family", ["xcup", "ecp5"])
def test_depth_and_area_of_an_adder(family: str, tmp_path: Path) -> None:
    netlist = map_verilog(ADDER, "top", family, tmp_path, "adder")
    measured = depth(netlist)
    assert area(netlist).registers == 96
    assert area(netlist).luts == 32
    assert (measured.lut_levels, measured.carry_chains, measured.carry_bits) == (1, 1, 32)


@pytest.mark.parametrize("family", ["xcup", "ecp5"])
def test_depth_and_area_of_a_multiplier(family: str, tmp_path: Path) -> None:
    netlist = map_verilog(MULTIPLIER, "top", family, tmp_path, "multiplier")
    assert area(netlist).multipliers == 1
    assert area(netlist).luts == 0
    assert depth(netlist).lut_levels == 0


def test_depth_refuses_a_loop(tmp_path: Path) -> None:
    netlist = map_verilog(LOOP, "top", "xcup", tmp_path, "loop")
    with pytest.raises(NetlistError, match="depends on itself"):
        depth(netlist)


def test_depth_refuses_an_unknown_cell(tmp_path: Path) -> None:
    verilog = XOR.replace("^r", "q").replace(
        "endmodule", "wire q; mystery it(.a(r), .b(q)); endmodule"
    )
    verilog += "(* blackbox *) module mystery(input [6:0] a, output b); endmodule"
    netlist = map_verilog(verilog, "top", "xcup", tmp_path, "unknown")
    with pytest.raises(NetlistError, match="mystery"):
        depth(netlist)


def test_harness_keeps_all_logic(tmp_path: Path) -> None:
    """A harness adds its own registers to a lane, and nothing of the lane is lost."""
    verilog = generate_unit(SMALL, "lane")
    found = read_ports(verilog, "lane", tmp_path)
    alone = area(map_verilog(verilog, "lane", "ecp5", tmp_path, "alone"))
    source = verilog + harness(found, "lane")
    netlist = map_verilog(source, "harness", "ecp5", tmp_path, "harnessed")
    fed = sum(
        port.width for name, port in found.items() if port.direction == "input" and name != "clk"
    )
    caught = sum(port.width for port in found.values() if port.direction == "output")
    assert area(netlist).registers == alone.registers + fed + 2 * caught
    assert area(netlist).multipliers == alone.multipliers == 2
    assert sum(port.width for port in netlist.ports.values()) == 3


def test_harness_needs_a_clock(tmp_path: Path) -> None:
    with pytest.raises(SynthesisError, match="clk"):
        harness(read_ports(INNER, "inner", tmp_path), "inner")


def test_harness_takes_any_name_of_a_port(tmp_path: Path) -> None:
    verilog = r"module top(input clk, input \end , output reg \reg ); always @(posedge clk) \reg <= \end ; endmodule"
    source = f"{verilog}\n{harness(read_ports(verilog, 'top', tmp_path), 'top')}"
    netlist = map_verilog(source, "harness", "ecp5", tmp_path, "names")
    assert area(netlist).registers == 1 + 1 + 2


def test_failing_tool_says_why(tmp_path: Path) -> None:
    with pytest.raises(SynthesisError, match="syntax error"):
        run_yosys("module top(", [], tmp_path, "broken")


@pytest.mark.slow
def test_routing(tmp_path: Path) -> None:
    routing = route_ecp5(MULTIPLIER, "top", tmp_path, "multiplier", device="25")
    assert routing.used["MULT18X18D"] == 1
    # The harness has 32 registers before the factors, 64 behind the product; those of the design moved into the multiplier.
    assert routing.used["TRELLIS_FF"] == 32 + 64
    assert routing.path[0].kind == "clk-to-q"
    assert routing.path[-1].kind == "setup"
    assert 1000 / routing.mhz == pytest.approx(routing.logic_ns + routing.routing_ns, abs=0.01)
    # A multiplication between two registers of the fabric takes 3.9 ns and the ways to and from it.
    assert routing.mhz > 250


def report(*clocks: str) -> dict[str, Any]:
    step = {"type": "setup", "delay": 0.5, "to": {"cell": "r", "port": "DI", "loc": [1, 1]}}
    return {
        "fmax": {clock: {"achieved": 125.0, "constraint": 100.0} for clock in clocks},
        "critical_paths": [
            {"from": "<async>", "to": "posedge clk", "path": [step, step]},
            {"from": "posedge clk", "to": "posedge clk", "path": [step]},
        ],
        "utilization": {"TRELLIS_FF": {"used": 3, "available": 10}},
    }


def test_report_is_read() -> None:
    routing = read_report(report("clk"))
    assert routing.mhz == 125.0
    assert [step.cell for step in routing.path] == ["r"]
    assert (routing.used, routing.available) == ({"TRELLIS_FF": 3}, {"TRELLIS_FF": 10})


@pytest.mark.parametrize("clocks", [(), ("clk", "other")])
def test_report_with_other_than_one_clock_is_refused(clocks: tuple[str, ...]) -> None:
    with pytest.raises(SynthesisError, match="one was expected"):
        read_report(report(*clocks))


COSTS = Path(__file__).parents[1] / "bench" / "feature_costs.py"


def test_the_cost_of_a_feature_is_that_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = runpy.run_path(str(COSTS))
    base: Configuration = costs["BASE"]
    for feature, changes in costs["FEATURES"].items():
        without, having = (base.with_(**change).to_dict() for change in changes)
        differing = {
            name
            for part in ("what", "how")
            for name, value in having[part].items()
            if without[part].get(name) != value
        }
        assert differing == {feature.split(" ")[0]}
    areas = {False: Area(100, 20, 300, 4, 5.5), True: Area(150, 19, 300, 6, 6.0)}
    monkeypatch.setitem(
        costs["cost"].__globals__, "core_area", lambda build: areas[build.what.skipping]
    )
    assert costs["cost"]("skipping") == Area(50, -1, 0, 2, 0.5)
