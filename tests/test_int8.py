# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""INT8 beside FP16 in the hardware: rows of both formats through the core and through `haan_axi`, compared with the golden model in
elements, flags and cycles; real activations, compared with float64; the rate; what COMMIT refuses."""

from itertools import cycle, islice, product

import numpy as np
import pytest

from haan.config import Configuration
from haan.flags import RowFlag
from haan.golden import lsb_error, reference
from haan.layer import LayerSettings, float32_bits
from haan.registers import register_map
from haan.scaling import divided, quantized
from haan.sim import (
    ParameterVector,
    Row,
    SimulationResult,
    layer_writes,
    simulate,
    simulate_core,
    stimulus,
)
from haan.sim.jobs import BusAccess, Moment
from haan.sim.verdict import compare

from .test_axi import OKAY, SLVERR, codes, reads, run, setup, values, write
from .test_golden_int8 import real_rows
from .test_rows import STALLS, pairwise

FORMATS = ["fp16", "int8"]
BOTH = list(product(FORMATS, FORMATS))
"""Formats in and out."""
PLAIN = Configuration().with_(
    formats=FORMATS,
    p_n=4,
    p_d=4,
    max_n=256,
    layers=5,
    slots=3,
    token_slots=4,
    cast_before_gamma=True,
)
BUILD = {
    "lanes": [(4, 4), (8, 2), (1, 1)],
    "parameters": ["gamma+beta fp16", "gamma fp32", "none"],
    "norms": [("layernorm", "rmsnorm"), ("rmsnorm",), ("layernorm",)],
    "anchors": [0, 1, 2],
    "newton_steps": [1, 0, 2],
    "subsampling": [False, True],
    "cast_before_gamma": [False, True],
    "pipeline": ["balanced", "short"],
    "isd_interval": [1, 16],
    "accumulator": ["exact", "window"],
}


def configuration(case):
    affine, *rest = case["parameters"].split()
    own = ("lanes", "parameters", "anchors")
    return PLAIN.with_(
        **{name: level for name, level in case.items() if name not in own},
        p_n=case["lanes"][0],
        p_d=case["lanes"][1],
        affine=affine,
        parameter_format=rest[0] if rest else "fp16",
        skipping=case["anchors"] > 0,
        anchors=max(1, case["anchors"]),
        max_n=100,
    )


BUILDS = [
    configuration(case)
    for case in pairwise(
        BUILD,
        lambda case: not (case.get("cast_before_gamma") and case.get("parameters") == "none"),
    )
]
QUICK = 5
"""So many of them have most of the pairs."""
ON_ICARUS = [build for build in BUILDS if build.how.p_n <= 4 and build.what.gamma][:2]


def name(build):
    how, what = build.how, build.what
    anchors = f"-anchors-{what.anchors}" if what.skipping else ""
    return f"{how.p_n}x{how.p_d}-{'-'.join(what.norms)}-{what.affine}{anchors}"


def choose(random, values):
    return values[int(random.integers(len(values)))]


def any_layer(build, random, formats):
    """Settings that the build can do."""
    what, p_n = build.what, build.how.p_n
    sizes = [1, 2, 3, p_n, 2 * p_n, 2 * p_n + 1, int(random.integers(1, what.max_n))]
    n = min(choose(random, sizes), what.max_n)
    parts = ["none", *["gamma"] * what.gamma, *["beta", "gamma+beta"] * what.beta]
    given, asked = formats
    if not what.gamma:
        asked = "fp16"
    affine = choose(random, [each for each in parts if asked == "fp16" or "gamma" in each])
    more = {}
    if given == "int8" and random.random() < 0.4:
        more["x_scale"] = float(np.exp2(random.normal(0, 10)))
    if what.subsampling and random.random() < 0.5:
        first, stride = int(random.integers(n)), choose(random, [1, 2, 4])
        more |= {"first": first, "stride": stride}
        more["n_sub"] = int(random.integers(1, 2 + (n - 1 - first) // stride))
    if what.cast_before_gamma and asked == "fp16":
        more["cast_before_gamma"] = random.random() < 0.4
    if what.skipping and random.random() < 0.4:
        more["keep_isd"] = True
    elif what.skipping and random.random() < 0.7:
        more |= {
            "skip": True,
            "anchor": int(random.integers(what.layers)),
            "ratio": float(np.exp2(random.normal())),
            "guard_high": choose(random, [3.0, np.inf]),
            "guard_action": choose(random, ["hold", "exact"]),
        }
    return LayerSettings(
        n=n,
        mode=choose(random, what.norms),
        eps=choose(random, [1e-5, 0.0, 1e-12, 0.1]),
        affine=affine,
        slot=int(random.integers(what.slots)),
        input_format=given,
        output_format=asked,
        **more,
    )


def elements(settings, count, random):
    """Of any kind; count: how many."""
    size = max(1, count)
    if settings.int8_input:
        return stimulus.integers(choose(random, list(stimulus.INTEGER_KINDS)), size, random)[:count]
    kind = choose(random, [*stimulus.KINDS, "any bits"])
    return stimulus.row(kind, size, random)[:count]


SCALES = [0.0, 1.0, 2.0**-126, 1e-30, 1e30, 3e38, 0.013]
BAD_SCALES = [-0.0, -1.0, 1e-39, np.inf, np.nan]


def any_row(build, settings, layer, random, faults=True):
    """Mostly a whole row; else one that is short or long, with any TKEEP, another TID, or a bad scale."""
    count, octets = settings.n, build.bus
    fault = random.random() if faults else 1.0
    if fault < 0.06:
        count = int(random.integers(count + 1))
    elif fault < 0.12:
        count += int(random.integers(1, 3 * build.how.p_n))
    x = elements(settings, count, random)
    beats = max(1, -(-x.nbytes // octets))
    keep = {int(random.integers(beats)): int(random.integers(1 << octets))}
    ids = {int(random.integers(1, beats)): (layer + 1) % build.what.layers} if beats > 1 else {}
    return Row(
        x,
        settings,
        layer,
        token=int(random.integers(build.what.token_slots)),
        x_scale=choose(random, BAD_SCALES if 0.21 <= fault < 0.26 else SCALES),
        keep=keep if 0.12 <= fault < 0.17 else {},
        ids=ids if 0.17 <= fault < 0.21 else {},
    )


def make_parameters(build, random):
    """For each slot: numbers that make INT8 results of all sizes, numbers of all sizes, and infinities and NaN among them."""
    what = build.what
    width = what.parameters.width
    vectors = []
    for slot, kind in product(range(3), ["gamma"] * what.gamma + ["beta"] * what.beta):
        bits = stimulus.parameters(("plain", "wide", "special")[slot], what.max_n, width, random)
        if slot == 0:
            numbers = bits.view(np.float16 if width == 16 else np.float32)
            bits = np.multiply(numbers, 30, dtype=numbers.dtype)
        vectors.append(ParameterVector(kind, bits, slot))
    return vectors


def check(build, rows, parameters, simulation=simulate_core, **options) -> SimulationResult:
    result = simulation(build, rows, parameters, **options)
    verdict = compare(build, rows, parameters, result)
    assert verdict.exact, verdict.sentence
    return result


def check_any(build, seed, count, /, **options):
    random = np.random.default_rng(seed)
    parameters = make_parameters(build, random)
    layers = [any_layer(build, random, pair) for pair in islice(cycle(BOTH), 12)]
    if build.what.skipping:
        layers[0] = layers[0].model_copy(update={"keep_isd": True, "skip": False})
        layers[1] = layers[1].model_copy(update={"keep_isd": False, "skip": True, "anchor": 0})
    rows = []
    for _ in range(count):
        layer = int(random.integers(len(layers)))
        rows.append(any_row(build, layers[layer], layer % build.what.layers, random))
    return rows, check(build, rows, parameters, **options).rows


@pytest.mark.parametrize(
    "build",
    [*BUILDS[:QUICK], *(pytest.param(build, marks=pytest.mark.slow) for build in BUILDS[QUICK:])],
    ids=name,
)
def test_rows(build):
    """Rows of all formats, whole ones and broken ones, follow each other."""
    seed = BUILDS.index(build)
    rows, results = check_any(build, seed, 300, **STALLS["random"])
    pairs = {(row.settings.input_format, row.settings.output_format) for row in rows}
    assert pairs == (set(BOTH) if build.what.gamma else {("fp16", "fp16"), ("int8", "fp16")})
    seen = {flag for row in results for flag in RowFlag if flag in row.flags}
    assert seen >= {RowFlag.SHORT, RowFlag.LONG, RowFlag.KEEP, RowFlag.SETTINGS}
    assert not build.what.skipping or RowFlag.PREDICTED in seen


@pytest.mark.slow
@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("build", BUILDS, ids=name)
def test_many_rows(build, stalls):
    for seed in range(100, 104):
        check_any(build, seed, 1000, seed=seed, **STALLS[stalls])


@pytest.mark.icarus
@pytest.mark.parametrize("build", ON_ICARUS, ids=name)
def test_rows_on_icarus(build):
    check_any(build, 50, 60, simulator="icarus", **STALLS["random"])


def faulty_rows(random):
    """Every way to break an INT8 packet or its settings, each before a right row of one of the formats."""
    p_n = PLAIN.how.p_n
    full, lower = (1 << 2 * p_n) - 1, (1 << p_n) - 1
    q = stimulus.integers("any", 12 * p_n, random)
    bad = []
    # The last beat ends in its lower half, or in its upper one.
    for n, asked in product((4 * p_n + 3, 5 * p_n + 2), FORMATS):
        settings = LayerSettings(n=n, input_format="int8", output_format=asked, affine="gamma")
        counts = {0, 1, p_n, 2 * p_n, 4 * p_n, 5 * p_n, 9 * p_n, n - 1, n + 1, n + p_n}
        for count in sorted(counts | {2 * p_n - 1, 2 * p_n + 1, 6 * p_n, 6 * p_n + 1}):
            bad.append(Row(q[:count], settings))
        for beat in range(3):
            for keep in (0, 1, 2, lower, full & ~lower, full, full >> 1, full & ~4):
                bad.append(Row(q[:n], settings, keep={beat: keep}))
            bad.append(Row(q[:n], settings, layer=1, ids={beat: 2}))
        bad += [Row(q[:n], settings, x_scale=scale) for scale in BAD_SCALES]
        records = [{"x_scale": float32_bits(scale)} for scale in BAD_SCALES]
        records += [{"input_format": 2}, {"input_format": 3}, {"output_format": 2}, {"n": 0}]
        records += [{"valid": 0}, {"output_format": 1, "gamma": 0}]
        records += [{"output_format": 1, "cast_before_gamma": 1}]
        for record in records:
            bad += [Row(q[:count], settings, fields=record) for count in (1, n, 9 * p_n)]
        bad.append(Row(q[:n], None))
    good = [
        LayerSettings(n=4 * p_n + 1, input_format=given, output_format=asked, affine="gamma")
        for given, asked in BOTH
    ]
    rows = []
    for index, settings in zip(random.permutation(len(bad)), cycle(good), strict=False):
        x = stimulus.integers("normal", settings.n, random)
        rows += [bad[index], Row(x if settings.int8_input else x.astype(np.float16), settings)]
    return rows


@pytest.mark.parametrize("stalls", ["flowing", "random"])
def test_a_broken_packet_leaves_the_next_row_right(stalls):
    random = np.random.default_rng(7)
    gamma = ParameterVector("gamma", random.normal(20, 5, 256).astype(np.float16))
    results = check(PLAIN, faulty_rows(random), [gamma], **STALLS[stalls]).rows
    assert not any(row.flags for row in results[1::2])
    packets = {RowFlag.SHORT, RowFlag.LONG, RowFlag.KEEP, RowFlag.ID, RowFlag.SETTINGS}
    assert {flag for row in results for flag in RowFlag if flag in row.flags} == packets


def test_every_integer_is_the_fp16_number():
    """With RMSNorm and the scale 1 all is as with FP16 elements."""
    q = np.random.default_rng(8).permutation(np.arange(-128, 128)).astype(np.int8)
    layers = [
        LayerSettings(n=256, mode=mode, input_format=given)
        for mode, given in product(("rmsnorm", "layernorm"), FORMATS)
    ]
    rows = [Row(q if layer.int8_input else q.astype(np.float16), layer) for layer in layers]
    whole, half, *_ = check(PLAIN, rows, []).rows
    # A row of one format only has to be told apart where it is its bytes that came.
    assert np.array_equal(whole.bits, half.bits)
    assert len(set(whole.bits.tolist())) == 256


@pytest.mark.parametrize("n", [64, 36, 4])
def test_rows_of_all_formats_flow_without_a_bubble(n):
    """A beat of p_n elements moves in every cycle, whatever formats meet; 36 elements end in a lower half."""
    random = np.random.default_rng(9)
    layers = [
        LayerSettings(n=n, input_format=given, output_format=asked, affine="gamma+beta")
        for given, asked in BOTH
    ]
    rows = [
        Row(elements(layer, n, random), layer)
        for layer in (layers[int(i)] for i in random.integers(4, size=40 + 600 // n))
    ]
    results = check(PLAIN, rows, make_parameters(PLAIN, random)).rows
    last = np.array([row.out_cycles[-1] for row in results])
    assert set(np.diff(last)) == {n // 4}


def test_integers_are_taken_and_given_in_every_second_cycle():
    random = np.random.default_rng(10)
    layer = LayerSettings(n=64, input_format="int8", output_format="int8", affine="gamma")
    rows = [Row(stimulus.integers("any", 64, random), layer) for _ in range(20)]
    results = check(PLAIN, rows, make_parameters(PLAIN, random)).rows
    for row in results[2:]:
        assert (len(row.in_cycles), len(row.out_cycles)) == (8, 8)
        assert set(np.diff(row.in_cycles)) == set(np.diff(row.out_cycles)) == {2}


NARROW = {
    "two integers a beat": PLAIN.with_(p_n=4, p_d=2, bus_bytes=2, max_n=60),
    "quarter, samples": PLAIN.with_(p_n=8, p_d=4, bus_bytes=4, max_n=60, subsampling=True),
}


@pytest.mark.parametrize("stalls", ["flowing", "random"])
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(build, id=name, marks=[pytest.mark.slow] * ("samples" not in name))
        for name, build in NARROW.items()
    ],
)
def test_a_narrow_bus(build, stalls):
    """Through the top, layers and parameters over AXI4-Lite."""
    random = np.random.default_rng(11)
    layers = [any_layer(build, random, pair) for pair in BOTH]
    rows = []
    for _ in range(200):
        layer = int(random.integers(4))
        rows.append(any_row(build, layers[layer], layer, random))
    check(build, rows, make_parameters(build, random), simulate, **STALLS[stalls])


def test_real_activations_are_at_most_one_lsb_off():
    """INT8 in and out, against float64: each row has its own scale, each norm one of its output, the largest result being 127."""
    norms = list(real_rows())
    build = Configuration().with_(formats=FORMATS, max_n=576, slots=len(norms))
    rows, parameters, exact = [], [], []
    for slot, (mode, x, gamma, beta, eps) in enumerate(norms):
        q, scale = quantized(x)
        options = {"mode": mode, "eps": eps, "x_scale": scale}
        largest = np.abs(reference(q, gamma, beta, **options).y).max()
        y_scale = float(np.float32(largest / 127))
        exact += list(reference(q, gamma, beta, y_scale=y_scale, **options).y)
        layer = LayerSettings(
            n=q.shape[1],
            mode=mode,
            eps=eps,
            affine="gamma" if beta is None else "gamma+beta",
            slot=slot,
            input_format="int8",
            output_format="int8",
            y_scale=y_scale,
        )
        rows += [Row(row, layer, x_scale=s) for row, s in zip(q, scale.tolist(), strict=True)]
        written = divided(gamma, beta, layer.n, y_scale, build)
        parameters += [
            ParameterVector(kind, vector, slot)
            for kind, vector in zip(("gamma", "beta"), written, strict=True)
            if vector is not None
        ]
    results = check(build, rows, parameters).rows
    errors = [
        lsb_error(got.bits.view(np.int8), want) for got, want in zip(results, exact, strict=True)
    ]
    for error in errors:
        assert error.max() <= 1
        assert (error == 0).mean() >= 0.97
    assert np.mean(np.concatenate(errors) == 0) >= 0.99
    assert sum(map(len, errors)) > 100_000


def test_saturated_rows_are_counted():
    """Ties go to even: 127.5 is 128, which INT8 hasn't, -128.5 is -128."""
    cases = [(126.5, [126, 127], True), (126.375, [125, 127], False), (-127.5, [-128, -126], False)]
    x = np.array([-1, 1], np.float16)
    parameters, rows = [], []
    for slot, (beta, _, _) in enumerate(cases):
        layer = LayerSettings(n=2, eps=0.0, affine="gamma+beta", slot=slot, output_format="int8")
        parameters += [
            ParameterVector(kind, np.full(2, value, np.float16), slot)
            for kind, value in (("gamma", 1.0), ("beta", beta))
        ]
        # x-hat is -1 and 1.
        rows += [Row(x, layer, layer=slot)] * 3
    results = check(PLAIN, rows, parameters, simulate).rows
    for row, (_, y, saturated) in zip(results[::3], cases, strict=True):
        assert row.bits.view(np.int8).tolist() == y
        assert row.flags == (RowFlag.OVERFLOW if saturated else 0)
    layers = {row.layer: row.settings for row in rows}
    after = Moment(reads(PLAIN, "rows_out", "row_flags_7"), packets=9, beats=9)
    record = run(PLAIN, rows, [setup(PLAIN, layers, parameters), after])
    assert values(record.answers[1]) == [9, 3]


GOOD = {
    "scale of the row": {"input_format": 1},
    "smallest scale": {"input_format": 1, "x_scale": 0x00800000},
    "largest scale": {"input_format": 1, "x_scale": 0x7F7FFFFF},
    "INT8 out": {"output_format": 1},
    "both": {"input_format": 1, "output_format": 1, "y_scale": 0xFFFFFFFF},
    "a bad scale that isn't used": {"x_scale": 0xFFC00000},
    "removed, whatever else": {"valid": 0, "input_format": 3, "output_format": 2},
}
BAD = {
    "input format": {"input_format": 2},
    "other input format": {"input_format": 3},
    "output format": {"output_format": 2},
    **{
        f"scale {bits:#x}": {"input_format": 1, "x_scale": bits}
        for bits in (0x80000000, 0xBF800000, 1, 0x007FFFFF, 0x7F800000, 0x7FC00000, 0xFF800000)
    },
    "INT8 out without gamma": {"output_format": 1, "gamma": 0},
    "INT8 out, rounded before": {"output_format": 1, "cast_before_gamma": 1},
}


def test_what_commit_refuses():
    """Each entry is written over one that works, and read back."""
    registers = register_map(PLAIN)
    settings = LayerSettings(n=5, affine="gamma", slot=1)
    record = settings.record(PLAIN)
    shadow = [each for each in registers if each.startswith("layer_")]
    spoil = [BusAccess(registers[each].address, 0xA5A5A5A5) for each in shadow]
    attempts = {key: record | change for key, change in (GOOD | BAD).items()}
    moments = []
    for attempt in attempts.values():
        moments += [
            Moment(bus)
            for bus in (
                layer_writes(PLAIN, 1, record),
                layer_writes(PLAIN, 1, attempt),
                [*spoil, write(PLAIN, "load", layer=1)],
                reads(PLAIN, *shadow),
            )
        ]
    row = Row(np.ones(5, np.float16), None)
    steps = iter(run(PLAIN, [row], moments).answers)
    for key, attempt in attempts.items():
        first, tried, load, entry = (next(steps) for _ in range(4))
        assert set(codes(first) + codes(tried[:-1]) + codes(load)) == {OKAY}
        assert tried[-1][0] == (OKAY if key in GOOD else SLVERR), key
        words = dict(zip(shadow, values(entry), strict=True))
        stands = attempt if key in GOOD else record
        assert registers.layer_record(words) == stands, key
