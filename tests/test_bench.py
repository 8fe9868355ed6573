# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The bench itself: that it passes what keeps the rules, and finds each way to break them."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from cocotb_tools import config as cocotb_config

from haan.config import Configuration, ConfigurationError
from haan.layer import LayerSettings, record_layout
from haan.sim import ParameterVector, Row, SimulationError, StallPattern, run_vectors, simulate_core

CONFIGURATION = Configuration.preset("tiny")
STREAM = CONFIGURATION.with_(statistics_stream=True)
ROOT = Path(__file__).parent.parent

GOOD = {
    "ready": "up && wp - rp != 7'd64",
    "valid": "wp != rp",
    "data": "q[DATA]",
    "keep": "q[KEEP]",
    "last": "q[LAST]",
    "id": "q[ID]",
    "next": "wp + 7'd1",
    "stat_valid": "sw != sr",
    "stat_at": "sr[5:0]",
    "stat_number": "{25'd0, sr}",
    "stat_last": "1'b1",
    "stat_id": "s[0]",
}
"""A first-in-first-out memory with the ports of the core: it gives back what it gets. On the statistics stream it numbers the packets."""


def fifo(*, stream: bool = False, **broken: str) -> str:
    """Verilog of the memory, with some of its expressions replaced. `stream`: with the statistics stream."""
    parts = GOOD | broken
    what, p_n = CONFIGURATION.what, CONFIGURATION.how.p_n
    widths = {
        "DATA": 16 * p_n,
        "KEEP": 2 * p_n,
        "LAST": 1,
        "ID": what.id_bits,
        "TOKEN": what.token_bits,
    }
    ranges, low = {}, 0
    for name, width in widths.items():
        ranges[name] = f"{low + width - 1}:{low}"
        low += width
    for name, bits in ranges.items():
        parts = {key: text.replace(f"[{name}]", f"[{bits}]") for key, text in parts.items()}
    layers = "".join(
        f"input [{w - 1}:0] layer_{n}, " for n, w in record_layout(CONFIGURATION).items()
    )
    token = what.token_bits
    statistics = f"""
    output [63:0] m_stat_tdata, output m_stat_tid, output [{token - 1}:0] m_stat_tuser,
    output m_stat_tlast, output m_stat_tvalid, input m_stat_tready,"""
    told = f"""
    reg [{token}:0] labels [0:63];
    reg [6:0] sw = 0, sr = 0;
    wire [{token}:0] s = labels[{parts["stat_at"]}];
    assign m_stat_tvalid = {parts["stat_valid"]};
    assign m_stat_tdata = {{32'd1, {parts["stat_number"]}}};
    assign m_stat_tlast = {parts["stat_last"]};
    assign m_stat_tid = {parts["stat_id"]};
    assign m_stat_tuser = s[{token}:1];
    always @(posedge clk) begin
        if (m_axis_tvalid && m_axis_tready && m_axis_tlast) begin
            labels[sw[5:0]] <= {{m_axis_tuser[{token - 1}:0], m_axis_tid}};
            sw <= sw + 1;
        end
        if (m_stat_tvalid && m_stat_tready) sr <= sr + 1;
        if (rst) begin sw <= 0; sr <= 0; end
    end
"""
    return f"""
module haan_core(input clk, input rst, {layers}
    input [{16 * p_n - 1}:0] s_axis_tdata, input [{2 * p_n - 1}:0] s_axis_tkeep,
    input s_axis_tlast, input [{what.id_bits - 1}:0] s_axis_tid,
    input [{token + 31}:0] s_axis_tuser, input s_axis_tvalid, output s_axis_tready,
    output [{16 * p_n - 1}:0] m_axis_tdata, output [{2 * p_n - 1}:0] m_axis_tkeep,
    output m_axis_tlast, output [{what.id_bits - 1}:0] m_axis_tid,
    output [{token + 15}:0] m_axis_tuser, output m_axis_tvalid, input m_axis_tready,{statistics * stream}
    input parameter_write_valid, input parameter_write_beta, input parameter_write_slot,
    input [5:0] parameter_write_index, input [15:0] parameter_write_data,
    input parameter_write_one_plus);
    reg [{low - 1}:0] mem [0:63];
    reg [6:0] wp = 0, rp = 0;
    reg [9:0] now = 0;
    reg up = 0, first = 1, unset;
    reg [{token - 1}:0] held = 0;
    wire [{token - 1}:0] token = first ? s_axis_tuser[{token - 1}:0] : held;
    wire [{low - 1}:0] q = mem[rp[5:0]];
    assign s_axis_tready = {parts["ready"]};
    assign m_axis_tvalid = {parts["valid"]};
    assign m_axis_tdata = {parts["data"]};
    assign m_axis_tkeep = {parts["keep"]};
    assign m_axis_tlast = {parts["last"]};
    assign m_axis_tid = {parts["id"]};
    assign m_axis_tuser = {{16'd0, q[{ranges["TOKEN"]}]}};
    always @(posedge clk) begin
        now <= now + 1;
        up <= !rst;
        if (s_axis_tvalid && s_axis_tready) begin
            mem[wp[5:0]] <= {{token, s_axis_tid, s_axis_tlast, s_axis_tkeep, s_axis_tdata}};
            wp <= {parts["next"]};
            first <= s_axis_tlast;
            held <= token;
        end
        if (m_axis_tvalid && m_axis_tready) rp <= rp + 1;
        if (rst) begin wp <= 0; rp <= 0; first <= 1; end
    end
{told * stream}
endmodule
"""


ROWS = [
    Row(
        np.arange(n, dtype=np.uint16) + 256 * n,
        LayerSettings(n=n),
        layer=n % 2,
        token=n,
        ids={0: n % 2},
    )
    for n in (1, 2, 3, 9, 4, 5)
]
BUSY = {
    "source_idle": StallPattern(probability=0.3, burst=3),
    "sink_stall": StallPattern(probability=0.5, burst=2),
}


@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
@pytest.mark.parametrize(
    "stalls",
    [{}, BUSY, {"sink_stall": StallPattern(period=4, busy=3)}, {**BUSY, "reset_at": 17}],
    ids=["flowing", "random", "regular", "reset"],
)
def test_what_keeps_the_rules_passes(simulator, stalls):
    result = simulate_core(CONFIGURATION, ROWS, simulator=simulator, verilog=fifo(), **stalls)
    assert len(result.rows) == len(ROWS)
    for sent, got in zip(ROWS, result.rows, strict=True):
        assert np.array_equal(sent.bits, got.bits)
        assert (got.layer, got.token, got.flags) == (sent.layer, sent.token, 0)
        assert len(got.in_cycles) == len(got.out_cycles) == -(-len(sent.bits) // 2)
        assert all(i < o for i, o in zip(got.in_cycles, got.out_cycles, strict=True))
        assert len(set(got.out_cycles)) == len(got.out_cycles)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({"ready": "!rst || now[1]"}, "s_axis_tready is high in reset"),
        ({"valid": "wp != rp || rst"}, "m_axis_tvalid is high in reset"),
        ({"valid": "wp != rp && now[1]"}, "m_axis_tvalid fell"),
        ({"data": "q[DATA] ^ now"}, "the beat on m_axis changed"),
        ({"last": "q[LAST] ^ (now[4:0] == 7)"}, "the beat on m_axis changed"),
        ({"data": "q[DATA] | {32{unset}}"}, "m_axis_tdata has unknown bits"),
        ({"valid": "unset"}, "m_axis_tvalid has unknown bits"),
        ({"last": "1'b1"}, "a packet too many"),
        ({"last": "1'b0"}, "nothing moved"),
        ({"ready": "up && wp != 7'd5"}, "nothing moved"),
        ({"valid": "wp != rp && rp != 7'd12"}, "nothing moved"),
        ({"next": "wp + (s_axis_tlast ? 7'd2 : 7'd1)"}, "unknown bits"),
        ({"keep": "4'b0111"}, "TKEEP"),
        ({"keep": "q[KEEP] & (rp == 7'd5 ? 4'b0011 : 4'b1111)"}, "partial before"),
        ({"id": "rp[0]"}, "TID or token slot changed"),
    ],
)
def test_broken_rules_are_found(broken, sentence):
    with pytest.raises(SimulationError, match=sentence):
        simulate_core(CONFIGURATION, ROWS, simulator="icarus", verilog=fifo(**broken), **BUSY)


@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
@pytest.mark.parametrize("changes", [{}, {"reset_at": 17}], ids=["once", "reset"])
def test_statistics_belong_to_their_rows(simulator, changes):
    stalls = BUSY | {"statistics_stall": StallPattern(period=30, busy=20)} | changes
    rows = simulate_core(
        STREAM, ROWS, simulator=simulator, verilog=fifo(stream=True), **stalls
    ).rows
    assert [(row.mean, row.isd) for row in rows] == [(index, 1) for index in range(len(ROWS))]
    for row in rows:
        assert row.statistics_cycle > row.out_cycles[-1]
        assert row.statistics_cycle % 30 >= 20


def test_without_the_stream_there_are_no_statistics():
    rows = simulate_core(CONFIGURATION, ROWS, simulator="icarus", verilog=fifo()).rows
    assert {(row.mean, row.isd, row.statistics_cycle) for row in rows} == {(None, None, None)}


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        ({"stat_valid": "sw != sr || rst"}, "m_stat_tvalid is high in reset"),
        ({"stat_valid": "sw != sr && now[1]"}, "m_stat_tvalid fell"),
        ({"stat_number": "{22'd0, now}"}, "the beat on m_stat changed"),
        ({"stat_number": "{31'd0, unset}"}, "m_stat_tdata has unknown bits"),
        ({"stat_last": "1'b0"}, "the beat on m_stat in cycle [0-9]+ has no TLAST"),
        (
            {"stat_valid": "sw != sr || sr == 7'd6", "stat_at": "(sr == 7'd6 ? 6'd0 : sr[5:0])"},
            "statistics of a row too many",
        ),
        ({"stat_valid": "sw != sr && sr != 7'd3"}, "6 packets came out, and 3 beats of statistics"),
        ({"stat_id": "!s[0]"}, "row 0: TID and token slot are .* beside its mean and ISD"),
    ],
)
def test_broken_rules_of_the_statistics_stream_are_found(broken, sentence):
    stalls = BUSY | {"statistics_stall": StallPattern(probability=0.5, burst=2)}
    verilog = fifo(stream=True, **broken)
    with pytest.raises(SimulationError, match=sentence):
        simulate_core(STREAM, ROWS, simulator="icarus", verilog=verilog, **stalls)


def test_bad_verilog_is_told_with_the_reason():
    with pytest.raises(SimulationError, match="could not be built(.|\n)*yntax"):
        simulate_core(
            CONFIGURATION, ROWS, simulator="icarus", verilog="module haan_core(; endmodule"
        )


def test_combinational_loop_is_refused(tmp_path):
    verilog = fifo(valid="wp != rp && !m_axis_tready ^ m_axis_tvalid")
    with pytest.raises(SimulationError, match="UNOPTFLAT"):
        simulate_core(CONFIGURATION, ROWS, verilog=verilog, build_root=tmp_path)


@pytest.mark.parametrize(
    ("rows", "parameters", "sentence"),
    [
        ([], [], "no rows"),
        ([Row(np.ones(3, np.float16), LayerSettings(n=3), layer=2)], [], "layer = 2"),
        ([Row(np.ones(3, np.float16), LayerSettings(n=3), token=16)], [], "token = 16"),
        ([Row(np.ones(3, np.float16), LayerSettings(n=65))], [], "n = 65 exceeds"),
        ([Row(np.ones(3, np.float16), None, keep={2: 1})], [], "beat 2, but"),
        ([Row(np.ones(3, np.float16), None, fields={"depth": 1})], [], "no field 'depth'"),
        (ROWS, [ParameterVector("gamma", np.ones(3, np.float32))], "32 bits an element"),
        (ROWS, [ParameterVector("gamma", np.ones(3, np.float16), slot=2)], "slot = 2"),
        (ROWS, [ParameterVector("gamma", np.ones(65, np.float16))], "65 elements"),
        (ROWS, [ParameterVector("beta", np.ones(3, np.float16), one_plus=True)], "one_plus"),
    ],
)
def test_what_the_build_cannot_take_is_refused(rows, parameters, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        simulate_core(CONFIGURATION, rows, parameters, simulator="icarus", verilog=fifo())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Row(np.ones(3, np.float32), LayerSettings(n=3)),
        lambda: Row(np.ones((3, 1), np.float16), LayerSettings(n=3)),
        lambda: ParameterVector("beta", np.ones(3, np.int16)),
        lambda: StallPattern(probability=1.0),
        lambda: StallPattern(period=3, busy=3),
    ],
)
def test_bad_values_are_refused(make):
    with pytest.raises(ConfigurationError, match="allowed"):
        make()


@pytest.mark.parametrize(("simulator", "suffix"), [("icarus", "fst"), ("verilator", "vcd")])
def test_waves(tmp_path: Path, simulator, suffix):
    waves = tmp_path / "deep" / f"waves.{suffix}"
    simulate_core(CONFIGURATION, ROWS, simulator=simulator, verilog=fifo(), waves=waves)
    assert waves.stat().st_size > 1000


@pytest.mark.parametrize("simulator", ["icarus", "verilator"])
def test_vectors(simulator):
    verilog = """
    module delay(input clk, input rst, input [7:0] a, input [79:0] b, output [7:0] x, output [80:0] y);
        reg [7:0] x1 = 0, x2 = 0; reg [80:0] y1;
        assign x = x2; assign y = y1;
        always @(posedge clk) begin x1 <= a; x2 <= x1; y1 <= rst ? 0 : b + a; end
    endmodule
    """
    a, b = [3, 1, 255, 7], [2**80 - 1, 0, 5]
    got = run_vectors(verilog, "delay", {"a": a, "b": b}, ["x", "y"], 8, simulator=simulator)
    assert got["x"] == [0, 0, 3, 1, 255, 7, 7, 7]
    assert got["y"] == [0, 2**80 + 2, 1, 260, 12, 12, 12, 12]


def test_a_build_outlives_the_environment_that_made_it(tmp_path):
    """Another environment finds it in the cache, and has its own libraries of cocotb."""
    result = simulate_core(CONFIGURATION, ROWS, verilog=fifo(), build_root=tmp_path)
    assert len(result.rows) == len(ROWS)
    (build,) = tmp_path.glob("verilator-*/haan_core")
    assert str(cocotb_config.libs_dir).encode() not in build.read_bytes()


def test_documented_example():
    text = (Path(__file__).parents[1] / "docs" / "simulation.md").read_text()
    example = text.split("```python\n")[1].split("```")[0]
    exec(compile(example, "docs/simulation.md", "exec"), {})


def test_the_figure_of_the_documents_is_what_a_simulation_gives():
    path = ROOT / "bench" / "passage.py"
    passage = runpy.run_path(str(path))
    drawn = json.loads((ROOT / "docs" / "figures" / "passage.json").read_text("utf-8"))
    assert passage["wave_json"](passage["waves"]()) == drawn
