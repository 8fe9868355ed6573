# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Boards: their pins and clocks, and a bitstream of a small build."""

import json
import re

import pytest

from haan.boards import BOARDS, board
from haan.build import CELLS, constraints
from haan.cli import main
from haan.config import ConfigurationError
from haan.hdl.board import Pll


@pytest.mark.parametrize("name", BOARDS)
def test_every_port_has_its_own_pin(name):
    chosen = board(name)
    ports = {"clock", "rx", "tx", *chosen.high}
    pins = {pin.port: pin for pin in chosen.pins()}
    assert ports <= set(pins) <= ports | {"led"}
    assert len({pin.site for pin in pins.values()}) == len(pins)
    text = constraints(chosen)
    for port, pin in pins.items():
        assert f'LOCATE COMP "{port}" SITE "{pin.site}";' in text
        assert re.search(rf'IOBUF PORT "{port}" IO_TYPE=\w+', text)
    assert f'FREQUENCY PORT "clock" {chosen.clock_hz / 1e6:g} MHZ;' in text
    assert chosen.options[1:2] == ["--package"]
    assert chosen.thousands in chosen.options[0]


def test_the_ulx3s():
    """Its pins as the board's schematics have them: FTDI's TXD is our rx."""
    pins = {pin.port: pin.site for pin in board("ulx3s-85f").pins()}
    assert pins == {"clock": "G2", "rx": "M1", "tx": "L4", "led": "B2", "wifi_gpio0": "L2"}
    assert board("ulx3s-85f").options == ["--85k", "--package", "CABGA381", "--speed", "6"]


@pytest.mark.parametrize("clock", [12e6, 25e6, 48e6, 50e6, 100e6])
@pytest.mark.parametrize("wanted", [50e6, 62.5e6, 80e6, 100e6, 105e6, 133.3e6])
def test_clocks_that_the_pll_makes(clock, wanted):
    """The limits of the ECP5's PLL: VCO 400 to 800 MHz, phase detector 10 MHz or more, dividers up to 128."""
    if wanted < clock / (clock // 10e6):
        return
    pll = Pll.nearest(clock, wanted)
    assert pll.hz == clock / pll.reference * pll.feedback <= wanted
    assert pll.hz > wanted - clock / pll.reference
    assert 400e6 <= pll.hz * pll.output <= 800e6
    assert clock / pll.reference >= 10e6
    assert max(pll.reference, pll.feedback, pll.output) <= 128


@pytest.mark.parametrize("wanted", [1e6, 900e6])
def test_clocks_that_the_pll_can_not_make(wanted):
    with pytest.raises(ConfigurationError, match=f"mhz = {wanted / 1e6:g}: the PLL"):
        Pll.nearest(100e6, wanted)


def test_no_such_board():
    with pytest.raises(
        ConfigurationError, match="board = 'arty' is not known; there are: ulx3s-85f"
    ):
        board("arty")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--board", "arty"], "board = 'arty' is not known"),
        (["--board", "ulx3s-25f", "--mhz", "1"], "mhz = 1: the PLL can't make that"),
        (["--board", "ulx3s-25f", "--baud", "99000000"], "baud = 99000000: allowed is 1 to"),
    ],
)
def test_what_build_refuses(arguments, message, tmp_path, capsys):
    assert main(["build", "--preset", "tiny", *arguments, "-o", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_bitstream(tmp_path, capsys):
    config = tmp_path / "small.toml"
    config.write_text(
        'schema = 1\nname = "small"\n[what]\nnorms = ["rmsnorm"]\naffine = "gamma"\nmax_n = 64\nlayers = 2\n'
        "slots = 1\ntoken_slots = 2\n[how]\np_d = 2\np_n = 2\nbus_bytes = 2\n"
    )
    status = main(
        ["build", str(config), "--board", "ulx3s-25f", "--mhz", "50", "-o", str(tmp_path), "--json"]
    )
    result = json.loads(capsys.readouterr().out)
    assert status == 0 and result["good"] and result["achieved_mhz"] >= result["wanted_mhz"] == 50
    assert set(result["used"]) == set(CELLS.values())
    assert 0 < result["used"]["LUT"] < result["available"]["LUT"] == 24288
    bitstream = (tmp_path / "haan_board.bit").read_bytes()
    assert b"LFE5U-25F" in bitstream[:200] and len(bitstream) > 50_000
