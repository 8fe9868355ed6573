# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Rows whose ISD is predicted, against section 11 of `docs/numerics.md` read once more, in fractions."""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haan.config import Configuration
from haan.flags import RowFlag
from haan.golden import (
    IsdMemory,
    Packet,
    ReceivedRow,
    Slot,
    acceptable,
    normalize,
    passages,
    row_output,
    row_outputs,
)
from haan.golden.prediction import Isd
from haan.layer import LayerSettings, float32_bits
from haan.sim.rows import Row, RowResult, SimulationResult
from haan.sim.verdict import compare, judge

P_N, N = 4, 8
BUILD = Configuration.preset("tiny").with_(
    p_n=P_N, p_d=P_N, layers=8, token_slots=8, skipping=True, anchors=2
)
SAMPLING = BUILD.with_(subsampling=True)
KEEP = LayerSettings(n=N, mode="rmsnorm", keep_isd=True)
SKIP = LayerSettings(n=N, mode="rmsnorm", skip=True, anchor=0)
CENTRED = SKIP.model_copy(update={"mode": "layernorm"})
RANDOM = np.random.default_rng(0)
X, ANCHOR = RANDOM.standard_normal((2, N)).astype(np.float16)
NAN = 0x7E00
PREDICTED, GUARD, NO_ANCHOR = RowFlag.PREDICTED, RowFlag.GUARD, RowFlag.NO_ANCHOR


def packet(x, layer=0, token=0, elements=None, keep=(), tid=()) -> ReceivedRow:
    """A row in beats, `elements` of them present; `keep` and `tid` are {beat: value} in place of the right ones."""
    beats = -(-len(x) // P_N)
    data = np.zeros(beats * P_N, dtype=np.uint16)
    data[: len(x)] = np.asarray(x, dtype=np.float16).view(np.uint16)
    kept = (np.arange(beats * P_N) < (elements or len(x))).repeat(2).reshape(beats, 2 * P_N)
    ids = np.full(beats, layer)
    for beat, value in dict(keep).items():
        kept[beat] = value >> np.arange(2 * P_N) & 1
    for beat, value in dict(tid).items():
        ids[beat] = value
    return ReceivedRow(data.reshape(beats, P_N), kept, ids, token)


def half_up(value: Fraction, bits: int) -> Fraction:
    """Magnitude to nearest with so many significant bits; a half goes up."""
    if not value:
        return value
    size = abs(value)
    unit = Fraction(2) ** (math.floor(math.log2(size)) - bits + 1)
    rounded = math.floor(size / unit + Fraction(1, 2)) * unit
    return rounded if value > 0 else -rounded


def scaled(differences, isd: Fraction):
    """FP16 bits of differences from the mean, with few bits, times an ISD."""
    return [float(half_up(d * isd, 18)) for d in differences]


def exact(x) -> list[Fraction]:
    return [Fraction(float(value)) for value in x]


def isd_of(x, **settings) -> Fraction:
    return Fraction(float(normalize(x, configuration=BUILD, mode="rmsnorm", **settings).isd[0]))


def predicted_from(anchor: Fraction, ratio: float) -> Fraction:
    return half_up(anchor * Fraction(struct.unpack("<f", struct.pack("<f", ratio))[0]), 17)


def fp16(values) -> list[int]:
    with np.errstate(over="ignore"):
        return (np.array(values) + 0.0).astype(np.float16).view(np.uint16).tolist()


def answers(packets, settings, configuration=BUILD, memory=None):
    return row_outputs(packets, settings, configuration, {}, memory)


def after_anchor(settings=SKIP, x=X, configuration=BUILD, anchor=ANCHOR, kept=KEEP, **faults):
    """The answer to a row of layer 1, after one of layer 0 was kept."""
    rows = [packet(anchor), packet(x, layer=1, **faults)]
    return answers(rows, [kept, settings], configuration)[1]


def change(settings: LayerSettings, **fields) -> LayerSettings:
    return LayerSettings(**(settings.model_dump() | fields))


# Arithmetic


SIGNIFICANDS = st.integers(1 << 16, (1 << 17) - 1)
RATIOS = st.integers(float32_bits(2.0**-16), float32_bits(2.0**16))


@given(SIGNIFICANDS, st.integers(-32, 31), RATIOS)
def test_a_product_is_rounded_to_17_bits(significand, exponent, ratio_bits):
    isd = Isd(significand, exponent)
    (value,) = struct.unpack("<f", struct.pack("<I", isd.float32_bits))
    assert Fraction(value) == Fraction(significand, 1 << 16) * Fraction(2) ** exponent
    (ratio,) = struct.unpack("<f", struct.pack("<I", ratio_bits))
    got = isd.times(ratio_bits)
    assert 1 << 16 <= got.significand < 1 << 17
    product = Fraction(got.significand, 1 << 16) * Fraction(2) ** got.exponent
    right = Fraction(value) * Fraction(ratio)
    assert product == half_up(right, 17)
    assert abs(product / right - 1) <= Fraction(1, 1 << 17)


@pytest.mark.parametrize("power", [-16, -1, 0, 1, 16])
@pytest.mark.parametrize("significand", [1 << 16, 0x12345, (1 << 17) - 1])
def test_powers_of_two_are_exact(significand, power):
    assert Isd(significand, 3).times(float32_bits(2.0**power)) == (significand, 3 + power)


def test_a_product_that_is_rounded_up_to_two():
    # (2 − 2^-16)·(1 + 2^-17) = 2 − 2^-33: nearest is 2.
    assert Isd((1 << 17) - 1, 0).times(float32_bits(1 + 2.0**-17)) == (1 << 16, 1)
    # A half goes up: (1 + 2^-16)·1.5 = 1.5 + 1.5·2^-16.
    assert Isd((1 << 16) + 1, 0).times(float32_bits(1.5)) == ((3 << 15) + 2, 0)


# The table


ISD = isd_of(ANCHOR)
BITS = float32_bits(float(ISD))
EXACT = struct.unpack("<f", struct.pack("<I", BITS))[0]
ABOVE = struct.unpack("<f", struct.pack("<I", BITS + 1))[0]
BELOW = struct.unpack("<f", struct.pack("<I", BITS - 1))[0]


@pytest.mark.parametrize("ratio", [1.0, 0.7, 1.25, 2.0**-16, 2.0**16, 3.1415927])
def test_a_prediction_is_the_ratio_times_the_anchors_isd(ratio):
    out = after_anchor(change(SKIP, ratio=ratio))
    assert out.bits.tolist() == fp16(scaled(exact(X), predicted_from(ISD, ratio)))
    assert out.flags & ~RowFlag.OVERFLOW == PREDICTED
    assert out.predicted


@pytest.mark.parametrize(
    ("guards", "inside"),
    [
        ({}, True),
        ({"guard_low": EXACT, "guard_high": EXACT}, True),
        ({"guard_low": BELOW}, True),
        ({"guard_low": ABOVE}, False),
        ({"guard_high": ABOVE}, True),
        ({"guard_high": BELOW}, False),
        ({"guard_high": 0.0}, False),
        ({"guard_low": math.inf}, False),
        ({"guard_low": -0.0, "guard_high": math.inf}, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("action", ["hold", "exact"])
def test_the_guard(guards, inside, action):
    settings = change(SKIP, ratio=1.5, guard_action=action, **guards)
    out = after_anchor(settings)
    computed = row_output(packet(X), change(SKIP, skip=False), BUILD)
    if inside:
        want, flags = fp16(scaled(exact(X), predicted_from(ISD, 1.5))), PREDICTED
    elif action == "hold":
        want, flags = fp16(scaled(exact(X), ISD)), PREDICTED | GUARD
    else:
        want, flags = computed.bits.tolist(), GUARD
    assert (out.bits.tolist(), out.flags) == (want, flags)
    assert out.predicted == (PREDICTED in flags)


def test_without_an_anchor_the_isd_is_computed():
    out = row_output(packet(X, layer=1), SKIP, BUILD)
    computed = row_output(packet(X), change(SKIP, skip=False), BUILD)
    assert out.bits.tolist() == computed.bits.tolist()
    assert out.flags == NO_ANCHOR
    assert not out.predicted
    # Faults act as without `skip`.
    out = row_output(packet(X, layer=1, elements=7), SKIP, BUILD)
    assert out.bits.tolist() == [NAN] * N
    assert out.flags == NO_ANCHOR | RowFlag.SHORT
    zeros = row_output(packet(np.zeros(N), layer=1), change(SKIP, eps=0.0), BUILD)
    assert zeros.flags == NO_ANCHOR | RowFlag.ZERO_VARIANCE


# Entries


def flags_of(steps, configuration=BUILD):
    """Flags of rows (layer, token, settings)."""
    rows = [packet(X, layer, token) for layer, token, _ in steps]
    return [out.flags for out in answers(rows, [s for *_, s in steps], configuration)]


def test_entries_are_those_of_a_token_slot_and_a_layer():
    steps = [
        (0, 3, KEEP),
        (1, 3, KEEP),
        (5, 3, SKIP),
        (5, 4, SKIP),
        (5, 3, change(SKIP, anchor=1)),
        (5, 3, change(SKIP, anchor=2)),  # Shares the place of layer 0.
        (2, 3, KEEP),
        (5, 3, SKIP),  # Layer 2 is there now.
        (5, 3, change(SKIP, anchor=2)),
        (5, 3, change(SKIP, anchor=1)),
        (2, 4, KEEP),
        (0, 4, KEEP),
        (5, 4, change(SKIP, anchor=2)),
        (5, 4, SKIP),
    ]
    p, n = PREDICTED, NO_ANCHOR
    assert flags_of(steps) == [0, 0, p, n, p, n, 0, n, p, p, 0, 0, n, p]
    alone = BUILD.with_(anchors=1)
    assert flags_of(steps, alone) == [0, 0, n, n, p, n, 0, n, p, n, 0, 0, n, p]


def test_a_skipped_row_reads_nothing_that_comes_later():
    skip, keep = (1, 0, SKIP), (0, 0, KEEP)
    assert flags_of([skip, keep, skip, keep, skip]) == [NO_ANCHOR, 0, PREDICTED, 0, PREDICTED]


@pytest.mark.parametrize(
    ("faults", "fields"),
    [
        ({"elements": 7}, {}),
        ({"keep": {0: 0x3F}}, {}),
        ({"tid": {1: 3}}, {}),
        ({"x": [*X[:7], np.inf]}, {}),
        ({"x": np.zeros(N)}, {"eps": 0.0}),
        ({"x": np.zeros(N)}, {"eps": 1e-30}),
        ({}, {"eps": 1e30}),
    ],
    ids=str,
)
def test_an_anchor_without_an_isd_makes_its_entry_invalid(faults, fields):
    rows = [packet(ANCHOR), packet(**({"x": X} | faults)), packet(X, layer=1)]
    out = answers(rows, [KEEP, change(KEEP, **fields), SKIP])
    assert out[2].flags == NO_ANCHOR
    # Of another token slot, it leaves this one alone.
    rows[1] = packet(**({"x": X} | faults), token=1)
    assert answers(rows, [KEEP, change(KEEP, **fields), SKIP])[2].flags == PREDICTED


def test_an_invalid_row_of_another_layer_takes_the_place_too():
    rows = [packet(ANCHOR), packet(X, layer=2, elements=7), packet(X, layer=1)]
    assert answers(rows, [KEEP, KEEP, SKIP])[2].flags == NO_ANCHOR


@pytest.mark.parametrize(("exponent", "kept"), [(-33, 0), (-32, 1), (31, 1), (32, 0)])
def test_exponents_that_are_kept(exponent, kept):
    memory = IsdMemory(BUILD)
    memory.keep(0, 0, Isd(1 << 16, exponent))
    assert len(memory.entries) == kept


def test_a_layernorm_anchor_keeps_the_isd_of_its_variance():
    kept = change(KEEP, mode="layernorm")
    isd = Fraction(float(normalize(ANCHOR, configuration=BUILD).isd[0]))
    out = after_anchor(kept=kept)
    assert out.bits.tolist() == fp16(scaled(exact(X), isd))


def test_a_sampled_anchor_with_another_id_later_is_kept_under_its_first():
    kept = change(KEEP, n_sub=4)
    rows = [packet(ANCHOR, tid={1: 5}), packet(X, layer=1)]
    out = answers(rows, [kept, SKIP], SAMPLING)
    assert [each.flags for each in out] == [RowFlag.ID, PREDICTED]


# What a predicted row does


def test_faults_of_a_predicted_rmsnorm_row_are_only_reported():
    whole = after_anchor().bits.tolist()
    for faults, flag, missing in (
        ({"elements": 7}, RowFlag.SHORT, [7]),
        ({"elements": 3}, RowFlag.SHORT | RowFlag.KEEP, [3, 4, 5, 6, 7]),
        ({"keep": {0: 0x3F}}, RowFlag.KEEP, [3]),
        ({"tid": {1: 3}}, RowFlag.ID, []),
    ):
        out = after_anchor(**faults)
        assert out.flags == flag | PREDICTED
        assert out.bits.tolist() == [NAN if i in missing else y for i, y in enumerate(whole)]
    x = X.copy()
    x[2] = -np.inf
    out = after_anchor(x=x)
    assert out.flags == PREDICTED
    assert out.bits.tolist() == [NAN if i == 2 else y for i, y in enumerate(whole)]


def test_a_long_predicted_rmsnorm_row_has_its_elements():
    x = np.concatenate([X, X])
    out = after_anchor(x=x)
    assert out.flags == PREDICTED | RowFlag.LONG
    assert out.bits.tolist() == after_anchor().bits.tolist()


def test_a_predicted_row_may_overflow_but_for_what_is_missing():
    x = X.copy()
    x[7] = 60000
    ratio = change(SKIP, ratio=8.0)
    assert after_anchor(ratio, x).flags == PREDICTED | RowFlag.OVERFLOW
    assert after_anchor(ratio, x, elements=7).flags == PREDICTED | RowFlag.SHORT


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_a_predicted_row_never_has_zero_variance(mode):
    settings = change(SKIP, mode=mode, eps=0.0)
    out = after_anchor(settings, np.zeros(N))
    assert out.flags == PREDICTED
    assert out.bits.tolist() == [0] * N


def test_a_predicted_layernorm_row_has_its_own_mean():
    # Multiples of 1/8 with a mean of -100.25: the differences are exact.
    x = np.array([-96, -104.5, -100.5, -100, -108, -92.5, -100.25, -100.25], np.float16)
    out = after_anchor(change(CENTRED, ratio=0.3), x)
    differences = [value + Fraction(401, 4) for value in exact(x)]
    assert sum(differences) == 0
    assert out.bits.tolist() == fp16(scaled(differences, predicted_from(ISD, 0.3)))
    assert out.flags == PREDICTED


def test_a_predicted_layernorm_row_with_a_fault_is_all_nan():
    for faults, flag in (
        ({"elements": 7}, RowFlag.SHORT),
        ({"keep": {0: 0x3F}}, RowFlag.KEEP),
        ({"tid": {1: 3}}, RowFlag.ID),
        ({"x": [*X[:7], np.inf]}, RowFlag.NONFINITE),
    ):
        out = after_anchor(CENTRED, **faults)
        assert out.flags == flag | PREDICTED
        assert out.bits.tolist() == [NAN] * N


def test_a_predicted_layernorm_row_has_its_own_window():
    """With full statistics λ = k − 32, where the own σ is in [2^k, 2^(k+1)): what is below is cut off, whatever the prediction."""
    tiny = 2.0**-24
    for size, k in ((1000, 9), (500, 8)):
        x = np.array([size, -size] * 3 + [tiny, -tiny], np.float16)
        assert 2**k <= size * math.sqrt(6 / 8) < 2 ** (k + 1)
        out = after_anchor(change(CENTRED, ratio=2.0**16), x)
        left = [Fraction(0)] * 2 if k - 32 > -24 else exact(x[6:])
        assert out.bits[6:].tolist() == fp16(scaled(left, ISD * 2**16))


@pytest.mark.parametrize("accumulator", ["exact", "window"])
def test_without_variance_the_window_is_the_finest(accumulator):
    """One sample: the variance is 0, but other elements differ from the mean, and are told apart down to 2^-24."""
    build = SAMPLING.with_(accumulator=accumulator)
    x = np.array([2.0**-24, 3 * 2.0**-24, 0, -(2.0**-24), 1, -1, 0.5, 2.0**-23], np.float16)
    settings = change(CENTRED, n_sub=1, eps=0.0, ratio=2.0**16)
    out = after_anchor(settings, x, build)
    differences = [value - Fraction(1, 1 << 24) for value in exact(x)]
    isd = isd_of(ANCHOR) * 2**16
    rounded = [half_up(d, 18) for d in differences]
    assert out.bits.tolist() == fp16(scaled(rounded, isd))
    assert out.flags & ~RowFlag.OVERFLOW == PREDICTED


def test_samples_of_a_predicted_rmsnorm_row_do_not_matter():
    sampled = change(SKIP, n_sub=2, first=1, stride=4)
    assert (after_anchor(sampled, configuration=SAMPLING).bits == after_anchor().bits).all()
    out = after_anchor(sampled, configuration=SAMPLING, keep={0: 0xF3})
    assert out.flags == PREDICTED | RowFlag.KEEP
    assert np.flatnonzero(out.bits == NAN).tolist() == [1]
    out = after_anchor(change(sampled, mode="layernorm"), configuration=SAMPLING, keep={0: 0xF3})
    assert out.bits.tolist() == [NAN] * N


def test_parameters_act_on_a_predicted_row():
    gamma, beta = RANDOM.standard_normal((2, N)).astype(np.float16)
    settings = change(SKIP, affine="gamma+beta", ratio=0.9)
    rows = [packet(ANCHOR), packet(X, layer=1)]
    (_, out) = row_outputs(rows, [KEEP, settings], BUILD, {0: Slot(gamma, beta)})
    xhat = scaled(exact(X), predicted_from(ISD, 0.9))
    # Of 18 and 11 bits, and one more: exact in float64.
    y = np.array(xhat) * gamma.astype(np.float64) + beta.astype(np.float64)
    assert out.bits.tolist() == fp16(y)


# Batches


def any_step(random: np.random.Generator) -> tuple[ReceivedRow, LayerSettings | None]:
    x = random.standard_normal(N) * 2.0 ** random.integers(-3, 4)
    layer, token = int(random.integers(4)), int(random.integers(2))
    faults = {}
    if random.random() < 0.15:
        faults = [{"elements": 6}, {"tid": {1: 7}}, {"keep": {0: 0x3F}}][random.integers(3)]
    if random.random() < 0.1:
        x[3] = np.inf
    mode = str(random.choice(["layernorm", "rmsnorm"]))
    kind = random.random()
    settings = LayerSettings(n=N, mode=mode, keep_isd=kind < 0.3)
    if kind > 0.5:
        settings = LayerSettings(
            n=N,
            mode=mode,
            skip=True,
            anchor=int(random.integers(4)),
            ratio=float(random.choice([1.0, 0.8, 1.3])),
            guard_low=float(random.choice([0.0, 0.5])),
            guard_high=float(random.choice([math.inf, 2.0])),
            guard_action=str(random.choice(["hold", "exact"])),
        )
    return packet(x, layer, token, **faults), None if random.random() < 0.05 else settings


def test_rows_together_are_what_they_are_one_by_one():
    random = np.random.default_rng(3)
    rows, settings = zip(*(any_step(random) for _ in range(400)), strict=True)
    together = answers(rows, settings)
    memory = IsdMemory(BUILD)
    alone = [answers([r], [s], memory=memory)[0] for r, s in zip(rows, settings, strict=True)]
    memory = IsdMemory(BUILD)
    parts = [
        out
        for low in range(0, 400, 37)
        for out in answers(rows[low : low + 37], settings[low : low + 37], memory=memory)
    ]
    for one, two, three in zip(together, alone, parts, strict=True):
        assert one.flags == two.flags == three.flags
        assert one.bits.tolist() == two.bits.tolist() == three.bits.tolist()
    seen = {flag & (PREDICTED | GUARD | NO_ANCHOR) for flag in (out.flags for out in together)}
    assert seen == {RowFlag(0), PREDICTED, GUARD, PREDICTED | GUARD, NO_ANCHOR}


# Settings


def test_a_record_says_what_the_settings_say():
    settings = change(
        SKIP, anchor=5, ratio=0.75, guard_low=0.5, guard_high=4.0, guard_action="exact"
    )
    memory = IsdMemory(BUILD)
    memory.keep(2, 5, Isd(1 << 16, 1))
    kept = KEEP.record(BUILD) | {"ratio": 0, "guard_low": 0xFFFFFFFF, "guard_high": 0x7FC00000}
    assert row_output(packet(X, layer=3, token=2), kept, BUILD, memory=memory).flags == 0
    assert sorted(memory.entries) == [(2, 1)]
    assert memory.entries[2, 1][0] == 3
    memory.keep(2, 5, Isd(1 << 16, 1))
    out = row_output(packet(X, token=2), settings.record(BUILD), BUILD, memory=memory)
    assert out.bits.tolist() == fp16(scaled(exact(X), Fraction(3, 2)))


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"keep_isd": 1}, False),
        ({"ratio": float32_bits(2.0**-16)}, True),
        ({"ratio": float32_bits(2.0**-16) - 1}, False),
        ({"ratio": float32_bits(2.0**16)}, True),
        ({"ratio": float32_bits(2.0**16) + 1}, False),
        ({"ratio": float32_bits(-1.0)}, False),
        ({"ratio": 0}, False),
        ({"ratio": 0x7FC00000}, False),
        ({"guard_low": 1}, True),
        ({"guard_low": 0x7F800000}, True),
        ({"guard_low": 0x7F800001}, False),
        ({"guard_low": 0x80000000}, False),
        ({"guard_high": 0xFF800000}, False),
        ({"guard_high": 0xBF800000}, False),
        ({"guard_high": 0xFFC00000}, False),
        ({"guard_high": 0}, True),
    ],
    ids=str,
)
def test_settings_that_are_refused(fields, allowed):
    record = SKIP.record(BUILD) | fields
    assert acceptable(record, BUILD) == allowed
    memory = IsdMemory(BUILD)
    memory.keep(0, 0, Isd(1 << 16, 0))
    before = dict(memory.entries)
    out = row_output(packet(X, layer=0), record, BUILD, memory=memory)
    assert memory.entries == before
    assert (RowFlag.SETTINGS not in out.flags) == allowed
    assert allowed or (out.flags == RowFlag.SETTINGS and not out.bits.size)
    # Without `skip` they don't matter, and in a build without skipping nothing of all this does.
    assert acceptable(record | {"skip": 0}, BUILD)
    plain = BUILD.with_(skipping=False, anchors=1)
    assert acceptable(record, plain)
    out = row_output(packet(X, layer=1), record, plain)
    assert out.flags == 0
    computed = row_output(packet(X), change(SKIP, skip=False), plain)
    assert out.bits.tolist() == computed.bits.tolist()


def test_a_refused_anchor_leaves_its_entry():
    memory = IsdMemory(BUILD)
    row_output(packet(ANCHOR), KEEP, BUILD, memory=memory)
    row_output(packet(X), KEEP.record(BUILD) | {"n": 0}, BUILD, memory=memory)
    out = row_output(packet(X, layer=1), SKIP, BUILD, memory=memory)
    assert out.bits.tolist() == fp16(scaled(exact(X), ISD))


# The verdict


def simulated(rows, outs, packets) -> SimulationResult:
    moves = passages(BUILD, packets, [True], [True])
    results = [
        RowResult(out.bits, out.flags, row.layer, row.token, move.in_cycles, move.out_cycles)
        for row, out, move in zip(rows, outs, moves, strict=True)
    ]
    return SimulationResult(results, np.array([True]), np.array([True]), 0)


def test_the_verdict_knows_tokens_refused_rows_and_what_was_kept():
    refused = {"n": 0}
    rows = [
        Row(ANCHOR, KEEP, 0, 3),
        Row(X, SKIP, 1, 3),
        Row(X, SKIP, 1, 4),
        *[Row(np.zeros(400, np.float16), None, 1, 3)] * 2,
        Row(X, KEEP, 0, 4, fields=refused),
        Row(X, SKIP, 1, 3),
        Row(X, SKIP, 1, 4),
    ]
    settings = [None if row.fields or row.settings is None else row.settings for row in rows]
    received = [ReceivedRow(*row.packet(P_N), row.token) for row in rows]
    memory = IsdMemory(BUILD)
    memory.keep(4, 0, Isd(1 << 16, 2))
    outs = row_outputs(received, settings, BUILD, {}, memory)
    assert [out.predicted for out in outs] == [False, True, True, False, False, False, True, True]
    packets = [
        Packet(len(row.data), layer, keeps=index == 5, predicted=out.predicted)
        for index, (row, layer, out) in enumerate(zip(received, settings, outs, strict=True))
    ]
    result = simulated(rows, outs, packets)
    memory = IsdMemory(BUILD)
    memory.keep(4, 0, Isd(1 << 16, 2))
    verdict = judge(BUILD, rows, settings, {}, result, memory)
    assert verdict.exact, verdict.sentence
    # Without what was kept before, rows of token slot 4 have no anchor.
    assert compare(BUILD, rows, [], result).different == [2, 7]
    # The refused anchor is still pending when the next row comes, which so isn't early.
    free = simulated(
        rows, outs, [Packet(p.beats, p.settings, False, False, p.predicted) for p in packets]
    )
    assert free.rows[6].out_cycles < result.rows[6].out_cycles
