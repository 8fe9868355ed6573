# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Gate level: the core as it is mapped to an ECP5, with registers moved into multipliers, against golden, in bits and cycles. The models of multipliers
and memories are this project's own, the others Yosys'; here the one of the memories is compared with plain Verilog, `test_ecp5.py` proves the
multipliers' use."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from haan.config import Configuration
from haan.hdl import generate
from haan.layer import LayerSettings
from haan.sim import ParameterVector, Row, StallPattern, run_vectors, simulate_core
from haan.sim.verdict import compare
from haan.synthesis import map_ecp5, run_tool, run_yosys

HERE = Path(__file__).parent
MODELS = ("ecp5_multiplier.v", "ecp5_memory.v")


def as_verilog(folder: Path, stem: str, top: str) -> str:
    """A mapped netlist, `<stem>.json`, in Verilog without cells."""
    for name in MODELS:
        (folder / name).write_text((HERE / name).read_text(encoding="utf-8"), encoding="utf-8")
    netlist = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
    alone = {"modules": {top: netlist["modules"][top]}}
    (folder / "alone.json").write_text(json.dumps(alone), encoding="utf-8")
    script = f"""
read_json alone.json
read_verilog -overwrite +/ecp5/cells_sim.v
read_verilog -overwrite {" ".join(MODELS)}
hierarchy -check -top {top}
proc
flatten
opt
memory_collect
opt_mem
splitnets
clean
write_verilog -noattr -norename gates.v
"""
    (folder / "gates.ys").write_text(script, encoding="utf-8")
    run_tool("yosys", ["-q", "-s", "gates.ys"], folder)
    return (folder / "gates.v").read_text(encoding="utf-8")


MEMORY = """module memory(input clk, input rst, input we, input re, input [{high}:0] wa, input [{high}:0] ra,
    input [{top}:0] wd, output reg [{top}:0] rd);
    (* ram_style = "block" *) reg [{top}:0] m [0:{last}];
    integer i;
    initial begin
        for (i = 0; i <= {last}; i = i + 1) m[i] = i * 37 + 5;
        rd = 0;
    end
    always @(posedge clk) if (we) m[wa] <= wd;
    always @(posedge clk) if (re) rd <= m[ra];
endmodule
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "depth"), [(36, 512), (40, 512), (18, 1024), (9, 2048), (4, 4096)]
)
def test_the_model_of_the_memory(width, depth, tmp_path):
    """No reading of what is being written: what that gives is nobody's business."""
    source = MEMORY.format(top=width - 1, last=depth - 1, high=depth.bit_length() - 2)
    netlist = run_yosys(source, ["synth_ecp5 -top memory"], tmp_path, "memory")
    kinds = Counter(cell["type"] for cell in netlist["modules"]["memory"]["cells"].values())
    assert kinds["DP16KD"] >= 1
    random = np.random.default_rng(width)
    cycles = 800
    inputs = {name: random.integers(2, size=cycles).tolist() for name in ("we", "re")}
    inputs["wa"] = random.integers(0, 24, cycles).tolist()
    inputs["ra"] = (random.integers(0, 24, cycles) ^ (np.array(inputs["wa"]) // 32)).tolist()
    inputs["ra"] = [
        (a + 1) % 24 if a == b else a for a, b in zip(inputs["ra"], inputs["wa"], strict=True)
    ]
    inputs["wd"] = [int(a) for a in random.integers(0, 1 << width, cycles)]
    gates = as_verilog(tmp_path, "memory", "memory")
    expected = run_vectors(source, "memory", inputs, ["rd"], cycles)["rd"]
    assert run_vectors(gates, "memory", inputs, ["rd"], cycles)["rd"] == expected
    assert len(set(expected)) > min(100, (1 << width) - 1)


BUILDS = {
    "both norms": {"p_n": 2, "p_d": 2, "max_n": 768, "slots": 1},
    "skipping, INT8, subsampling": {
        "p_n": 2,
        "p_d": 1,
        "max_n": 64,
        "slots": 2,
        "formats": ["fp16", "int8"],
        "norms": ["rmsnorm"],
        "affine": "gamma",
        "skipping": True,
        "subsampling": True,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDS)
def test_the_mapped_core(name, tmp_path):
    build = Configuration().with_(layers=4, token_slots=2, **BUILDS[name])
    map_ecp5(generate(build, "haan_core"), "haan_core", tmp_path, "core")
    gates = as_verilog(tmp_path, "core", "haan_core")
    random = np.random.default_rng(3)
    with np.load(HERE / "data" / "smollm2_rmsnorm_selected.npz") as data:
        real = np.concatenate([data["n0_x"], data["n30_x"]])
    rows = []
    for index in range(24):
        n = int(random.integers(1, build.what.max_n + 1)) if index % 3 else build.what.max_n
        given = {
            "mode": build.what.norms[index % len(build.what.norms)],
            "affine": build.what.affine,
        }
        if build.what.skipping:
            given |= {"skip": True} if index % 4 > 1 else {"keep_isd": True}
            given |= {"input_format": "int8"} if index % 5 == 4 else {}
        x = np.resize(real[index % len(real)], n)
        if given.get("input_format") == "int8":
            x = random.integers(-128, 128, n).astype(np.int8)
        rows.append(Row(x, LayerSettings(n=n, **given), token=index % 2))
    parameters = [
        ParameterVector(kind, random.normal(size=build.what.max_n).astype(np.float16))
        for kind in build.what.affine.split("+")
    ]
    result = simulate_core(
        build,
        rows,
        parameters,
        source_idle=StallPattern(0.2, 4),
        sink_stall=StallPattern(0.2, 8),
        verilog=gates,
    )
    verdict = compare(build, rows, parameters, result)
    assert verdict.exact, verdict.sentence
