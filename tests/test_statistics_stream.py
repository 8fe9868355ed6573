# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Mean and ISD beside each row: golden against section 13 of `docs/numerics.md` read once more, in fractions; cycles against rule V of
`docs/timing.md`; and the hardware against golden, values and cycles, under stalls of all three sides."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from haan.cli import main
from haan.config import Configuration
from haan.flags import RowFlag
from haan.golden import Packet, Passage, passages, row_outputs
from haan.latency import (
    QUEUE_LATENCY,
    STATISTICS_STREAM_DEPTH,
    STATISTICS_STREAM_LATENCY,
    normalization_latency,
)
from haan.layer import LayerSettings, float32_bits
from haan.sim import ParameterVector, Row, StallPattern, simulate, simulate_core, stimulus
from haan.sim.verdict import compare

from .test_golden_exact import (
    down,
    exponent,
    half_even,
    half_up,
    inverse_root,
    make_rows,
    mean_square,
    number,
    plus,
    power,
    truncated,
)
from .test_golden_int8 import BUILDS as INT8_BUILDS
from .test_golden_int8 import any_layer, any_scale, integers, packet, slot_of

NAN = 0x7FC00000
INFINITY = 0x7F800000
SIGN = 1 << 31

# The specification in fractions


def single(value: Fraction, negative: bool = False) -> int:
    """FP32 bits, to nearest even; below the normal numbers there is only zero. `negative`: sign of a zero."""
    sign = SIGN if value < 0 or negative else 0
    if not value:
        return sign
    rounded = half_even(abs(value), exponent(value) - 23)
    if rounded >= power(128):
        return sign | INFINITY
    return sign | float32_bits(float(rounded)) if rounded >= power(-126) else sign


def sampled(values: list[Fraction], layer: LayerSettings) -> list[Fraction]:
    return [values[layer.first + layer.stride * j] for j in range(layer.samples)]


def right_mean(taken: list[Fraction], layer: LayerSettings, build, scale: Fraction | None) -> int:
    if layer.mode == "rmsnorm":
        return 0
    growth = (build.what.max_n - 1).bit_length()
    mean = down(sum(taken, Fraction(0)) / len(taken), -24 - (32 + (growth + 1) // 2 + 2))
    if scale is None or not mean:
        return single(mean)
    return single(half_even(mean, exponent(mean) - 23) * scale)


def right_isd(taken: list[Fraction], layer: LayerSettings, build, scale: Fraction | None) -> int:
    n, layernorm = len(taken), layer.mode == "layernorm"
    if scale is None:
        variance = mean_square(taken, layernorm, build.how.accumulator == "window")
    else:
        v = n * sum(z * z for z in taken) - (sum(taken) ** 2 if layernorm else 0)
        reciprocal = half_up(Fraction(1, n * n), exponent(Fraction(1, n * n)) - 23)
        share = truncated(reciprocal * truncated(scale * scale, 24), 24)
        variance = truncated(truncated(Fraction(v), 24) * share, 24)
    eps = number(float32_bits(layer.eps), 32)
    total = plus(variance, eps if eps >= power(-126) else Fraction(0))
    if not total:
        return 0
    k = exponent(total) // 2
    return single(inverse_root(down(total / power(2 * k), -20), build.how) / power(k))


def told(x, layer: LayerSettings, build, scale: float | None = None) -> tuple[int, int]:
    """(mean, isd) of a whole row of finite elements as golden gives them."""
    row = packet(x, 1.0 if scale is None else scale, p_n=build.how.p_n)
    (out,) = row_outputs([row], [layer], build, {0: slot_of(np.random.default_rng(0), build)})
    return out.mean, out.isd


@pytest.mark.parametrize("name", INT8_BUILDS)
def test_rows_are_what_the_specification_says(name):
    """FP16 and INT8 rows of many kinds, layers and builds; no stream is needed for golden to tell."""
    random = np.random.default_rng(50 + len(name))
    build = Configuration().with_(**INT8_BUILDS[name])
    slots = {slot: slot_of(random, build) for slot in range(8)}
    rows, layers, wanted = [], [], []
    for _ in range(60):
        layer = any_layer(random, build, int(random.integers(1, 33)))
        for row in range(4):
            own = any_scale(random)
            x = (
                integers(random, layer.n)
                if layer.int8_input
                else make_rows(random, row + 1, layer.n)[-1]
            )
            scale = Fraction(own if layer.x_scale is None else layer.x_scale)
            values = [Fraction(int(q)) if layer.int8_input else number(int(q), 16) for q in x]
            taken = sampled(values, layer)
            rows.append(packet(x, own, p_n=build.how.p_n))
            layers.append(layer)
            given = (taken, layer, build, scale if layer.int8_input else None)
            wanted.append((right_mean(*given), right_isd(*given)))
    for layer, out, (mean, isd) in zip(
        layers, row_outputs(rows, layers, build, slots), wanted, strict=True
    ):
        assert (hex(out.mean), hex(out.isd)) == (hex(mean), hex(isd)), layer
    means, isds = zip(*wanted, strict=True)
    assert any(mean >= SIGN for mean in means)
    assert 0 in isds


PLAIN = Configuration().with_(max_n=64)
LONG = Configuration().with_(max_n=65536)


@pytest.mark.parametrize(
    ("x", "mean"),
    [
        ([32768.0, 2.0**-9], 16384.0),
        ([32768.0, 3 * 2.0**-9], 16384 + 2.0**-8),
        ([32768.0, 2.0**-9, 2.0**-24, 2.0**-24], 8192 + 2.0**-10),
        ([32768.0, 2.0**-9, -(2.0**-24), 0.0], 8192.0),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_half_goes_to_even(x, mean, sign):
    x = np.array(x, np.float16) * np.float16(sign)
    layer = LayerSettings(n=len(x))
    values = [Fraction(float(z)) for z in x]
    if len(x) == 2:
        # Just between two numbers.
        assert sum(values) / 2 % power(-9) == power(-10)
    assert told(x, layer, PLAIN)[0] == float32_bits(sign * mean)


@pytest.mark.parametrize(("n", "least"), [(33014, 1), (33002, -1), (33012, 3), (33140, -3)])
def test_the_mean_is_rounded_down_before_it_is_rounded(n, least):
    """Where the sum is small and the row long that shows."""
    x = np.zeros(n, np.float16)
    x[0] = least * 2.0**-24
    taken = [Fraction(least) * power(-24), *[Fraction(0)] * (n - 1)]
    layer = LayerSettings(n=n, affine="none")
    (mean, _), right = told(x, layer, LONG), right_mean(taken, layer, LONG, None)
    assert mean == right != single(sum(taken) / n)


def test_zeros_of_the_mean():
    both = Configuration().with_(formats=["fp16", "int8"])
    layer = LayerSettings(n=4)
    assert told(np.array([-0.0] * 4, np.float16), layer, PLAIN)[0] == 0
    assert told(np.array([1, -1, 2, -2], np.float16), layer, PLAIN)[0] == 0
    integer = LayerSettings(n=4, input_format="int8")
    # An exact zero is +0, one that is too small keeps its sign.
    for scale in (0.0, 1.0, 2.0**-126):
        assert told(np.array([-1, 1, 5, -5], np.int8), integer, both, scale)[0] == 0
    assert told(np.array([-1] * 4, np.int8), integer, both, 0.0)[0] == 0
    assert told(np.array([-1, 0, 0, 0], np.int8), integer, both, 2.0**-126)[0] == SIGN
    assert told(np.array([1, 0, 0, 0], np.int8), integer, both, 2.0**-126)[0] == 0
    assert told(np.array([-1] * 4, np.int8), integer, both, 2.0**-126)[0] == SIGN | 0x00800000
    assert told(np.array([-2] * 4, np.int8), integer, both, 2.0**127)[0] == SIGN | INFINITY
    assert told(np.array([127] * 4, np.int8), integer, both, 2.0**127)[0] == INFINITY


def test_what_rounds_to_a_normal_number_is_one():
    """The scaled mean is judged after its rounding, to 24 bits whatever its size."""
    both = Configuration().with_(formats=["fp16", "int8"])
    found = []
    for n in range(3, 60, 2):
        layer = LayerSettings(n=n, input_format="int8", affine="none")
        count = 1 << n.bit_length() - 1
        x = np.array([1] * count + [0] * (n - count), np.int8)
        taken = [Fraction(int(q)) for q in x]
        for above in (-1, 0, 1):
            # Nearly the reciprocal of the mean.
            fraction = round(Fraction(n, count) * (1 << 23)) - (1 << 23) + above
            scale = number((1 << 23) + fraction, 32)
            mean = told(x, layer, both, float(scale))[0]
            assert mean == right_mean(taken, layer, both, scale)
            found.append((mean, sum(taken) / n * scale < power(-126)))
    assert (0, True) in found
    assert (0x00800000, True) in found


def test_isds_without_bounds():
    both = Configuration().with_(formats=["fp16", "int8"])
    layer = LayerSettings(n=4, mode="rmsnorm", eps=0.0, input_format="int8")
    x = np.array([1, 1, -1, 1], np.int8)
    for log2, isd in [(126, 0x00800000), (127, 0), (0, 0x3F800000), (-126, 0x7E800000)]:
        assert told(x, layer, both, 2.0**log2) == (0, isd)
    x = np.array([1, 0, 0, 0], np.int8)
    assert told(x, layer, both, 2.0**-126)[1] == 0x7F000000
    few = LayerSettings(n=16, mode="rmsnorm", eps=0.0, input_format="int8")
    assert told(np.eye(16, dtype=np.int8)[3], few, both, 2.0**-126)[1] == INFINITY
    assert told(x, layer, both, 0.0)[1] == 0
    with_eps = LayerSettings(n=4, mode="rmsnorm", eps=0.25, input_format="int8")
    assert told(x, with_eps, both, 0.0)[1] == float32_bits(2.0)


def test_rows_that_are_all_nan_and_null_rows_have_nan():
    layer = LayerSettings(n=8)
    good = np.arange(8).astype(np.float16)
    infinite = np.where(good == 3, np.float16(np.inf), good)
    rows = [
        packet(infinite, p_n=8),
        packet(good, count=5, p_n=8),
        packet(good, p_n=8),
        packet(good, p_n=8),
    ]
    asked = [layer, layer, None, layer]
    slots = {0: slot_of(np.random.default_rng(0), PLAIN)}
    *void, right = row_outputs(rows, asked, PLAIN, slots)
    assert [(out.mean, out.isd) for out in void] == [(NAN, NAN)] * 3
    assert [out.flags for out in void] == [RowFlag.NONFINITE, RowFlag.SHORT, RowFlag.SETTINGS]
    assert right.mean == float32_bits(3.5)
    zero = packet(np.full(8, -3.0, np.float16), p_n=8)
    (out,) = row_outputs([zero], [LayerSettings(n=8, eps=0.0)], PLAIN, slots)
    assert (out.mean, out.isd, out.flags) == (float32_bits(-3.0), 0, RowFlag.ZERO_VARIANCE)
    faulty = packet(np.where(good == 3, np.float16(np.inf), 0), count=5, p_n=8)
    (out,) = row_outputs([faulty], [LayerSettings(n=8, eps=0.0)], PLAIN, slots)
    assert (out.mean, out.isd) == (NAN, NAN)


def test_missing_elements_count_as_zero_where_the_samples_are_there():
    build = PLAIN.with_(subsampling=True)
    layer = LayerSettings(n=16, n_sub=4)
    row = packet(np.full(16, 5.0, np.float16), count=9, beats=2, p_n=8)
    (out,) = row_outputs([row], [layer], build, {0: slot_of(np.random.default_rng(0), build)})
    assert RowFlag.SHORT in out.flags
    assert out.mean == float32_bits(5.0)
    assert out.isd == right_isd([Fraction(5)] * 4, layer, build, None)


# Predicted rows

SKIPPING = Configuration().with_(max_n=64, skipping=True, formats=["fp16", "int8"], layers=4)
KEEP = LayerSettings(n=8, mode="rmsnorm", affine="none", keep_isd=True, eps=0.0)
HALVES = np.array([0.5] * 8, np.float16)
"""Their ISD is 2."""


def after_halves(x, anchor=HALVES, scale=1.0, **changes) -> tuple[int, int, RowFlag]:
    """(mean, isd, flags) of a row that follows one of its anchor."""
    fields = {"n": 8, "mode": "layernorm", "affine": "none", "skip": True, "ratio": 1.75}
    layer = LayerSettings.from_dict(fields | changes)
    rows = [packet(anchor, p_n=8), packet(x, scale, p_n=8, tid={0: 1})]
    out = row_outputs(rows, [KEEP, layer], SKIPPING, {})[1]
    return out.mean, out.isd, out.flags


def test_predicted_rows_tell_their_own_mean_and_the_predicted_isd():
    x = np.array([1, 2, 3, 4, 5, 6, 7, -100], np.float16)
    mean, isd = float32_bits(-9.0), float32_bits(3.5)
    assert after_halves(x) == (mean, isd, RowFlag.PREDICTED)
    assert after_halves(x, mode="rmsnorm") == (0, isd, RowFlag.PREDICTED)
    held = RowFlag.PREDICTED | RowFlag.GUARD
    assert after_halves(x, guard_low=3.0) == (mean, float32_bits(2.0), held)
    own = right_isd([Fraction(float(z)) for z in x], LayerSettings(n=8), SKIPPING, None)
    assert after_halves(x, guard_low=3.0, guard_action="exact") == (mean, own, RowFlag.GUARD)
    assert after_halves(x, anchor=0 * HALVES) == (mean, own, RowFlag.NO_ANCHOR)
    constant = np.full(8, -3.0, np.float16)
    assert after_halves(constant, eps=0.0) == (float32_bits(-3.0), isd, RowFlag.PREDICTED)
    # The product is rounded to 17 bits, a half goes up.
    ratio = number(float32_bits(1 + 2.0**-17), 32)
    assert after_halves(x, ratio=float(ratio))[1] == single(2 + power(-15))


def test_a_predicted_isd_is_told_before_any_scale():
    x = np.array([1, 2, 3, 4, 5, 6, 7, -100], np.int8)
    told = after_halves(x, scale=0.375, input_format="int8")
    assert told == (float32_bits(-3.375), float32_bits(3.5), RowFlag.PREDICTED)
    told = after_halves(x, scale=0.0, input_format="int8", mode="rmsnorm")
    assert told == (0, float32_bits(3.5), RowFlag.PREDICTED)


def test_only_statistics_make_a_predicted_row_nan():
    x = np.array([1, 2, 3, np.nan, 5, 6, 7, -100], np.float16)
    mean, isd, flags = after_halves(x)
    assert (mean, isd) == (NAN, NAN)
    assert RowFlag.NONFINITE in flags
    assert after_halves(x, mode="rmsnorm")[:2] == (0, float32_bits(3.5))


# Cycles

SMALL = {"layers": 8, "slots": 2, "token_slots": 6, "max_n": 64, "statistics_stream": True}
STREAM = Configuration().with_(p_n=4, p_d=4, **SMALL)
TO_LANES = normalization_latency(STREAM) + QUEUE_LATENCY


def flowing(count: int, n: int = 4, **schedules) -> list[Passage]:
    packets = [Packet(-(-n // 4), LayerSettings(n=n))] * count
    return passages(STREAM, packets, [True], schedules.pop("sink", [True]), **schedules)


def test_statistics_leave_a_fixed_time_after_the_last_beat_was_sent():
    for n in (1, 4, 5, 64):
        (move,) = flowing(1, n)
        sent = move.out_cycles[-1] - TO_LANES
        assert move.statistics_cycle == sent + STATISTICS_STREAM_LATENCY + QUEUE_LATENCY


def test_a_null_row_has_statistics_too():
    null, row = passages(STREAM, [Packet(1, None), Packet(1, LayerSettings(n=4))], [True], [True])
    assert null.statistics_cycle is not None
    assert row.statistics_cycle is not None
    assert null.statistics_cycle < row.statistics_cycle


def test_cycles_of_rows_do_not_know_of_a_sink_that_is_always_ready():
    without = STREAM.with_(statistics_stream=False)
    packets = [Packet(-(-n // 4), LayerSettings(n=n)) for n in (1, 64, 7, 7, 7) * 20]
    ready, blocked = [True], [False] * 500 + [True]
    plain = passages(without, packets, [True], [True], statistics_sink=blocked)
    assert all(move.statistics_cycle is None for move in plain)
    for move, same in zip(passages(STREAM, packets, ready, ready), plain, strict=True):
        assert (move.in_cycles, move.out_cycles) == (same.in_cycles, same.out_cycles)


def test_a_stalled_sink_stops_rows():
    block = 2000
    stalled = flowing(40, statistics_sink=[False] * block + [True] * block)
    free = flowing(40)
    moved = [move.out_cycles == same.out_cycles for move, same in zip(stalled, free, strict=True)]
    sent = STATISTICS_STREAM_DEPTH
    # Two places are kept for what is sent in the two cycles until that counts.
    assert moved == [True] * sent + [False] * (40 - sent)
    told = [move.statistics_cycle for move in stalled]
    assert told[:sent] == list(range(block, block + sent))
    # So the next row is sent when two have left, which counts two cycles later.
    assert stalled[sent].out_cycles == [block + 1 + 2 + TO_LANES]


# The hardware

BUILDS = {
    "4x4": {"p_n": 4, "p_d": 4},
    "8x2 skipping, INT8, subsampling": {
        "p_n": 8,
        "p_d": 2,
        "formats": ["fp16", "int8"],
        "skipping": True,
        "anchors": 2,
        "subsampling": True,
    },
    "4x2 skipping, fp32, every 16, window": {
        "p_n": 4,
        "p_d": 2,
        "skipping": True,
        "anchors": 2,
        "parameter_format": "fp32",
        "isd_interval": 16,
        "accumulator": "window",
    },
    "2x1 short, layernorm, INT8, long": {
        "p_n": 2,
        "p_d": 1,
        "pipeline": "short",
        "norms": ["layernorm"],
        "formats": ["fp16", "int8"],
        "affine": "gamma",
        "max_n": 65536,
    },
    "1x1 short, rmsnorm, INT8, skipping": {
        "p_n": 1,
        "p_d": 1,
        "norms": ["rmsnorm"],
        "affine": "gamma",
        "pipeline": "short",
        "formats": ["fp16", "int8"],
        "skipping": True,
    },
}
QUICK = ("8x2 skipping, INT8, subsampling", "1x1 short, rmsnorm, INT8, skipping")
STALLS = [
    {},
    {"source_idle": StallPattern(0.3, 4), "statistics_stall": StallPattern(0.4, 12)},
    {"sink_stall": StallPattern(0.4, 8), "statistics_stall": StallPattern(period=150, busy=140)},
    {
        "source_idle": StallPattern(0.2, 30),
        "sink_stall": StallPattern(0.3, 30),
        "statistics_stall": StallPattern(0.5, 30),
    },
]


def hardware_layers(build: Configuration, random: np.random.Generator) -> list[LayerSettings]:
    """Of each layer: an even layer keeps its ISD, an odd one follows the one before, where the build can."""
    what = build.what
    affine = {"none": ["none"], "gamma": ["none", "gamma"]}.get(
        what.affine, ["none", "beta", "gamma+beta"]
    )
    layers = []
    for index in range(what.layers):
        n = int(random.integers(1, 2 * build.how.p_n if index % 3 else 65))
        fields = {
            "n": n,
            "mode": str(random.choice(what.norms)),
            "eps": float(random.choice([0.0, 1e-5, 1e-12])),
            "affine": str(random.choice(affine)),
            "slot": int(random.integers(what.slots)),
        }
        if what.subsampling and random.random() < 0.5:
            fields["n_sub"] = int(random.integers(1, n + 1))
        if what.int8 and random.random() < 0.7:
            fields["input_format"] = "int8"
            if random.random() < 0.3:
                fields["x_scale"] = any_scale(random) or 1.0
        if what.int8 and "gamma" in fields["affine"] and random.random() < 0.4:
            fields["output_format"] = "int8"
        if what.skipping and index % 2:
            guards = random.choice([[0.0, np.inf], [0.5, 4.0]])
            fields |= {"skip": True, "anchor": index - 1, "ratio": float(random.uniform(0.3, 3))}
            fields |= {"guard_low": float(guards[0]), "guard_high": float(guards[1])}
            fields |= {"guard_action": str(random.choice(["hold", "exact"]))}
        elif what.skipping:
            fields["keep_isd"] = True
        layers.append(LayerSettings.from_dict(fields))
        layers[-1].check(build)
    return layers


def elements(layer: LayerSettings, count: int, random: np.random.Generator) -> np.ndarray:
    if not count:
        return np.empty(0, np.uint8 if layer.int8_input else np.uint16)
    if layer.int8_input:
        return integers(random, count)
    kind = str(random.choice([*stimulus.KINDS, "any bits"]))
    bits = stimulus.row(kind, count, random)
    if random.random() < 0.08:
        bits[random.integers(count)] = random.choice([0x7C00, 0xFC00, 0x7E01])
    return bits


def hardware_rows(build: Configuration, count: int, random: np.random.Generator) -> Iterator[Row]:
    """Rows of all layers, one of which is unknown, in a random order; some short, some long."""
    layers = hardware_layers(build, random)
    unknown = len(layers) - 1
    for _ in range(count):
        index = int(random.integers(len(layers)))
        layer, fate = layers[index], random.random()
        size = layer.n
        if fate < 0.1:
            size = int(random.integers(layer.n))
        elif fate < 0.2:
            size = layer.n + int(random.integers(3 * build.how.p_n))
        yield Row(
            elements(layer, size, random),
            None if index == unknown else layer,
            layer=index,
            token=int(random.integers(build.what.token_slots)),
            x_scale=any_scale(random),
        )


def corner_rows(build: Configuration) -> Iterator[Row]:
    """Means between two numbers, zeros of all origins; scaled ones that are too small, too large, and just not. ISDs too, and those
    of rows without variance."""
    mode = build.what.norms[0]
    for halves in (
        [32768.0, 2.0**-9],
        [32768.0, 3 * 2.0**-9],
        [32768.0, 2.0**-9, 2.0**-24, 2.0**-24],
        [32768.0, 2.0**-9, -(2.0**-24), 0.0],
        [-0.0] * 3,
        [2.0**-24, 0.0, 0.0],
        [65504.0] * 3,
        [7.0, -7.0],
    ):
        for sign in (1, -1):
            for eps in (0.0, 1e-12):
                settings = LayerSettings(n=len(halves), eps=eps, mode=mode)
                yield Row(np.array(halves, np.float16) * np.float16(sign), settings)
    if not build.what.int8:
        return
    for numbers in ([1] * 16 + [0] * 9, [1], [127] * 3, [1] + [0] * 19, [1, -1], [1] * 2 + [-1]):
        for sign in (1, -1):
            for scale in (0.0, 1.5625 * 2.0**-126, 2.0**-126, 2.0**-120, 0.1, 2.0**121, 2.0**127):
                for eps in (0.0, 1e-12):
                    settings = LayerSettings(
                        n=len(numbers), eps=eps, mode=mode, input_format="int8"
                    )
                    yield Row(np.array(numbers, np.int8) * np.int8(sign), settings, x_scale=scale)


def vectors(build: Configuration, random: np.random.Generator) -> list[ParameterVector]:
    what = build.what
    kinds = ["gamma"] * what.gamma + ["beta"] * what.beta
    return [
        ParameterVector(kind, stimulus.parameters("plain", 64, what.parameters.width, random), slot)
        for kind in kinds
        for slot in range(what.slots)
    ]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(changes, id=name, marks=[pytest.mark.slow] * (name not in QUICK))
        for name, changes in BUILDS.items()
    ],
)
def test_the_hardware_tells_what_golden_does(changes):
    build = Configuration().with_(**(SMALL | changes))
    random = np.random.default_rng(5)
    rows = [*hardware_rows(build, 250, random), *corner_rows(build)]
    parameters = vectors(build, random)
    for seed, stalls in enumerate(STALLS):
        result = simulate_core(build, rows, parameters, seed=seed, **stalls)
        verdict = compare(build, rows, parameters, result)
        assert verdict.exact, verdict.sentence
    means, isds = ([getattr(row, name) for row in result.rows] for name in ("mean", "isd"))
    assert {0, NAN} <= set(means) & set(isds)
    assert len(set(isds)) > 50
    if build.what.layernorm:
        assert len({mean for mean in means if mean > SIGN}) > 10
    if build.what.int8:
        assert INFINITY in isds
    if build.what.int8 and build.what.layernorm:
        assert {SIGN, INFINITY, SIGN | INFINITY, 0x00800000} <= set(means)


@pytest.mark.icarus
def test_on_icarus():
    # The longest rows would have memories that take longer to compile than all else to run.
    changes = SMALL | BUILDS["2x1 short, layernorm, INT8, long"] | {"max_n": 1024}
    build = Configuration().with_(**changes)
    random = np.random.default_rng(6)
    rows, parameters = list(hardware_rows(build, 60, random)), vectors(build, random)
    result = simulate_core(build, rows, parameters, simulator="icarus", **STALLS[3])
    verdict = compare(build, rows, parameters, result)
    assert verdict.exact, verdict.sentence


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4x4", "8x2 skipping, INT8, subsampling"])
def test_the_whole_accelerator_on_a_narrow_bus(name):
    build = Configuration().with_(**(SMALL | BUILDS[name] | {"bus_bytes": 4}))
    random = np.random.default_rng(7)
    rows, parameters = list(hardware_rows(build, 200, random)), vectors(build, random)
    for seed, stalls in enumerate(STALLS):
        result = simulate(build, rows, parameters, seed=seed, **stalls)
        verdict = compare(build, rows, parameters, result)
        assert verdict.exact, verdict.sentence


def test_a_stalled_sink_stops_the_hardware_and_loses_nothing():
    random = np.random.default_rng(8)
    settings = LayerSettings(n=8)
    rows = [
        Row(random.normal(size=8).astype(np.float16), settings, token=i % 6) for i in range(120)
    ]
    block = 1500
    stall = StallPattern(period=2 * block, busy=block)
    result = simulate_core(STREAM, rows, statistics_stall=stall)
    verdict = compare(STREAM, rows, [], result)
    assert verdict.exact, verdict.sentence
    before = [row.out_cycles[-1] < block for row in result.rows]
    # The last row that was sent is one too many: of the one after it the first beat leaves alone.
    assert 0 < before.count(True) <= STATISTICS_STREAM_DEPTH
    # The source is stopped too, by the full row buffer.
    assert result.rows[-1].in_cycles[-1] > block
    assert len({row.mean for row in result.rows}) == 120


def test_what_differs_is_told():
    x = np.random.default_rng(10).normal(size=(3, 8)).astype(np.float16)
    rows = [Row(each, LayerSettings(n=8)) for each in x]
    result = simulate_core(STREAM, rows)
    assert compare(STREAM, rows, [], result).exact
    for changes, sentence in (
        ({"mean": result.rows[1].mean ^ 1}, "as mean "),
        ({"isd": result.rows[1].isd ^ SIGN}, "as ISD "),
        ({"mean": None}, "as mean none came"),
    ):
        changed = [replace(row, **changes) if i == 1 else row for i, row in enumerate(result.rows)]
        verdict = compare(STREAM, rows, [], replace(result, rows=changed))
        assert (verdict.different, verdict.mistimed) == ([1], [])
        assert sentence in verdict.sentence
    late = replace(result.rows[1], statistics_cycle=result.rows[1].statistics_cycle + 1)
    changed = [result.rows[0], late, result.rows[2]]
    verdict = compare(STREAM, rows, [], replace(result, rows=changed))
    assert (verdict.different, verdict.mistimed) == ([], [1])
    assert f"mean and ISD at {late.statistics_cycle}, but" in verdict.sentence


CONFIGURATION_FILE = """
schema = 1
[what]
max_n = 64
layers = 2
slots = 1
token_slots = 4
affine = "none"
statistics_stream = true
[how]
p_n = 4
p_d = 4
"""


def test_simulate_writes_mean_and_isd(tmp_path):
    build, layers = tmp_path / "build.toml", tmp_path / "layers.toml"
    build.write_text(CONFIGURATION_FILE, "utf-8")
    layers.write_text(
        'schema = 1\n[[layer]]\nn = 24\neps = 1e-5\n[[layer]]\nn = 16\neps = 1e-5\nmode = "rmsnorm"\n',
        "utf-8",
    )
    x = np.random.default_rng(11).normal(-3.0, 1.0, (5, 24)).astype(np.float16)
    x[4, 3] = np.nan
    arrays = {"rows": {"x": x, "eps": 1e-5}, "stack": {"x.0": x[:4], "x.1": x[:4, :16]}}
    for name, given in arrays.items():
        np.savez(tmp_path / f"{name}.npz", **given)
        command = ["simulate", str(build), "--input", str(tmp_path / f"{name}.npz"), "--json"]
        command += ["--output", str(tmp_path / f"{name}_out.npz")]
        command += ["--layers", str(layers)] * (name == "stack")
        assert main(command) == 0
    with np.load(tmp_path / "rows_out.npz") as rows, np.load(tmp_path / "stack_out.npz") as stack:
        assert set(rows.files) == {"y", "cycles", "flags", "mean", "isd"}
        assert rows["mean"].dtype == rows["isd"].dtype == np.float32
        assert (
            np.isnan(rows["mean"]).tolist()
            == np.isnan(rows["isd"]).tolist()
            == [False] * 4 + [True]
        )
        wide = x[:4].astype(np.float64)
        assert rows["mean"][:4].tolist() == np.float32(wide.mean(axis=1)).tolist()
        exact = 1 / np.sqrt(wide.var(axis=1) + 1e-5)
        assert np.allclose(rows["isd"][:4], exact, rtol=1e-5, atol=0)
        assert np.array_equal(stack["mean.0"], rows["mean"][:4])
        assert np.array_equal(stack["isd.0"], rows["isd"][:4])
        assert not stack["mean.1"].any()
        exact = 1 / np.sqrt((wide[:, :16] ** 2).mean(axis=1) + 1e-5)
        assert np.allclose(stack["isd.1"], exact, rtol=1e-5, atol=0)


def test_a_reset_leaves_no_statistics():
    random = np.random.default_rng(9)
    rows = list(hardware_rows(STREAM, 60, random))
    parameters = vectors(STREAM, random)
    stall = StallPattern(period=400, busy=300)
    result = simulate_core(STREAM, rows, parameters, statistics_stall=stall, reset_at=290)
    verdict = compare(STREAM, rows, parameters, result)
    assert verdict.exact, verdict.sentence
