# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What docs/integration.md says is so, and its examples work."""

import re
import runpy
import subprocess
from pathlib import Path

import numpy as np
import pytest

from haan.config import Configuration, ConfigurationError, presets
from haan.flags import RowFlag
from haan.golden import Packet, passages
from haan.hdl import generate, ports
from haan.layer import LayerSettings
from haan.register_documents import documents
from haan.registers import register_map
from haan.sim import ParameterVector, Row, layer_writes, parameter_writes
from haan.sim.jobs import BusAccess, Moment
from haan.sim.rows import row_beats

from .test_axi import expected, packets, run, values
from .test_examples import complaints
from .test_verilog import lint

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "integration.md").read_text("utf-8")
TINY = Configuration.preset("tiny")
REGISTERS = register_map(TINY)
TABLES = runpy.run_path(str(ROOT / "bench" / "integration_tables.py"))
BRING_UP = runpy.run_path(str(ROOT / "examples" / "bring_up.py"))
LAYERS = [
    LayerSettings(n=48, mode="rmsnorm", eps=1e-5, affine="gamma"),
    LayerSettings(n=33, eps=1e-12, affine="gamma+beta", slot=1),
]
GAMMA = np.linspace(-1.0, 2.0, 48).astype(np.float16)
BETA = np.linspace(3.0, -1.0, 33).astype(np.float16)


# Tables


def test_the_page_has_the_tables_that_the_script_writes():
    """`python bench/integration_tables.py` writes them."""
    assert all(PAGE.count(f"\n{head}\n|---") == 1 for head in TABLES["TABLES"])
    assert TABLES["with_tables"](PAGE) == PAGE
    assert TABLES["with_tables"](PAGE.replace("| 3 | ID |", "| 4 | ID |")) == PAGE


@pytest.mark.parametrize(
    "build",
    [
        *map(Configuration.preset, presets()),
        TINY.with_(layers=1, token_slots=1, bus_bytes=2),
        TINY.with_(bus_bytes=2, statistics_stream=True),
        TINY.with_(formats=["int8"], p_n=8, bus_bytes=4),
    ],
)
def test_the_formulas_give_every_width(build):
    numbers = {
        "B": build.how.bus_bytes or (2 - build.what.integer) * build.how.p_n,
        "I": max(1, int(np.ceil(np.log2(build.what.layers)))),
        "T": max(1, int(np.ceil(np.log2(build.what.token_slots)))),
    }
    for name, _, width in ports(build):
        text = TABLES["formula"](name, width)
        assert eval(text.replace("·", "*"), {}, numbers) == width, name


def test_every_register_and_file_that_is_named_exists():
    bring_up = PAGE.partition("## Bring-up")[2].partition("## Time")[0]
    named = set(re.findall(r"`([a-z_]+(?:_\d)?)`", bring_up))
    assert named - REGISTERS.keys() == {"beta", "digest"}
    assert len(named) > 15
    links = re.findall(r"\]\((?!http)([^)#]+)", PAGE)
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


# Bring-up


class Recorder:
    """A bus that answers with what never changes, and 0, and keeps every access: (address, word), None for a read."""

    def __init__(self):
        self.accesses = []
        self.answers = {
            each.address: sum(field.reset << field.low for field in each.fields)
            for each in REGISTERS.values()
            if all(field.constant for field in each.fields)
        }

    def read(self, address):
        self.accesses.append((address, None))
        return self.answers.get(address, 0)

    def write(self, address, word):
        self.accesses.append((address, word))


def brought_up():
    """The accesses of the example in Python, step by step."""
    bus = Recorder()
    haan = BRING_UP["Haan"](bus, TINY)
    haan.identify()
    haan.write_parameters("gamma", GAMMA, 0)
    haan.write_parameters("beta", BETA, 1)
    for number, settings in enumerate(LAYERS):
        haan.write_layer(number, settings)
    haan.flush()
    return bus.accesses


def test_the_example_in_python_writes_what_the_registers_need():
    writes = [access for access in brought_up() if access[1] is not None]
    vectors = ParameterVector("gamma", GAMMA), ParameterVector("beta", BETA, 1)
    expected = [each for vector in vectors for each in parameter_writes(TINY, vector)]
    for number, settings in enumerate(LAYERS):
        expected += layer_writes(TINY, number, settings.record(TINY))
    assert writes == [
        *((access.address, access.data) for access in expected),
        (REGISTERS["control"].address, 1),
    ]


def test_the_example_in_python_refuses_another_build():
    haan = BRING_UP["Haan"](Recorder(), TINY.with_(layers=3))
    with pytest.raises(RuntimeError, match=r"configuration_hash_0 is 0x\w{8}, and 0x\w{8} in"):
        haan.identify()
    with pytest.raises(ConfigurationError, match="n = 65 exceeds"):
        haan.write_layer(0, LayerSettings(n=65))


MAIN = """
#include <stdio.h>
#include "bring_up.c"

static uint32_t hash;
uint32_t haan_read(uint32_t address) {
    printf("%u\\n", address);
    if (address == ADDRESS(identity)) return 0x4E414148;
    if (address >= ADDRESS(configuration_hash_0) && address < ADDRESS(lanes)) return configuration_hash[hash++ % 8];
    return 0;
}
int haan_write(uint32_t address, uint32_t word) {
    printf("%u %u\\n", address, word);
    return address == ADDRESS(commit) && word == REFUSED;
}
static const uint32_t gamma_words[] = {GAMMA}, beta_words[] = {BETA};
int main(void) {
    int error = haan_identify();
    error |= haan_write_parameters(0, 0, gamma_words, sizeof gamma_words / 4);
    error |= haan_write_parameters(1, 1, beta_words, sizeof beta_words / 4);
    error |= haan_write_layer(0);
    error |= haan_write_layer(1);
    haan_flush();
    return error;
}
"""


def test_the_example_brings_the_hardware_up():
    """Its accesses, played to the hardware; then two rows, each through the idle accelerator, in the cycles that the page promises."""
    bus = Recorder()
    haan = BRING_UP["Haan"](bus, TINY)
    haan.identify()
    identity = len(bus.accesses)
    haan.write_parameters("gamma", GAMMA, 0)
    haan.write_parameters("gamma", GAMMA[:33], 1)
    haan.write_parameters("beta", BETA, 1)
    for number, settings in enumerate(LAYERS):
        haan.write_layer(number, settings)
    setup = len(bus.accesses)
    haan.flush()
    assert set(haan.faults()) == {flag.name for flag in RowFlag}
    accesses = [BusAccess(*each) for each in bus.accesses]
    rows = [
        Row(np.linspace(-3, 5, layer.n).astype(np.float16), layer, number, token=7 - number)
        for number, layer in enumerate(LAYERS)
    ]
    counts = [len(row_beats(TINY, row)) for row in rows]
    record = run(
        TINY,
        rows,
        [
            Moment(accesses[:setup]),
            Moment(accesses[setup:], beats=counts[0], packets=1),
            Moment([], beats=sum(counts), packets=2),
        ],
    )
    answers = values(record.answers[0])
    assert answers[:identity] == [bus.answers[address] for address, _ in bus.accesses[:identity]]
    assert values(record.answers[1])[1:] == [0] * (1 + len(RowFlag))
    vectors = [
        ParameterVector("gamma", GAMMA),
        ParameterVector("gamma", GAMMA[:33], 1),
        ParameterVector("beta", BETA, 1),
    ]
    assert packets(TINY, record) == expected(TINY, rows, vectors)
    first = 0
    for row, count in zip(rows, counts, strict=True):
        (alone,) = passages(TINY, [Packet(count, row.settings)], [True], [True])
        taken, seen = record.accepted[first : first + count], record.seen[first : first + count]
        assert [cycle - taken[0] for cycle in taken] == alone.in_cycles
        assert [beat.cycle - taken[0] for beat in seen] == alone.out_cycles
        first += count


@pytest.mark.parametrize("refused", [9, 1])
def test_the_example_in_c_does_the_same(refused, tmp_path):
    header = BRING_UP["layers_header"](TINY, LAYERS)
    (tmp_path / "haan_layers.h").write_text(header)
    (tmp_path / "haan_registers.h").write_text(documents(TINY)["haan_registers.h"])
    (tmp_path / "main.c").write_text(MAIN)
    words = {
        "GAMMA": ", ".join(map(str, GAMMA.view(np.uint16))),
        "BETA": ", ".join(map(str, BETA.view(np.uint16))),
        "REFUSED": str(refused),
    }
    options = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I.", f"-I{ROOT / 'examples'}"]
    options += [f"-D{name}={text}" for name, text in words.items()]
    subprocess.run(["cc", *options, "-o", "main", "main.c"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    lines = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert lines == [each if each[1] is not None else each[:1] for each in brought_up()]
    assert done.returncode == (refused == 1)


def test_the_script_writes_its_layers_for_c(tmp_path, monkeypatch):
    path = tmp_path / "haan_layers.h"
    monkeypatch.setattr("sys.argv", ["bring_up.py", str(path)])
    runpy.run_path(str(ROOT / "examples" / "bring_up.py"), run_name="__main__")
    build, layers = BRING_UP["CONFIGURATION"], BRING_UP["LAYERS"]
    text = path.read_text("utf-8")
    assert "haan_layers[2][20]" in text
    words = [int(word, 16) for word in re.findall(r"0x[0-9a-f]+", text)]
    expected = [
        word
        for settings in layers
        for word in register_map(build).layer_words(settings.record(build)).values()
    ]
    assert words == expected


# The wrapper


@pytest.mark.parametrize("preset", ["tiny", "ecp5"])
def test_tools_accept_the_wrapper(preset, tmp_path):
    build = Configuration.preset(preset)
    wrapper = (ROOT / "examples" / "normalizer.v").read_text("utf-8")
    numbers = {"B": build.bus, "I": build.what.id_bits, "T": build.what.token_bits}
    fitted = wrapper
    for name, value in numbers.items():
        fitted = re.sub(rf"(parameter {name} =) \d+", rf"\1 {value}", fitted)
    # The file's own numbers are the preset ecp5's.
    assert (fitted == wrapper) == (preset == "ecp5")
    verilog = generate(build)
    assert lint(verilog + fitted, "normalizer", tmp_path) == ""
    for port, _, _ in ports(build):
        assert fitted.count(f".{port}(") == 1
    assert complaints(verilog, fitted) == []
    # The check is able to fail, for each of the widths.
    for name, value in numbers.items():
        wrong = fitted.replace(f"parameter {name} = {value}", f"parameter {name} = {value + 1}")
        assert complaints(verilog, wrong) != []
