# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Alveo cards: clocks, constraints and script of the Vivado projects. Vivado itself isn't here; a script stands for it."""

import json
import re
from pathlib import Path

import pytest

from haan.boards.alveo import ALVEO
from haan.cli import main
from haan.config import ConfigurationError
from haan.hdl import generate_alveo
from haan.hdl.alveo import Mmcm
from haan.synthesis import run_yosys
from haan.vivado import constraints, script

from .test_link import TINY

SMALL = TINY.with_(norms=["rmsnorm"], affine="none", p_n=2, p_d=2, bus_bytes=2, max_n=32)
CATTRIP = {"alveo-u280": "D32", "alveo-u55c": "BE45", "alveo-u50": "J18"}
PARTS = {
    "alveo-u280": "xcu280-fsvh2892-2L-e",
    "alveo-u55c": "xcu55c-fsvh2892-2L-e",
    "alveo-u50": "xcu50-fsvh2104-2-e",
    "alveo-u250": "xcu250-figd2104-2L-e",
}


@pytest.mark.parametrize("clock", [100e6, 300e6])
@pytest.mark.parametrize("wanted", [10e6, 99.5e6, 100e6, 250e6, 300e6, 333e6, 600e6])
def test_clocks_that_the_mmcm_makes(clock, wanted):
    """Limits of UltraScale+'s MMCM: VCO 800 to 1600 MHz, factors in eighths, no divider between one and two."""
    mmcm = Mmcm.nearest(clock, wanted)
    assert 0.97 * wanted < mmcm.hz <= wanted * (1 + 1e-12)
    assert 800e6 <= clock * mmcm.multiplier <= 1600e6
    assert (8 * mmcm.multiplier).is_integer() and (8 * mmcm.divider).is_integer()
    assert 2 <= mmcm.multiplier <= 128
    assert mmcm.divider == 1 or 2 <= mmcm.divider <= 128
    if (wanted, clock) in {(100e6, 100e6), (250e6, 100e6), (300e6, 300e6)}:
        assert mmcm.hz == wanted


@pytest.mark.parametrize("wanted", [1e6, 900e6])
def test_clocks_that_the_mmcm_can_not_make(wanted):
    with pytest.raises(ConfigurationError, match=f"mhz = {wanted / 1e6:g}: the MMCM"):
        Mmcm.nearest(100e6, wanted)


@pytest.mark.parametrize("name", ALVEO)
def test_every_port_is_constrained_and_nothing_else(name, tmp_path):
    card = ALVEO[name]
    pins = card.pins()
    verilog = generate_alveo(
        SMALL,
        Mmcm.nearest(card.clock_hz, 100e6),
        115_200,
        reset="reset_n" in pins,
        cattrip="hbm_cattrip" in pins,
    )
    blackboxes = "\n".join(
        [
            "(* blackbox *) module IBUFDS(input I, IB, output O); endmodule",
            "(* blackbox *) module BUFG(input I, output O); endmodule",
            "(* blackbox *) module MMCME4_BASE #(parameter CLKIN1_PERIOD = 0, CLKFBOUT_MULT_F = 0, CLKOUT0_DIVIDE_F = 0)"
            "(input CLKIN1, CLKFBIN, RST, PWRDWN, output CLKFBOUT, CLKOUT0, LOCKED); endmodule",
        ]
    )
    top = run_yosys(
        verilog + blackboxes, ["hierarchy -check -top haan_alveo", "proc", "clean"], tmp_path, "top"
    )["modules"]["haan_alveo"]
    assert set(top["ports"]) == set(pins)
    text = constraints(card)
    for port, (site, standard) in pins.items():
        line = f"set_property -dict {{PACKAGE_PIN {site} IOSTANDARD {standard}}} [get_ports {port}]"
        assert text.count(line) == 1
        if not port.startswith("clock"):
            assert len(re.findall(rf"set_false_path -(?:from|to) \[get_ports {port}\]", text)) == 1
    assert len({site for site, _ in pins.values()}) == len(pins)
    period = re.search(r"create_clock -period (\S+) \[get_ports clock_p\]", text)
    assert float(period[1]) == pytest.approx(1e9 / card.clock_hz, abs=1e-4)
    # What is left undriven would be pulled high, and the card would shut down.
    if name in CATTRIP:
        assert pins["hbm_cattrip"][0] == CATTRIP[name]
        assert top["ports"]["hbm_cattrip"] == {"direction": "output", "bits": ["0"]}
    else:
        assert "hbm_cattrip" not in pins


@pytest.mark.parametrize("name", ALVEO)
def test_the_script(name):
    text = script(ALVEO[name])
    assert PARTS[name] == ALVEO[name].part
    assert f"-part {PARTS[name]}" in text
    assert text.count("{") == text.count("}") and text.count("[") == text.count("]")
    for file in ("haan_alveo.v", "haan_alveo.xdc"):
        assert f"$here/{file}" in text


def config_file(folder: Path) -> str:
    path = folder / "small.toml"
    path.write_text(
        'schema = 1\nname = "small"\n[what]\nnorms = ["rmsnorm"]\naffine = "none"\nmax_n = 32\nlayers = 2\n'
        "slots = 1\ntoken_slots = 2\n[how]\np_d = 1\np_n = 2\nbus_bytes = 2\n"
    )
    return str(path)


def test_a_project_without_vivado(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = ["build", config_file(tmp_path), "--board", "alveo-u280", "-o", str(tmp_path)]
    assert main([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["bitstream"] is None and result["luts"] > 1000 and result["mhz"] == 100
    assert "vivado -mode batch -source build.tcl" in printed.err
    for name in ("haan_alveo.v", "haan_alveo.xdc", "build.tcl"):
        assert (tmp_path / name).stat().st_size


@pytest.mark.parametrize("status", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_vivado_is_run_where_it_is(status, tmp_path, capsys, monkeypatch):
    """In place of Vivado: something that says what it was asked for, and fails or not."""
    tools, out = tmp_path / "tools", tmp_path / "out"
    tools.mkdir()
    stand_in = tools / "vivado"
    stand_in.write_text(f'#!/bin/sh\necho "$@" > asked\necho "ERROR: too hot"\nexit {status}\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    arguments = ["build", config_file(tmp_path), "--board", "alveo-u50", "-o", str(out), "--json"]
    assert main(arguments) == status
    assert (out / "asked").read_text().split() == ["-mode", "batch", "-source", "build.tcl"]
    printed = capsys.readouterr()
    if status:
        assert "too hot" in printed.err and not printed.out
    else:
        assert json.loads(printed.out)["bitstream"] == str(out / "haan_alveo.bit")
