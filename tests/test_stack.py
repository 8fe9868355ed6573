# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Stacks of layers through the RTL: results, cycles and counters are golden's, and skipping saves what it says."""

import json
import runpy
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from haan.cli import main
from haan.config import Configuration, ConfigurationError
from haan.estimate import row_latency
from haan.flags import RowFlag
from haan.golden import normalize, reference
from haan.layers import LayerTable
from haan.stack import Stack
from haan.stack_report import SETTLE_CYCLES, measure_stack

ROOT = Path(__file__).parents[1]
SMALL = Configuration.preset("tiny").with_(
    layers=6, slots=3, p_n=4, skipping=True, subsampling=True, anchors=2, name="small"
)
LAYERS = {
    "layer": [
        {"n": 24, "mode": "rmsnorm", "affine": "gamma", "name": "first"},
        {"n": 24, "mode": "rmsnorm", "affine": "gamma", "skip": True, "anchor": 0, "ratio": 0.5},
        {"n": 40, "affine": "gamma+beta", "slot": 1, "n_sub": 10, "stride": 4, "layer": 3},
        {"n": 24, "skip": True, "anchor": 0, "ratio": 1.5, "guard_high": 0.4},
        {"n": 24, "skip": True, "anchor": 0, "guard_high": 0.4, "guard_action": "exact"},
    ]
}
ROWS = 4


def small_arrays():
    """The last token's deviation is smaller than 1, so that its ISD is outside of the guards."""
    random = np.random.default_rng(3)
    table = LayerTable.from_dict(LAYERS)
    spread = np.array([[8.0], [5.0], [3.0], [0.5]])
    arrays = {
        f"x.{layer}": (random.normal(0, 1, (ROWS, settings.n)) * spread).astype(np.float16)
        for layer, settings in table.settings.items()
    }
    arrays["gamma.0"] = random.normal(0, 1, 24).astype(np.float16)
    arrays["gamma.3"], arrays["beta.3"] = random.normal(0, 1, (2, 40)).astype(np.float16)
    return arrays


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """(report, output arrays, input arrays)"""
    folder = tmp_path_factory.mktemp("small")
    path = folder / "x.safetensors"
    arrays = small_arrays()
    save_file(arrays, path)
    stack = Stack.read(path, LayerTable.from_dict(LAYERS), SMALL)
    outcome = measure_stack(SMALL, stack, "verilator", None, lambda text: None)
    return outcome.report, outcome.arrays(), arrays


def test_a_small_stack_is_golden_s_and_its_counts_are_right(small):
    report, output, _ = small
    assert report.bit_exact and report.cycle_exact
    predicted = RowFlag.PREDICTED
    held = RowFlag.GUARD | predicted
    assert {name: flags.tolist() for name, flags in output.items() if "flags" in name} == {
        "flags.0": [0] * 4,
        "flags.1": [predicted] * 4,
        "flags.3": [0] * 4,
        "flags.4": [predicted] * 3 + [held],
        "flags.5": [predicted] * 3 + [RowFlag.GUARD],
    }
    layers = {each.layer: each for each in report.layers}
    assert [(each.predicted, each.guarded, each.no_anchor) for each in report.layers] == [
        (0, 0, 0),
        (4, 0, 0),
        (0, 0, 0),
        (3, 1, 0),
        (3, 1, 0),
    ]
    assert (layers[1].anchor, layers[3].anchor, layers[3].n_sub) == (0, None, 10)
    assert layers[1].max_error_ulp is None
    assert layers[5].mean_error_ulp <= layers[5].max_error_ulp < 0.55
    assert layers[0].max_difference is None
    # Of LayerNorm a predicted row still takes its sums, for the mean.
    assert report.effort.statistics_cycles == ROWS * (12 + 10 + 2 * 12)
    assert report.exact_effort.statistics_cycles == ROWS * (12 + 12 + 20 + 2 * 12)
    assert report.exact_effort.roots == 5 * ROWS
    assert report.remaining["cycles"] == report.effort.cycles / report.exact_effort.cycles < 1


def test_a_small_stack_has_the_results_of_its_definition(small):
    _, output, arrays = small
    first = {"configuration": SMALL, "mode": "rmsnorm"}
    assert np.array_equal(
        output["y.0"], normalize(arrays["x.0"], arrays["gamma.0"], **first).y, equal_nan=True
    )
    isd = reference(arrays["x.0"], mode="rmsnorm").isd[:, None]
    exact = arrays["x.1"] * isd * 0.5 * arrays["gamma.0"].astype(np.float64)
    np.testing.assert_allclose(output["y.1"], exact, rtol=2e-3, atol=1e-6)
    # Held: the anchor's ISD as it is.
    x = arrays["x.4"].astype(np.float64)
    exact = (x - x.mean(axis=1, keepdims=True)) * isd * np.array([[1.5], [1.5], [1.5], [1.0]])
    np.testing.assert_allclose(output["y.4"], exact, rtol=4e-3, atol=1e-3)


def test_a_layer_begins_when_the_one_before_has_left(small):
    report, output, _ = small
    settings = LayerTable.from_dict(LAYERS).settings
    assert output["cycles.0"][0] == row_latency(SMALL, settings[0])
    for before, layer in pairwise(settings):
        taken = output[f"cycles.{layer}"][0] - output[f"cycles.{before}"][-1] - 1 - SETTLE_CYCLES
        if layer == 1:  # No statistics.
            assert 24 // SMALL.how.p_n < taken <= 24 // SMALL.how.p_n + 28
        else:
            assert taken == row_latency(SMALL, settings[layer])
    assert report.effort.cycles == output["cycles.5"][-1]


# INT8

MIXED = SMALL.with_(formats=["fp16", "int8"], parameter_format="fp32", slots=4, name="mixed")
BOTH = {"input_format": "int8", "output_format": "int8"}
INT8_LAYERS = {
    "layer": [
        {"n": 24, "mode": "rmsnorm", "affine": "gamma", "output_format": "int8", "y_scale": 0.02},
        {"n": 24, "mode": "rmsnorm", "affine": "gamma", "slot": 1, "skip": True, "anchor": 0}
        | BOTH
        | {"ratio": 0.9, "y_scale": 0.03},
        {"n": 40, "affine": "gamma+beta", "slot": 2, "x_scale": 0.1, "y_scale": 0.03} | BOTH,
        {"n": 24, "input_format": "int8"},
        {"n": 24, "input_format": "int8", "affine": "gamma", "slot": 3, "x_scale": 0.05},
    ]
}


def int8_arrays():
    """INT8 rows with scales beside them, with that of the layer, and numbers that become INT8 in either way."""
    random = np.random.default_rng(7)
    x = [random.normal(0, 2, (ROWS, n)).astype(np.float32) for n in (24, 24, 40, 24, 24)]
    return {
        "x.0": x[0].astype(np.float16),
        "x.1": np.rint(x[1] * 20).astype(np.int8),
        "x_scale.1": np.full(ROWS, 0.05, np.float32),
        "x.2": np.rint(x[2] * 10).astype(np.int8),
        "x.3": x[3],
        "x.4": x[4],
        # 0.1 is no FP16 number, and need not be one: it is divided.
        **{f"gamma.{k}": np.full(n, 0.1, np.float32) for k, n in ((0, 24), (1, 24), (2, 40))},
        "beta.2": np.full(40, 0.3, np.float32),
        "gamma.4": np.ones(24, np.float32),
    }


def test_a_stack_of_both_formats(tmp_path):
    path, arrays = tmp_path / "x.npz", int8_arrays()
    np.savez(path, **arrays)
    table = LayerTable.from_dict(INT8_LAYERS)
    stack = Stack.read(path, table, MIXED)
    outcome = measure_stack(MIXED, stack, "verilator", None, lambda text: None)
    report, output = outcome.report, outcome.arrays()
    assert report.bit_exact and report.cycle_exact
    assert [each.predicted for each in report.layers] == [0, ROWS, 0, 0, 0]
    assert {name for name in output if "y_scale" in name} == {"y_scale.0", "y_scale.1", "y_scale.2"}
    for layer, each in zip(report.layers, table.settings.values(), strict=True):
        assert (layer.input_format, layer.output_format) == (each.input_format, each.output_format)
        assert output[f"y.{layer.layer}"].dtype == (np.int8 if each.int8_output else np.float16)
        if each.int8_output and not each.skip:
            assert layer.mean_error_lsb <= layer.max_error_lsb <= 1 and layer.max_error_ulp is None
        if not each.int8_output:
            assert layer.max_error_ulp < 0.55 and layer.max_error_lsb is None
    # Each layer by its definition.
    x = arrays["x.3"].astype(np.float64)
    exact = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    np.testing.assert_allclose(output["y.3"], exact, atol=0.03)
    x = arrays["x.2"].astype(np.float64)
    exact = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True) * 0.1 + 0.3
    np.testing.assert_allclose(output["y.2"] * output["y_scale.2"], exact, atol=0.016)
    isd = reference(arrays["x.0"], mode="rmsnorm").isd[:, None]
    exact = arrays["x.1"].astype(np.float64) * 0.05 * isd * 0.9 * 0.1
    np.testing.assert_allclose(output["y.1"] * output["y_scale.1"], exact, atol=0.016)


def test_a_stack_of_int8_alone(tmp_path):
    build = MIXED.with_(formats=["int8"], skipping=False, anchors=1)
    layers = [
        {"n": n, "affine": "gamma", "slot": slot, "y_scale": 0.03} | BOTH
        for slot, n in enumerate((24, 40))
    ]
    random = np.random.default_rng(9)
    arrays = {f"x.{k}": random.normal(0, 3, (ROWS, n)) for k, n in enumerate((24, 40))}
    arrays |= {f"gamma.{k}": np.full(n, 0.7) for k, n in enumerate((24, 40))}
    np.savez(tmp_path / "x.npz", **{name: each.astype(np.float32) for name, each in arrays.items()})
    stack = Stack.read(tmp_path / "x.npz", LayerTable.from_dict({"layer": layers}), build)
    report = measure_stack(build, stack, "verilator", None, lambda text: None).report
    assert report.bit_exact and report.cycle_exact
    assert all(layer.max_error_lsb <= 1 for layer in report.layers)


GOOD_INT8 = int8_arrays()
BAD_INT8 = {
    "no scale": ({"x_scale.1": None}, {}, "x.1 is int8, so x_scale.1, a number or one for each"),
    "scale of numbers": (
        {"x_scale.3": np.float32(1)},
        {},
        "x_scale.3 is given, but x.3 is float32: only INT8 elements have a scale",
    ),
    "two scales": (
        {"x_scale.2": np.float32(1)},
        {},
        "array 'x_scale.2': layer 2 has input_format = 'int8', x_scale = 0.1",
    ),
    "scale of FP16": (
        {"x_scale.0": np.float32(1)},
        {},
        "array 'x_scale.0': layer 0 has input_format = 'fp16', x_scale = None",
    ),
    "scale's shape": (
        {"x_scale.1": np.ones(3, np.float32)},
        {},
        "x_scale.1 has shape (3,), but must be a number or (4,)",
    ),
    "scale's value": ({"x_scale.1": np.float32(-1)}, {}, "x_scale.1 = -1.0: allowed is 0, and"),
    "not finite": (
        {"x.3": np.full((4, 24), np.inf, np.float32)},
        {},
        "x.3[0, 0] = inf, which no INT8 number stands for",
    ),
    "int8 as FP16": (
        {"x.0": np.ones((4, 24), np.int8)},
        {},
        "x.0 is int8, but must be float16 or float32",
    ),
    "one slot": (
        {},
        {"slot": 0, "y_scale": 0.03},
        "but both have slot = 0, whose gamma is divided by y_scale; allowed are different slots",
    ),
}


@pytest.mark.parametrize(("arrays", "changes", "sentence"), BAD_INT8.values(), ids=BAD_INT8)
def test_bad_stacks_of_int8(tmp_path, arrays, changes, sentence):
    first, second, *others = INT8_LAYERS["layer"]
    table = LayerTable.from_dict({"layer": [first, second | changes, *others]})
    path = tmp_path / "x.npz"
    given = {name: each for name, each in (GOOD_INT8 | arrays).items() if each is not None}
    np.savez(path, **given)
    with pytest.raises(ConfigurationError) as refusal:
        Stack.read(path, table, MIXED)
    assert str(refusal.value).startswith(f"{path}: ")
    assert sentence in str(refusal.value)


# A real model

LLAMA = Configuration.from_toml(ROOT / "examples" / "smollm2_stack.toml")
SINK_FROM = 24
"""Norm from which on the first token of a text is far from all others."""


def test_the_61_norms_of_smollm2(tmp_path):
    """One test, because the simulation takes longest."""
    runpy.run_path(str(ROOT / "examples" / "smollm2_stack.py"))["main"](tmp_path)
    table = LayerTable.read(tmp_path / "smollm2_layers.toml")
    stack = Stack.read(tmp_path / "smollm2_stack.npz", table, LLAMA)
    outcome = measure_stack(LLAMA, stack, "verilator", None, lambda text: None)
    report, output = outcome.report, outcome.arrays()
    assert report.bit_exact and report.cycle_exact
    check_guards(stack, output)
    check_differences(report, stack, output)
    check_savings(report)


def check_guards(stack, output):
    """The sink takes the guard, and nothing else does."""
    skipped = [layer for layer, each in stack.table.settings.items() if each.skip]
    assert skipped == list(range(3, 60, 2))
    with np.load(ROOT / "tests" / "data" / "smollm2_rmsnorm_stack.npz") as data:
        sink = data["token_pos"] == 0
    assert sink.sum() == 3
    for layer, settings in stack.table.settings.items():
        flags = output[f"flags.{layer}"]
        assert np.array_equal(flags & RowFlag.PREDICTED != 0, np.full(8, settings.skip))
        caught = sink & settings.skip & (settings.anchor >= SINK_FROM)
        assert np.array_equal(flags & RowFlag.GUARD != 0, caught), layer
        assert not np.any(flags & RowFlag.NO_ANCHOR)


def check_differences(report, stack, output):
    """Skipped norms differ by the error of their ISD."""
    isd = {
        layer: reference(x, mode="rmsnorm", eps=stack.table.settings[layer].eps).isd
        for layer, x in stack.x.items()
    }
    for layer in report.layers:
        if layer.anchor is None:
            assert layer.max_error_ulp < 0.55
            continue
        ratio = np.where(
            output[f"flags.{layer.layer}"] & RowFlag.GUARD,
            1.0,
            stack.table.settings[layer.layer].ratio,
        )
        wrong = np.abs(ratio * isd[layer.anchor] / isd[layer.layer] - 1)
        assert layer.max_difference == pytest.approx(wrong.max(), abs=1e-3)
        assert layer.rms_difference <= layer.max_difference < 0.2


def check_savings(report):
    """What skipping saves."""
    assert report.exact_effort.roots == 61 * 8
    assert report.effort.roots == 32 * 8
    feed = 576 // LLAMA.how.p_d
    assert report.exact_effort.statistics_cycles == 61 * 8 * feed
    assert report.effort.statistics_cycles == 32 * 8 * feed
    beats = 576 // LLAMA.how.p_n
    for layer in report.layers:
        assert layer.cycles_per_row == (feed if layer.anchor is None else beats)
        if layer.anchor is not None:
            assert layer.latency_cycles <= beats + 20
    assert report.remaining["cycles"] < 0.8
    assert report.remaining["latency_cycles"] < 0.7
    assert report.remaining["multiplier_cycles"] < 0.9


# What is refused

GOOD = small_arrays()
BAD_STACKS = {
    "missing": ({"x.3": None}, "array x.3 (rows, N) is missing, and {table} has layer 3"),
    "no such layer": ({"x.2": GOOD["x.0"]}, "array 'x.2': {table} has no layer 2"),
    "unknown": (
        {"y.0": GOOD["x.0"]},
        "array 'y.0' is not known; there are: x.K, x_scale.K, gamma.K",
    ),
    "zeros": ({"x.00": GOOD["x.0"]}, "array 'x.00' is not known"),
    "length": ({"x.3": GOOD["x.0"]}, "x.3 has rows of 24 elements, but layer 3 has n = 40"),
    "rows": ({"x.1": GOOD["x.1"][:3]}, "x.1 has 3 rows, but x.0 has 4; allowed is the same"),
    "type": ({"x.1": GOOD["x.1"].astype(int)}, "x.1 is int64, but must be float16 or float32"),
    "not FP16": (
        {"x.1": np.full((4, 24), 0.1, np.float32)},
        "x.1[0, 0] = 0.10000000149011612 is not an",
    ),
    "shape": ({"x.1": GOOD["x.1"][0]}, "x.1 has shape (24,), but must be (rows, N)"),
    "both": ({"x": np.ones((5, 4, 24), np.float16)}, "are both there; allowed is either"),
    "gamma's shape": ({"gamma.0": GOOD["x.0"]}, "gamma.0 has shape (4, 24), but must be (24,)"),
    "no gamma": ({"gamma.0": None}, "array gamma.0 (N,) is missing, and layer 0 (first) has aff"),
    "gamma unused": ({"gamma.4": GOOD["gamma.0"]}, "array 'gamma.4': layer 4 has affine = 'none'"),
    "slot": (
        {"gamma.1": -GOOD["gamma.0"]},
        "gamma.1 is not gamma.0, but both layers have slot = 0; allowed are equal vectors, or different slots",
    ),
    "tokens' shape": ({"tokens": np.arange(3)}, "tokens is int64 of shape (3,), but must be"),
    "tokens' type": ({"tokens": np.ones(4)}, "tokens is float64 of shape (4,), but must be int"),
    "token": (
        {"tokens": np.array([0, 1, 2, 16])},
        "tokens[3] = 16, but this build has token slots",
    ),
    "tokens": (
        {"tokens": np.array([2, 1, 0, 1])},
        "tokens[3] = 1 is there already; allowed is a s",
    ),
    "offset": ({"one_plus_gamma": True}, "one_plus_gamma = true, but this build has one_plus_gam"),
}


@pytest.mark.parametrize(("arrays", "sentence"), BAD_STACKS.values(), ids=BAD_STACKS)
def test_bad_stacks(tmp_path, arrays, sentence, capsys):
    config, table, path = (tmp_path / name for name in ("c.toml", "layers.toml", "x.npz"))
    config.write_text(
        "[what]\nmax_n = 64\nlayers = 6\nslots = 3\ntoken_slots = 16\nskipping = true\nsubsampling = true\nanchors = 2\n"
    )
    table.write_text(to_toml(LAYERS["layer"]))
    given = {name: array for name, array in (GOOD | arrays).items() if array is not None}
    np.savez(path, **given)
    command = ["simulate", str(config), "--layers", str(table), "--input", str(path)]
    assert main(command) == 2
    out, err = capsys.readouterr()
    warning, refusal = err.splitlines()
    assert out == ""
    assert warning.startswith(f"haan: warning: {table}: layer 3: n_sub = 10 of n = 40; ")
    assert refusal.startswith(f"haan: {path}: ")
    assert sentence.format(table=table) in refusal


def to_toml(layers):
    return "".join(
        "[[layer]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in layer.items())
        for layer in layers
    )


def test_more_rows_than_token_slots(tmp_path, capsys):
    table, path = tmp_path / "layers.toml", tmp_path / "x.npz"
    table.write_text("[[layer]]\nn = 4\n")
    np.savez(path, **{"x.0": np.ones((17, 4), np.float16)})
    command = ["simulate", "--preset", "tiny", "--layers", str(table), "--input", str(path)]
    assert main(command) == 2
    assert "there are 17 rows, but this build has token_slots = 16" in capsys.readouterr().err


def test_arrays_of_all_layers_are_split_in_their_order(tmp_path):
    table = LayerTable.from_dict(
        {
            "layer": [
                {"n": 6, "layer": 4, "affine": "gamma", "slot": 2},
                {"n": 6, "layer": 1, "affine": "gamma+beta"},
            ]
        }
    )
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 3, 6)).astype(np.float16)
    gamma, beta = random.normal(size=(2, 2, 6)).astype(np.float16)
    path = tmp_path / "x.npz"
    np.savez(path, x=x, gamma=gamma, beta=beta, tokens=np.array([5, 0, 9], np.uint8))
    stack = Stack.read(path, table, SMALL)
    assert list(stack.x) == [1, 4]
    assert np.array_equal(stack.x[1], x[0]) and np.array_equal(stack.x[4], x[1])
    assert np.array_equal(stack.gamma[0], gamma[0]) and np.array_equal(stack.gamma[2], gamma[1])
    assert list(stack.beta) == [0] and np.array_equal(stack.beta[0], beta[0])
    assert stack.tokens.tolist() == [5, 0, 9]


def test_stacked_arrays_of_another_shape_are_refused(tmp_path, capsys):
    table, path = tmp_path / "layers.toml", tmp_path / "x.npz"
    table.write_text("[[layer]]\nn = 4\n[[layer]]\nn = 4\n")
    command = ["simulate", "--preset", "tiny", "--layers", str(table), "--input", str(path)]
    for x in (np.ones((3, 2, 4), np.float16), np.ones((2, 4), np.float16)):
        np.savez(path, x=x)
        assert main(command) == 2
        assert "but must be (layers, rows, N) with the 2 layers of" in capsys.readouterr().err
