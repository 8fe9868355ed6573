# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The registers: their description against what it describes, the documents made from it, and the register block on the bus,
beside the one that PeakRDL-etana makes of the same description."""

import re
import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import numpy as np
import pytest
from peakrdl_etana.cpuif.axi4lite import AXI4Lite_Cpuif_flattened
from peakrdl_etana.exporter import RegblockExporter
from peakrdl_etana.udps import ALL_UDPS
from systemrdl import RDLCompiler

from haan import __version__
from haan.config import Configuration, presets
from haan.flags import ERROR_BITS, RowFlag
from haan.hdl import generate_unit
from haan.layer import LayerSettings, record_layout
from haan.register_documents import documents
from haan.registers import elaborate, features, register_map
from haan.sim import runner
from haan.sim.jobs import BlockJob, BlockRecord, BlockStep, BusAccess, Delays

TINY = Configuration.preset("tiny")
REGISTERS = register_map(TINY)
OKAY, SLVERR = 0, 2

ADDRESSES = {
    "identity": 0x000,
    "version": 0x004,
    "configuration_hash_0": 0x010,
    "configuration_hash_7": 0x02C,
    "lanes": 0x030,
    "max_n": 0x034,
    "layers": 0x038,
    "slots": 0x03C,
    "token_slots": 0x040,
    "bus_bytes": 0x044,
    "features": 0x048,
    "anchors": 0x04C,
    "control": 0x080,
    "status": 0x084,
    "rows_in_flight": 0x088,
    "cycles_low": 0x090,
    "cycles_high": 0x094,
    "rows_in": 0x098,
    "rows_out": 0x09C,
    "stall_in": 0x0A0,
    "stall_out": 0x0A4,
    "sum_cycles": 0x0A8,
    "roots": 0x0AC,
    "row_flags_0": 0x0C0,
    "row_flags_15": 0x0FC,
    "layer_modes": 0x100,
    "layer_n": 0x104,
    "layer_n_sub": 0x108,
    "layer_first": 0x10C,
    "layer_stride_log2": 0x110,
    "layer_reciprocal_shift": 0x114,
    "layer_reciprocal_0": 0x118,
    "layer_reciprocal_3": 0x124,
    "layer_inverse_square": 0x128,
    "layer_inverse_square_exponent": 0x12C,
    "layer_eps": 0x130,
    "layer_x_scale": 0x134,
    "layer_y_scale": 0x138,
    "layer_slot": 0x13C,
    "layer_anchor": 0x140,
    "layer_ratio": 0x144,
    "layer_guard_low": 0x148,
    "layer_guard_high": 0x14C,
    "commit": 0x180,
    "load": 0x184,
    "parameter_address": 0x190,
    "parameter_data": 0x194,
}
"""Drivers are compiled with these: they never change."""


@pytest.mark.parametrize("preset", presets())
def test_addresses_are_stable(preset):
    registers = register_map(Configuration.preset(preset))
    assert {name: registers[name].address for name in ADDRESSES} == ADDRESSES
    spans = [name for name in registers if re.search(r"_\d+$", name)]
    assert set(registers) - set(spans) == {n for n in ADDRESSES if not re.search(r"_\d+$", n)}
    for name in spans:
        stem, _, place = name.rpartition("_")
        assert registers[name].address == ADDRESSES[f"{stem}_0"] + 4 * int(place)


@pytest.mark.parametrize("change", [{}, {"max_n": 1}, {"max_n": 65536, "layers": 256}])
def test_the_shadow_holds_every_field_of_the_layer_record(change):
    build = TINY.with_(**change)
    registers = register_map(build)
    room = {
        name: sum(field.width for _, field in parts)
        for name, parts in registers.layer_fields().items()
    }
    layout = record_layout(build)
    assert room.keys() == layout.keys()
    assert [name for name, width in layout.items() if room[name] < width] == []
    full = {name: (1 << width) - 1 for name, width in layout.items()}
    words = registers.layer_words(full)
    assert sum(word.bit_count() for word in words.values()) == sum(layout.values())
    assert registers.layer_record(words) == full
    record = LayerSettings(n=1, eps=1e-12).record(build)
    assert registers.layer_record(registers.layer_words(record)) == record


def test_build_facts_are_those_of_the_configuration():
    build = TINY.with_(p_n=16, p_d=4, bus_bytes=8, subsampling=True, max_n=1000)
    registers = register_map(build)

    def constant(name):
        return sum(field.reset << field.low for field in registers[name].fields)

    assert constant("identity").to_bytes(4, "little") == b"HAAN"
    digest = "".join(f"{constant(f'configuration_hash_{i}'):08x}" for i in range(8))
    assert digest == build.digest()
    version = registers["version"].unpack(constant("version"))
    assert "{major}.{minor}.{patch}".format(**version) == __version__
    assert registers["lanes"].unpack(constant("lanes")) == {"p_n": 16, "p_d": 4}
    assert [
        constant(name) for name in ("max_n", "layers", "slots", "token_slots", "bus_bytes")
    ] == [
        1000,
        build.what.layers,
        build.what.slots,
        build.what.token_slots,
        8,
    ]
    assert registers["features"].unpack(constant("features")) == features(build)
    assert features(build)["subsampling"] and not features(build)["one_plus_gamma"]


def test_a_counter_for_each_bit_of_the_flags():
    assert sum(name.startswith("row_flags_") for name in REGISTERS) == ERROR_BITS
    described = dict(re.findall(r"(\d+) ([A-Z_]+)", REGISTERS["row_flags_0"].description))
    assert {int(place): name for place, name in described.items()} == {
        flag.value.bit_length() - 1: flag.name for flag in RowFlag
    }


def test_pack_refuses_what_does_not_fit():
    register = REGISTERS["parameter_address"]
    assert register.unpack(register.pack(index=77, slot=3, beta=1)) == {
        "index": 77,
        "slot": 3,
        "beta": 1,
        "one_plus": 0,
    }
    with pytest.raises(ValueError, match=r"parameter_address.slot = 256: allowed is 0 to 255"):
        register.pack(slot=256)


# Documents


@cache
def texts():
    return documents(TINY)


def test_documents_are_the_same_again():
    register_map.cache_clear()
    assert documents(TINY.with_(name="other")) == texts()


def test_c_header_has_the_addresses(tmp_path):
    (tmp_path / "haan_registers.h").write_text(texts()["haan_registers.h"])
    prints = "".join(
        f'printf("%zu ", offsetof(haan_t, {re.sub(r"^layer_", "layer.", name)}));'
        for name in ADDRESSES
        if not re.search(r"row_flags|layers", name)
    )
    source = f'#include <stdio.h>\n#include <stddef.h>\n#include "haan_registers.h"\nint main(void) {{ {prints} return 0; }}'
    (tmp_path / "print.c").write_text(source)
    subprocess.run(["cc", "-Wall", "-Werror", "-o", "print", "print.c"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "print"], capture_output=True, text=True, check=True)
    expected = [a for n, a in ADDRESSES.items() if not re.search(r"row_flags|layers", n)]
    assert [int(word) for word in done.stdout.split()] == expected
    for name, register in REGISTERS.items():
        name = re.sub(r"^row_flags_\d+", "row_flagsx", name)
        name = re.sub(r"^layer_", "layer__", name)
        for field in register.fields:
            line = f"#define HAAN__{name.upper()}__{field.name.upper()}_bm {field.mask:#x}\n"
            assert line in texts()["haan_registers.h"]


def test_markdown_has_all_registers_and_fields():
    text = texts()["haan_registers.md"]
    table = re.findall(r"^\| 0x([0-9A-F]{3}) \| \[(\w+)\]\(#\2\) \| (\w+) \|$", text, re.MULTILINE)
    assert [(int(a, 16), name) for a, name, _ in table] == [
        (register.address, name) for name, register in REGISTERS.items()
    ]
    sections = re.split(r'^## <a id="\w+"></a>', text, flags=re.MULTILINE)[1:]
    for section, (name, register) in zip(sections, REGISTERS.items(), strict=True):
        assert section.startswith(f"{name}\n")
        assert register.description in section
        fields = re.findall(r"^\| [\d:]+ \| (\w+) \|", section, re.MULTILINE)
        assert fields == [field.name for field in register.fields]


def test_html_is_well_formed_and_has_all_registers():
    class Links(HTMLParser):
        ids, targets, open_ = [], [], []

        def handle_starttag(self, tag, attributes):
            values = dict(attributes)
            self.ids += [values["id"]] if "id" in values else []
            self.targets += [values["href"]] if "href" in values else []
            self.open_ += [tag] if tag not in ("meta", "br", "hr") else []

        def handle_endtag(self, tag):
            assert self.open_.pop() == tag

    parser = Links()
    parser.feed(texts()["haan_registers.html"])
    assert parser.open_ == []
    assert parser.ids == list(REGISTERS)
    assert parser.targets == [f"#{name}" for name in REGISTERS]


def test_ipxact_has_all_registers_and_fields():
    root = ElementTree.fromstring(texts()["haan_registers.xml"])
    (space,) = {root.tag.partition("}")[0] + "}"}

    def number(item, name):
        return int(item.findtext(f"{space}{name}").replace("'h", "0x"), 0)

    found = {
        item.findtext(f"{space}name"): (
            number(item, "addressOffset"),
            [
                (
                    field.findtext(f"{space}name"),
                    number(field, "bitOffset"),
                    number(field, "bitWidth"),
                )
                for field in item.iter(f"{space}field")
            ],
        )
        for item in root.iter(f"{space}register")
    }
    assert found == {
        name: (register.address, [(f.name, f.low, f.width) for f in register.fields])
        for name, register in REGISTERS.items()
    }


# The register block on the bus

EXTERNALS = [name for name, register in REGISTERS.items() if register.external]
BUS_PORTS = {
    "aw": ["addr", "valid", "ready"],
    "w": ["data", "strb", "valid", "ready"],
    "b": ["resp", "valid", "ready"],
    "ar": ["addr", "valid", "ready"],
    "r": ["data", "resp", "valid", "ready"],
}


def hardware_ports():
    """(inputs, outputs) of the hardware's side: port -> width, the fields' in the block's own names."""
    inputs, outputs = {}, {}
    for name, register in REGISTERS.items():
        if register.external:
            inputs |= {f"{name}_ack": 1, f"{name}_error": 1}
            outputs |= {f"{name}_write": 1, f"{name}_data": 32}
            continue
        for field in register.fields:
            port = f"{name}_{field.name}"
            inputs |= {f"{port}_next": field.width} if field.hardware_writes else {}
            inputs |= {f"{port}_we": 1} if field.enabled else {}
            inputs |= {f"{port}_hwclr": 1} if field.cleared else {}
            outputs |= {port: field.width} if field.hardware_reads else {}
            outputs |= {f"{port}_swacc": 1} if field.told else {}
    return inputs, outputs


INPUTS, OUTPUTS = hardware_ports()
PULSES = [name for name in OUTPUTS if name.endswith("_swacc")] + ["control_clear"]
WATCHED = [
    name for name in OUTPUTS if name not in PULSES and not name.endswith(("_write", "_data"))
]


@cache
def etana():
    """PeakRDL-etana's block in a wrapper with the ports of ours."""
    compiler = RDLCompiler()
    for definition in ALL_UDPS:
        compiler.register_udp(definition)
    with TemporaryDirectory() as folder:
        RegblockExporter().export(
            elaborate(compiler, TINY),
            folder,
            cpuif_cls=AXI4Lite_Cpuif_flattened,
            err_if_bad_addr=True,
            err_if_bad_rw=True,
            address_width=12,
        )
        block = (Path(folder) / "haan.sv").read_text("utf-8")
    header = block[block.index("module haan (") : block.index(");")]
    ports = [("clk", "input", 1), ("rst", "input", 1)]
    for channel, names in BUS_PORTS.items():
        for name in names:
            sent = (channel in ("aw", "w", "ar")) != (name == "ready")
            width = {"addr": 12, "data": 32, "strb": 4, "resp": 2}.get(name, 1)
            ports.append((f"{channel}{name}", "input" if sent else "output", width))
    ports += [(name, "input", width) for name, width in INPUTS.items()]
    ports += [(name, "output", width) for name, width in OUTPUTS.items()]
    body, connections = [], []
    for direction, name, array in re.findall(
        r"(input|output) (?:wire|logic)[^,\n]*?(\w+)( \[15:0\])?,?\n", header
    ):
        if name in ("clk", "rst"):
            connections.append(f".{name}({name})")
        elif name.endswith("prot"):
            connections.append(f".{name}(3'd0)")
        elif name.startswith("s_axil_"):
            connections.append(f".{name}({name.removeprefix('s_axil_')})")
        elif array:
            stem = re.fullmatch(r"hwif_in_(\w+)_count", name)[1]
            body.append(f"wire [31:0] {stem} [15:0];")
            body += [f"assign {stem}[{i}] = {stem}_{i}_count_next;" for i in range(16)]
            connections.append(f".{name}({stem})")
        elif direction == "input":
            ours = name.removeprefix("hwif_in_").replace("_wr_ack", "_ack")
            ours = ours if ours in INPUTS else f"{ours}_next"
            connections.append(f".{name}({ours})")
        elif name.endswith(("_req", "_req_is_wr", "_wr_data", "_wr_biten")):
            width = 32 if name.endswith(("data", "biten")) else 1
            body.append(f"wire [{width - 1}:0] {name};")
            connections.append(f".{name}({name})")
        else:
            connections.append(f".{name}({name.removeprefix('hwif_out_')})")
    for name in EXTERNALS:
        wire = f"hwif_out_{name}"
        body += [
            f"assign {name}_write = {wire}_req & {wire}_req_is_wr;",
            f"assign {name}_data = {wire}_wr_data & {wire}_wr_biten;",
        ]
    declared = ",\n".join(f"{way} [{width - 1}:0] {name}" for name, way, width in ports)
    wrapper = "module registers(\n{});\n{}\nhaan block({});\nendmodule\n"
    # Its assertions are more than Icarus understands.
    return (
        "`define SYNTHESIS\n"
        + block
        + wrapper.format(declared, "\n".join(body), ", ".join(connections))
    )


BLOCKS = {"ours": lambda: generate_unit(TINY, "registers"), "etana": etana}


def run(block, steps, simulator="verilator", answers=((1, 0),)):
    """The block's record of a job."""
    names = ["clk", "rst", *INPUTS, *OUTPUTS]
    names += [f"{channel}{name}" for channel, each in BUS_PORTS.items() for name in each]
    made = runner.build(BLOCKS[block](), "registers", names, simulator)
    job = BlockJob(
        steps,
        list(INPUTS),
        list(OUTPUTS),
        EXTERNALS,
        list(answers),
        WATCHED,
        PULSES,
        quiet_in_reset=block == "ours",
    )
    record: BlockRecord = runner.run(made, "haan.sim.bench_axil", job)
    assert record.fault == ""
    return record


class Model:
    """What the registers hold, and what they must answer, as the description says."""

    def __init__(self):
        self.values = {
            (name, field.name): field.reset or 0
            for name, register in REGISTERS.items()
            for field in register.fields
        }
        self.by_address = {register.address: name for name, register in REGISTERS.items()}
        self.answers, self.asked, self.pulses = [], [], []

    def drive(self, inputs):
        for port, value in inputs.items():
            for name, register in REGISTERS.items():
                for field in register.fields:
                    if port == f"{name}_{field.name}_next" and not field.enabled:
                        self.values[name, field.name] = value

    def pulse(self, ports, inputs):
        for name, register in REGISTERS.items():
            for field in register.fields:
                port = f"{name}_{field.name}"
                if f"{port}_we" in ports:
                    self.values[name, field.name] = inputs.get(f"{port}_next", 0)
                if f"{port}_hwclr" in ports:
                    self.values[name, field.name] = 0

    def access(self, access, error):
        name = self.by_address.get(access.address & ~3)
        register = REGISTERS.get(name)
        if access.data is None:
            self.answers.append(self.read(register))
            return
        if register is None or not register.writable:
            self.answers.append((SLVERR, 0))
            return
        bits = sum(0xFF << 8 * i for i in range(4) if access.strobe >> i & 1)
        if register.external:
            self.asked.append((name, access.data & bits))
            self.answers.append((SLVERR if error else OKAY, 0))
            return
        for field in register.fields:
            if field.writable:
                new = (access.data & bits & field.mask) >> field.low
                mask = (bits & field.mask) >> field.low
                old = self.values[name, field.name]
                if field.pulse:
                    self.pulses += [f"{name}_{field.name}"] * new
                elif field.set_by_one:
                    self.values[name, field.name] = old | new
                else:
                    self.values[name, field.name] = (old & ~mask) | new
        self.answers.append((OKAY, 0))

    def read(self, register):
        if register is None or not register.readable:
            return SLVERR, 0
        self.pulses += [
            f"{register.name}_{field.name}_swacc" for field in register.fields if field.told
        ]
        return OKAY, sum(
            self.values[register.name, field.name] << field.low
            for field in register.fields
            if field.readable
        )

    def outputs(self):
        return {
            f"{name}_{field.name}": self.values[name, field.name]
            for name, register in REGISTERS.items()
            for field in register.fields
            if f"{name}_{field.name}" in WATCHED
        }


def random_delays(random):
    if random.random() < 0.3:
        return Delays()
    return Delays(*(int(late) for late in random.integers(0, 5, 5)))


def random_steps(seed, count):
    """Steps of one access each: every register is read and written, and holes between them are tried."""
    random = np.random.default_rng(seed)
    addresses = [register.address for register in REGISTERS.values()]
    addresses += 8 * [ADDRESSES["control"], ADDRESSES["cycles_low"]]
    holes = [0x008, 0x00C, 0x04C, 0x07C, 0x08C, 0x0A8, 0x150, 0x17C, 0x188, 0x198, 0x800, 0xFFC]
    queue = [(address, writes) for address in addresses + holes for writes in (False, True)]
    queue = [queue[i] for i in random.permutation(len(queue))]
    inputs = {}
    steps = []
    for _ in range(count):
        address, writes = (
            queue.pop() if queue else (int(random.choice(addresses)), bool(random.integers(2)))
        )
        external = any(
            register.address == address and register.external for register in REGISTERS.values()
        )
        data = int(random.integers(1 << 32)) if writes else None
        strobe = int(random.choice([0xF, 0xF, 1, 2, 4, 8, 3, 12, 5] + [0] * (not external)))
        low = int(random.integers(4))
        names = random.choice(list(INPUTS), 3)
        drive = {
            str(name): int(random.integers(1 << INPUTS[str(name)]))
            for name in names
            if str(name).endswith("_next")
        }
        inputs |= drive
        pulse = tuple(str(name) for name in names if str(name).endswith(("_we", "_hwclr")))
        access = BusAccess(address | low, data, strobe, random_delays(random))
        steps.append((BlockStep(drive, pulse, [access]), dict(inputs)))
    return steps


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
@pytest.mark.parametrize("block", BLOCKS)
def test_block_does_what_the_description_says(block, simulator):
    # PeakRDL-etana has no way to tell of an error of an external register.
    answers = [(1, 0), (3, 0), (2, 0)] if block == "etana" else [(0, 0), (2, 1), (1, 0), (0, 1)]
    model, watched = Model(), []
    steps = random_steps(1, 400)
    errors = [fault for _, fault in answers]
    for step, inputs in steps:
        model.drive(step.drive)
        model.pulse(step.pulse, inputs)
        (access,) = step.bus
        model.access(access, errors[len(model.asked) % len(errors)])
        watched.append(model.outputs())
    record = run(block, [step for step, _ in steps], simulator, answers)
    assert [answer[:2] for answer in record.answers] == model.answers
    assert record.asked == model.asked
    assert record.pulses == model.pulses
    assert record.outputs == watched
    codes = {response for response, _ in model.answers}
    assert codes == {OKAY, SLVERR}
    assert len(model.asked) > 5
    assert len(set(model.pulses)) == len(PULSES)


def test_accesses_follow_each_other_every_cycle():
    n, eps = REGISTERS["layer_n"].address, REGISTERS["layer_eps"].address
    data = REGISTERS["parameter_data"].address
    writes = [BusAccess(n if i % 2 else eps, i) for i in range(40)]
    external = [BusAccess(data, i) for i in range(40)]
    reads = [BusAccess(n if i % 2 else eps) for i in range(40)]
    steps = [BlockStep(bus=each) for each in (writes, external, reads)]
    record = run("ours", steps, answers=[(0, 0)])
    for start, bus in ((0, writes), (40, external), (80, reads)):
        cycles = [cycle for _, _, cycle in record.answers[start : start + len(bus)]]
        assert cycles == list(range(cycles[0], cycles[0] + len(bus)))
    assert [word for _, word in record.asked] == list(range(40))
    assert {word for _, word, _ in record.answers[80:]} == {38, 39}


def test_reads_go_on_while_a_write_waits():
    commit, n = REGISTERS["commit"].address, REGISTERS["layer_n"].address
    bus = [BusAccess(commit, 1), *[BusAccess(n) for _ in range(5)], BusAccess(n, 7)]
    record = run("ours", [BlockStep(bus=bus)], answers=[(30, 1)])
    commit_cycle, *reads, write_cycle = (cycle for _, _, cycle in record.answers)
    assert max(reads) < commit_cycle < write_cycle
    assert [response for response, _, _ in record.answers] == [SLVERR, *[OKAY] * 6]
    assert record.asked == [("commit", 1)]


def test_a_write_without_strobes_asks_for_nothing():
    bus = [BusAccess(REGISTERS[name].address, 1, strobe=0) for name in EXTERNALS]
    record = run("ours", [BlockStep(bus=bus)], answers=[(0, 1)])
    assert [response for response, _, _ in record.answers] == [OKAY] * len(EXTERNALS)
    assert record.asked == []


@pytest.mark.parametrize("late", ["aw", "w", "b", "ar", "r"])
def test_every_channel_may_be_late(late):
    n = REGISTERS["layer_n"].address
    slow = Delays(**{late: 9})
    bus = [
        access
        for i in range(6)
        for access in (BusAccess(n, i, delays=slow), BusAccess(0x010, delays=slow))
    ]
    record = run("ours", [BlockStep(bus=bus)])
    assert {response for response, _, _ in record.answers} == {OKAY}
    words = {word for _, word, _ in record.answers[1::2]}
    assert words == {int(TINY.digest()[:8], 16)}
    assert record.outputs[-1]["layer_n_value"] == 5
