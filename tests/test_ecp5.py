# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Registers that move into multipliers: how many, and that the netlist still does what its source says (proved by Yosys)."""

import json
from pathlib import Path
from typing import Any

import pytest

from haan.ecp5 import pack_multiplier_registers
from haan.synthesis import SynthesisError, run_tool, run_yosys

MODEL = Path(__file__).parent / "ecp5_multiplier.v"
"""What a multiplier and its registers do."""
PINS = "input clk, input s, input [4:0] a, input [4:0] b, output reg [9:0] y"


def design(body: str, port: str = "") -> str:
    return f"module top({PINS}{port}); reg [4:0] p, q; {body} endmodule"


def clocked(body: str, port: str = "") -> str:
    return design(f"always @(posedge clk) begin {body} end", port)


@pytest.mark.parametrize(
    ("source", "moved", "registered"),
    [
        pytest.param(clocked("p <= a; q <= b; y <= p * q;"), 20, "A B P", id="all"),
        pytest.param(clocked("p <= s ? 0 : a; q <= b; y <= p * q;"), 20, "A B P", id="a reset"),
        pytest.param(clocked("p <= a; y <= p * p;"), 15, "A B P", id="square"),
        pytest.param(
            clocked("p <= a; q <= b; y <= p * q; z <= p;", ", output reg [4:0] z"),
            15,
            "A B P",
            id="a factor that is read elsewhere",
        ),
        pytest.param(
            clocked("p <= a; q <= b; y <= p * q; z <= ^y * a;", ", output reg [4:0] z"),
            20,
            "A B P",
            id="a product that is read elsewhere",
        ),
        pytest.param(
            clocked("p <= s ? 0 : a; q <= b; y <= {p[4:1], 1'b1} * q;"),
            10,
            "P",
            id="a constant 1 beside a reset",
        ),
        pytest.param(
            clocked("p <= {s ? 2'b0 : a[4:3], a[2:0]}; q <= b; y <= p * q;"),
            10,
            "P",
            id="a reset of some bits",
        ),
        pytest.param(clocked("y <= a * b;"), 10, "P", id="nothing before"),
        pytest.param(
            design("always @(posedge clk) begin p <= a; q <= b; end always @* y = p * q;"),
            10,
            "A B",
            id="nothing behind",
        ),
        pytest.param(
            clocked("p <= a; q <= b; y <= s ? 0 : p * q;"), 10, "A B", id="a reset behind"
        ),
        pytest.param(
            design(
                "always @(negedge clk) begin p <= a; q <= b; end always @(posedge clk) y <= p * q;"
            ),
            10,
            "P",
            id="another edge before",
        ),
    ],
)
def test_registers_move(source: str, moved: int, registered: str, tmp_path):
    netlist = run_yosys(source, ["synth_ecp5 -top top"], tmp_path, "top")
    assert pack_multiplier_registers(netlist, "top") == moved
    (multiplier,) = multipliers(netlist)
    names = {"A": "REG_INPUTA_CLK", "B": "REG_INPUTB_CLK", "P": "REG_OUTPUT_CLK"}
    switched_on = [port for port, name in names.items() if name in multiplier["parameters"]]
    assert " ".join(switched_on) == registered
    prove_equal(source, netlist, tmp_path)


def test_a_register_between_two_products_moves_once(tmp_path):
    source = clocked("p <= a; q <= b; y <= p * q; z <= y * q;", ", output reg [14:0] z")
    netlist = run_yosys(source, ["synth_ecp5 -top top"], tmp_path, "top")
    # Those of y stay, as an output.
    assert pack_multiplier_registers(netlist, "top") == 5 + 5 + 15
    assert len(multipliers(netlist)) == 2
    prove_equal(source, netlist, tmp_path)


def test_a_register_with_an_enable_stays(tmp_path):
    source = clocked("if (s) p <= a; q <= b; y <= p * q;")
    netlist = run_yosys(source, ["synth_ecp5 -top top"], tmp_path, "top")
    assert pack_multiplier_registers(netlist, "top") == 10
    (multiplier,) = multipliers(netlist)
    assert "REG_INPUTA_CLK" not in multiplier["parameters"]


def test_a_wrong_netlist_is_not_equal(tmp_path):
    source = clocked("p <= a; q <= b; y <= p * q;")
    netlist = run_yosys(source, ["synth_ecp5 -top top"], tmp_path, "top")
    pack_multiplier_registers(netlist, "top")
    (multiplier,) = multipliers(netlist)
    del multiplier["parameters"]["REG_OUTPUT_CLK"]
    with pytest.raises(SynthesisError, match="fail"):
        prove_equal(source, netlist, tmp_path)


def multipliers(netlist: dict[str, Any]) -> list[dict[str, Any]]:
    cells = netlist["modules"]["top"]["cells"].values()
    return [cell for cell in cells if cell["type"] == "MULT18X18D"]


def prove_equal(source: str, netlist: dict[str, Any], folder: Path) -> None:
    """Source and netlist give the same outputs for all inputs, by induction, once the registers hold what came in."""
    (folder / "gate.json").write_text(
        json.dumps({"modules": {"top": netlist["modules"]["top"]}}), encoding="utf-8"
    )
    (folder / "model.v").write_text(MODEL.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "gold.v").write_text(source, encoding="utf-8")
    script = """
read_verilog gold.v
prep -top top
rename top gold
design -stash gold
read_json gate.json
read_verilog model.v
read_verilog -overwrite +/ecp5/cells_sim.v
hierarchy -top top
flatten
prep -top top
rename top gate
design -stash gate
design -copy-from gold gold
design -copy-from gate gate
miter -equiv -flatten -make_assert gold gate miter
hierarchy -top miter
opt -full
sat -verify -tempinduct -prove-asserts -seq 4 -maxsteps 8 miter
"""
    (folder / "prove.ys").write_text(script, encoding="utf-8")
    run_tool("yosys", ["-q", "-s", "prove.ys"], folder)
