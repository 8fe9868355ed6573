# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The examples do what they say, with the package as it is now."""

import logging
import re
import runpy
import tomllib
from pathlib import Path

import numpy as np
import pytest
from pyslang.ast import Compilation
from pyslang.syntax import SyntaxTree

from haan.config import Configuration
from haan.hdl import generate, ports
from haan.layer import LayerSettings, record_layout
from haan.layers import LayerTable
from haan.stack import Stack
from haan.tensors import Tensors

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def core():
    return generate(Configuration.preset("tiny"), "haan_core")


def complaints(*texts):
    """What slang has against the ports and connections of these texts, errors or not."""
    compilation = Compilation()
    for text in texts:
        compilation.addSyntaxTree(SyntaxTree.fromText(text))
    found = compilation.getAllDiagnostics()
    return [str(one.code) for one in found if one.isError() or "Port" in str(one.code)]


def test_the_wrapper_of_one_layer_fits_the_core(core):
    tiny = Configuration.preset("tiny")
    one_layer = runpy.run_path(str(EXAMPLES / "one_layer.py"))["one_layer"]
    settings = LayerSettings(n=48, mode="rmsnorm", eps=1e-6, affine="gamma")
    wrapper = one_layer("wrapper", tiny, settings)
    assert complaints(core, wrapper) == []
    tied = {
        name: (int(width), int(value, 16))
        for name, width, value in re.findall(r"\.layer_(\w+)\((\d+)'h([0-9a-f]+)\)", wrapper)
    }
    record = settings.record(tiny)
    assert tied == {name: (width, record[name]) for name, width in record_layout(tiny).items()}
    # The check is able to fail, for a port that isn't there and for one that is missing.
    for spoilt in (
        wrapper.replace(".layer_n(", ".layer_m("),
        wrapper.replace(".layer_n(7'h30),", ""),
    ):
        assert complaints(core, spoilt) != []


def litex_verilog(build, standard, folder, monkeypatch):
    """A SoC without a processor around the accelerator."""
    # LiteX takes the folders where it starts for processors.
    monkeypatch.chdir(folder)
    logging.disable(logging.INFO)
    from litex.build.generic_platform import Pins
    from litex.build.sim import SimPlatform
    from litex.gen import LiteXModule
    from litex.soc.integration.soc_core import SoCMini
    from migen import ClockDomain

    add_haan = runpy.run_path(str(EXAMPLES / "litex_haan.py"))["add_haan"]
    platform = SimPlatform("SIM", [("clk", 0, Pins(1)), ("rst", 0, Pins(1))])
    soc = SoCMini(platform, clk_freq=1e6, bus_standard=standard)
    soc.crg = LiteXModule()
    soc.crg.cd_sys = ClockDomain("sys")
    soc.comb += soc.crg.cd_sys.clk.eq(platform.request("clk"))
    soc.comb += soc.crg.cd_sys.rst.eq(platform.request("rst"))
    haan = add_haan(soc, build, "haan_axi.v", origin=0x90000000)
    soc.comb += haan.source.connect(haan.sink, omit={"flags", "x_scale"})
    soc.finalize()
    logging.disable(logging.NOTSET)
    # The other text has no time scale.
    return str(platform.get_verilog(soc)).replace("`timescale", "//")


@pytest.mark.parametrize("standard", ["wishbone", "axi-lite"])
def test_the_instance_in_litex_fits_the_accelerator(standard, tmp_path, monkeypatch):
    tiny = Configuration.preset("tiny")
    soc = litex_verilog(tiny, standard, tmp_path, monkeypatch)
    (instance,) = re.findall(r"^haan_axi haan_axi\((.*?)^\);", soc, re.MULTILINE | re.DOTALL)
    connected = re.findall(r"\.(\w+) *\(", instance)
    assert sorted(connected) == sorted(name for name, _, _ in ports(tiny))
    assert complaints(generate(tiny), soc) == []
    # The check is able to fail, for another width.
    assert complaints(generate(tiny.with_(p_n=4)), soc) != []


def test_the_wrapper_as_the_script_writes_it(tmp_path, monkeypatch):
    path = tmp_path / "rmsnorm_576.v"
    monkeypatch.setattr("sys.argv", ["one_layer.py", str(path)])
    runpy.run_path(str(EXAMPLES / "one_layer.py"), run_name="__main__")
    assert path.read_text("utf-8").startswith("module rmsnorm_576 (\n")


def test_real_rows_are_input_of_the_demo_s_builds(tmp_path):
    runpy.run_path(str(EXAMPLES / "real_rows.py"))["main"](tmp_path)
    llama = Tensors.read(tmp_path / "smollm2_rmsnorm.npz", Configuration.preset("ecp5"))
    assert llama.x.shape == (12, 576)
    assert (llama.settings.mode, llama.settings.affine) == ("rmsnorm", "gamma")
    build = Configuration.from_toml(EXAMPLES / "ecp5_fp32_parameters.toml")
    bert = Tensors.read(tmp_path / "minilm_layernorm.npz", build)
    assert bert.x.shape == (6, 384)
    assert (bert.settings.mode, bert.settings.affine) == ("layernorm", "gamma+beta")
    assert bert.settings.eps == 1e-12


def test_the_stack_is_input_of_its_build(tmp_path):
    runpy.run_path(str(EXAMPLES / "smollm2_stack.py"))["main"](tmp_path)
    build = Configuration.from_toml(EXAMPLES / "smollm2_stack.toml")
    table = LayerTable.read(tmp_path / "smollm2_layers.toml")
    stack = Stack.read(tmp_path / "smollm2_stack.npz", table, build)
    assert {layer: x.shape for layer, x in stack.x.items()} == dict.fromkeys(range(61), (8, 576))
    skipped = {layer: each for layer, each in table.settings.items() if each.skip}
    assert list(skipped) == list(range(3, 60, 2))
    for layer, each in skipped.items():
        assert each.anchor == layer - 1
        assert each.guard_low < each.guard_high and 0.7 < each.ratio < 1
    # What the documents show of it.
    (example,) = re.findall(
        r"```toml\n(.*?)```", (ROOT / "docs" / "layers.md").read_text("utf-8"), re.DOTALL
    )
    shown = LayerTable.from_dict(tomllib.loads(example))
    assert shown.names == {layer: table.names[layer] for layer in range(4)}
    assert shown.settings[3].ratio == pytest.approx(skipped[3].ratio, rel=1e-3)
    assert shown.settings[3].guard_low == pytest.approx(skipped[3].guard_low, rel=1e-2)
    assert shown.settings[3].guard_high == pytest.approx(skipped[3].guard_high, rel=1e-2)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ecp5_fp32_parameters", {"parameter_format": "fp16"}),
        ("ecp5_int8", {"formats": ["fp16"]}),
        ("ecp5_int8_alone", {"formats": ["fp16"]}),
    ],
)
def test_the_example_builds_are_ecp5_but_for_one_field(name, changes):
    build = Configuration.from_toml(EXAMPLES / f"{name}.toml")
    assert build.with_(**changes, name="ecp5") == Configuration.preset("ecp5")


def test_the_documented_int8_input_is_accepted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "simulation.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(import numpy as np\n\nx = .*?)```", page, re.DOTALL)
    exec(compile(block, "simulation.md", "exec"), {})
    build = Configuration.from_toml(EXAMPLES / "ecp5_int8.toml")
    tensors = Tensors.read(Path("int8.npz"), build)
    assert tensors.x.dtype == np.int8 and tensors.settings.int8_output
    assert tensors.x_scale.shape == (8,)
    alone = Tensors.read(
        Path("int8.npz"), Configuration.from_toml(EXAMPLES / "ecp5_int8_alone.toml")
    )
    assert np.array_equal(alone.x, tensors.x) and alone.settings == tensors.settings


def test_the_readme_s_input_is_accepted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
    tensors = Tensors.read(Path("rows.npz"), Configuration.preset("ecp5"))
    assert tensors.x.shape == (8, 576)
    assert np.all(tensors.gamma == 1)
    alone = Tensors.read(
        Path("rows.npz"), Configuration.from_toml(EXAMPLES / "ecp5_int8_alone.toml")
    )
    assert alone.x.dtype == np.int8 and alone.settings.int8_output
