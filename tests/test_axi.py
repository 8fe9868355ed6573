# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The whole accelerator with its control plane: rows through `haan_axi`, compared with the golden model bit by bit, while layers,
parameters and commands go over AXI4-Lite."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from haan.config import Configuration, ConfigurationError
from haan.flags import RowFlag
from haan.golden import ReceivedRow, accepted_settings, row_outputs
from haan.hdl import generate
from haan.layer import LayerSettings, float32_bits
from haan.registers import register_map
from haan.sim import (
    ParameterVector,
    Row,
    SimulationError,
    StallPattern,
    layer_writes,
    parameter_writes,
    runner,
    simulate,
    stimulus,
)
from haan.sim.jobs import AxiJob, AxiRecord, BusAccess, Delays, Moment
from haan.sim.rows import row_beats, stream_fields
from haan.sim.top import build_top
from haan.sim.verdict import compare, slots

TINY = Configuration.preset("tiny").with_(layers=5, slots=3)
BUILDS = {
    "wide": TINY,
    "one element a beat": TINY.with_(p_n=8, p_d=4, bus_bytes=2),
    "quarter": TINY.with_(p_n=8, p_d=2, bus_bytes=4),
    "half, samples": TINY.with_(p_n=4, bus_bytes=4, subsampling=True),
    "fp32": TINY.with_(parameter_format="fp32", one_plus_gamma=True, cast_before_gamma=True),
    "no affine": TINY.with_(norms=["rmsnorm"], affine="none", p_n=1, p_d=1, max_n=40),
}
SKIPPING = TINY.with_(skipping=True, anchors=2)
OKAY, SLVERR = 0, 2
STALLS = {
    "flowing": (StallPattern(), StallPattern()),
    "stalls": (StallPattern(probability=0.3, burst=3), StallPattern(probability=0.4, burst=4)),
}


def elements_of(build):
    """Elements in a beat outside."""
    return build.bus // 2


def run(build, rows, moments=(), stalls="flowing", simulator="verilator", seed=0, reset_at=None):
    """The bench's record of rows and register accesses."""
    source, sink = (pattern.schedule(seed + i) for i, pattern in enumerate(STALLS[stalls]))
    job = AxiJob(
        beats=[beat for row in rows for beat in row_beats(build, row)],
        moments=list(moments),
        reset_at=reset_at,
        **stream_fields(build, rows, source, sink),
    )
    record: AxiRecord = runner.run(build_top(build, simulator), "haan.sim.bench_axi", job)
    assert record.fault == ""
    return record


def packets(build, record):
    """(bits, flags, TID, token) of every packet; its beats hold elements densely, and only as many as needed."""
    size, token_bits = build.bus, build.what.token_bits
    found, packet = [], []
    for beat in record.seen:
        packet.append(beat)
        if not beat.last:
            assert beat.keep == (1 << size) - 1
            assert beat.user >> token_bits == 0
            continue
        count = beat.keep.bit_length()
        assert beat.keep == (1 << count) - 1
        assert count % 2 == 0 and (count or len(packet) == 1)
        assert {each.id for each in packet} == {beat.id}
        data = b"".join(each.data.to_bytes(size, "little") for each in packet)
        bits = np.frombuffer(data[: size * (len(packet) - 1) + count], dtype="<u2")
        tokens = {each.user & (1 << token_bits) - 1 for each in packet}
        assert len(tokens) == 1
        found.append((bits.tolist(), RowFlag(beat.user >> token_bits), beat.id, tokens.pop()))
        packet = []
    assert packet == []
    return found


def expected(build, rows, parameters=()):
    """What the golden model answers to rows, each with its own settings."""
    received = [
        ReceivedRow.collected(*row.packet(elements_of(build)), build.how.p_n, row.token)
        for row in rows
    ]
    settings = [accepted_settings(row.record(build), build) for row in rows]
    answers = row_outputs(received, settings, build, slots(build, parameters))
    return [
        (answer.bits.tolist(), answer.flags, row.ids.get(0, row.layer), row.token)
        for row, answer in zip(rows, answers, strict=True)
    ]


def setup(build, layers=None, parameters=()):
    """Writes layers and parameters before anything else; all of it is accepted."""
    bus = [access for vector in parameters for access in parameter_writes(build, vector)]
    for layer, settings in (layers or {}).items():
        bus += layer_writes(build, layer, settings.record(build))
    return Moment(bus)


def address(build, name):
    return register_map(build)[name].address


def write(build, name, data=0, **fields):
    register = register_map(build)[name]
    return BusAccess(register.address, register.pack(**fields) if fields else data)


def reads(build, *names):
    return [BusAccess(address(build, name)) for name in names]


def values(answers):
    assert {response for response, _, _ in answers} <= {OKAY}
    return [data for _, data, _ in answers]


def codes(answers):
    return [response for response, _, _ in answers]


def random_parameters(build, random):
    what = build.what
    return [
        ParameterVector(
            kind,
            stimulus.parameters("plain", what.max_n, what.parameters.width, random),
            slot,
            one_plus=what.one_plus_gamma and kind == "gamma" and slot == 1,
        )
        for slot in range(what.slots)
        for kind in ["gamma"] * what.gamma + ["beta"] * what.beta
    ]


def random_layers(build, random):
    """Settings of layers 0 to 3; layer 4 is left unknown."""
    what = build.what
    affine = {
        "none": ["none"],
        "gamma": ["none", "gamma"],
        "gamma+beta": ["none", "gamma", "gamma+beta", "beta"],
    }[what.affine]
    layers = {}
    for layer, n in enumerate((13, 1, what.max_n, 8)):
        samples = {"n_sub": -(-n // 2), "stride": 2} if what.subsampling and layer != 3 else {}
        layers[layer] = LayerSettings(
            n=n,
            mode=what.norms[layer % len(what.norms)],
            eps=(1e-5, 0.0, 1e-12, 0.1)[layer],
            affine=affine[layer % len(affine)],
            slot=layer % what.slots,
            cast_before_gamma=what.cast_before_gamma and layer != 3,
            **samples,
        )
    return layers


def random_rows(build, layers, random, count):
    """Rows of all layers and of an unknown one, with right and broken packets."""
    rows = []
    for _ in range(count):
        layer = int(random.integers(build.what.layers))
        settings = layers.get(layer)
        n = settings.n if settings else 5
        kind = str(random.choice([*stimulus.KINDS, "any bits"]))
        length = n
        keep, ids = {}, {}
        fault = str(random.choice(["none"] * 5 + ["length", "keep", "id", "nonfinite"]))
        if fault == "length":
            length = int(random.integers(0, n + 3 * build.how.p_n))
        bits = stimulus.row(kind, max(length, 1), random)[:length]
        outside = max(1, -(-length // elements_of(build)))
        if fault == "keep":
            keep[int(random.integers(outside))] = int(random.integers(1 << build.bus))
        if fault == "id":
            # One that has the same settings: layer 4 is unknown, but only the first beat's counts.
            ids[int(random.integers(1, outside + 1)) % outside] = build.what.layers - 1
            if 0 in ids:
                settings, layer = layers.get(ids[0]), ids[0]
        if fault == "nonfinite" and length:
            bits[int(random.integers(length))] = 0x7C00
        rows.append(Row(bits, settings, layer, int(random.integers(16)), keep=keep, ids=ids))
    return rows


COUNTERS = ["rows_in", "rows_out", "stall_in", "stall_out", *(f"row_flags_{i}" for i in range(16))]


def check_rows(build, stalls, simulator, count):
    random = np.random.default_rng(list(BUILDS.values()).index(build))
    layers, parameters = random_layers(build, random), random_parameters(build, random)
    rows = random_rows(build, layers, random, count)
    counters = Moment(
        reads(build, *COUNTERS, "status", "rows_in_flight", "control"),
        packets=len(rows),
        beats=sum(len(row_beats(build, row)) for row in rows),
    )
    record = run(build, rows, [setup(build, layers, parameters), counters], stalls, simulator)
    assert set(codes(record.answers[0])) == {OKAY}
    want = expected(build, rows, parameters)
    for index, (got, right) in enumerate(zip(packets(build, record), want, strict=True)):
        assert got == right, f"row {index}: {rows[index]}"
    flags = Counter(bit for _, each, _, _ in want for bit in range(16) if each >> bit & 1)
    assert values(record.answers[1]) == [
        len(rows),
        len(rows),
        len(record.waited_in),
        len(record.waited_out),
        *(flags[bit] for bit in range(16)),
        1,
        0,
        0,
    ]
    return record, want


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(build, id=name, marks=[pytest.mark.slow] * (name in ("quarter", "fp32")))
        for name, build in BUILDS.items()
    ],
)
def test_rows(build, stalls):
    record, want = check_rows(build, stalls, "verilator", 120)
    seen = {flag for _, flags, _, _ in want for flag in RowFlag if flag in flags}
    assert seen >= {RowFlag.SHORT, RowFlag.LONG, RowFlag.KEEP, RowFlag.NONFINITE, RowFlag.SETTINGS}
    assert RowFlag.ID in seen
    assert bool(record.waited_out) == (stalls == "stalls")


@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_simulate(build, stalls):
    """Layers and parameters are written by themselves; every element, flag and cycle is golden's."""
    random = np.random.default_rng(20)
    parameters = random_parameters(build, random)
    rows = random_rows(build, random_layers(build, random), random, 150)
    source, sink = STALLS[stalls]
    result = simulate(build, rows, parameters, source_idle=source, sink_stall=sink, seed=3)
    verdict = compare(build, rows, parameters, result)
    assert verdict.exact, verdict.sentence


def test_simulate_without_any_write():
    row = Row(stimulus.finite(np.random.default_rng(1), 4), None)
    verdict = compare(TINY, [row], [], simulate(TINY, [row]))
    assert verdict.exact, verdict.sentence


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"settings": LayerSettings(n=3, eps=0.5)}, "layer 1 has rows with different settings"),
        ({"settings": None}, "layer 1 has rows with different settings"),
        ({"layer": 2, "ids": {0: 1}, "settings": None}, "layer 1 has rows with different"),
        ({"fields": {"n": 2}}, "layer 1: fields = .*only `simulate_core`"),
    ],
)
def test_rows_of_one_layer_have_one_settings(changes, sentence):
    row = Row(np.ones(3, np.float16), LayerSettings(n=3), layer=1)
    with pytest.raises(ConfigurationError, match=sentence):
        simulate(TINY, [row, replace(row, **changes)])


def test_a_refused_write_ends_the_simulation():
    """Verilog of a build for shorter rows refuses the layer."""
    row = Row(np.ones(40, np.float16), LayerSettings(n=40))
    with pytest.raises(SimulationError, match="1 register writes were refused, .* 0x180"):
        simulate(TINY, [row], verilog=generate(TINY.with_(max_n=32)))


@pytest.mark.icarus
@pytest.mark.parametrize("name", ["wide", "quarter"])
def test_rows_on_icarus(name):
    check_rows(BUILDS[name], "stalls", "icarus", 25)


def test_a_narrow_bus_is_collected_by_rule():
    """TLAST in the middle of a beat, null last beats, holes, and TID that changes between the parts of one beat."""
    build = BUILDS["quarter"]
    settings = LayerSettings(n=11, mode="rmsnorm", eps=1e-5)
    one_beat = LayerSettings(n=5, mode="rmsnorm", eps=1e-5)
    bits = stimulus.finite(np.random.default_rng(9), 32)
    rows = [
        Row(bits[:11], settings),
        Row(bits[:12], settings, keep={5: 0x3}),
        Row(bits[:13], settings, keep={5: 0x3, 6: 0}),
        Row(bits[:16], settings, keep={5: 0x3, 6: 0, 7: 0}),
        Row(bits[:17], settings, keep={5: 0x3, 8: 0}),
        Row(bits[:11], settings, keep={1: 0}),
        Row(bits[:11], settings, keep={4: 0x3}),
        Row(bits[:11], settings, ids={1: 1}),
        Row(bits[:11], settings, ids={3: 1}),
        Row(bits[:11], settings, ids={5: 1}),
        Row(bits[:5], one_beat, layer=1, ids={2: 0}),
        Row(bits[:7], one_beat, layer=1, ids={3: 0}),
        Row(bits[:0], one_beat, layer=1),
        Row(bits[:11], settings),
    ]
    record = run(build, rows, [setup(build, {0: settings, 1: one_beat})])
    got = packets(build, record)
    assert got == expected(build, rows)
    short, long, keep, tid = RowFlag.SHORT, RowFlag.LONG, RowFlag.KEEP, RowFlag.ID
    none = RowFlag(0)
    assert [flags for _, flags, _, _ in got] == [
        *[none] * 4,
        *[long | keep, keep, short | keep],
        *[tid] * 4,
        *[tid | long, short, none],
    ]


def test_a_narrow_bus_moves_a_beat_a_cycle():
    build = BUILDS["quarter"]
    settings = LayerSettings(n=64, mode="rmsnorm", eps=1e-5)
    rows = [Row(stimulus.finite(np.random.default_rng(i), 64), settings) for i in range(12)]
    record = run(build, rows, [setup(build, {0: settings})])
    assert packets(build, record) == expected(build, rows)
    for cycles in (record.accepted, [beat.cycle for beat in record.seen]):
        assert [b - a for a, b in pairwise(cycles)] == [1] * (len(cycles) - 1)


# Layers

BAD = {
    "n of 0": {"n": 0},
    "n above max_n": {"n": 65},
    "n far above": {"n": 13 + 128},
    "negative eps": {"eps": 0xB727C5AC},
    "smallest negative eps": {"eps": 0x80000001},
    "infinite eps": {"eps": 0x7F800000},
    "eps is NaN": {"eps": 0x7FC00000},
    "slot": {"slot": 3},
    "slot far above": {"slot": 9},
    "rounding order": {"cast_before_gamma": 1},
    "input format": {"input_format": 1},
    "output format": {"output_format": 3},
    "reciprocal too wide": {"reciprocal": 1 << 127},
}
BAD_SKIPPING = {
    "anchor is itself": {"skip": 1, "anchor": 1},
    "anchor out of range": {"skip": 1, "anchor": 5},
    "anchor far out of range": {"skip": 1, "anchor": 8},
    "anchor is skipped": {"skip": 1, "anchor": 2},
    "skipped and kept": {"skip": 1, "anchor": 4, "keep_isd": 1},
    "ratio too small": {"skip": 1, "anchor": 4, "ratio": (111 << 23) - 1},
    "ratio too large": {"skip": 1, "anchor": 4, "ratio": (143 << 23) + 1},
    "negative ratio": {"skip": 1, "anchor": 4, "ratio": 0xBF800000},
    "ratio is NaN": {"skip": 1, "anchor": 4, "ratio": 0x7FC00000},
    "negative guard": {"skip": 1, "anchor": 4, "guard_low": 0xBF800000},
    "negative zero guard": {"skip": 1, "anchor": 4, "guard_high": 0x80000000},
    "guard is NaN": {"skip": 1, "anchor": 4, "guard_low": 0x7F800001},
    "other guard is NaN": {"skip": 1, "anchor": 4, "guard_high": 0x7FC00000},
}
BAD_SAMPLES = {
    "n_sub of 0": {"n_sub": 0},
    "sample beyond": {"first": 1},
    "stride": {"n_sub": 2, "stride_log2": 4},
    "far stride": {"n_sub": 2, "stride_log2": 31},
    "stride too wide": {"n_sub": 2, "stride_log2": 32},
    "first too wide": {"n_sub": 2, "first": 1 << 20},
}
GOOD = {
    "as it is": {},
    "negative zero eps": {"eps": 0x80000000},
    "zero eps": {"eps": 0},
    "largest eps": {"eps": 0x7F7FFFFF},
    "last slot": {"slot": 2},
    "anchor of a layer that isn't skipped": {"skip": 0, "anchor": 2},
    "removed, whatever else": {"valid": 0, "n": 0, "eps": 0x7FC00000, "slot": 3},
}
GOOD_SKIPPING = {
    "anchor": {"skip": 1, "anchor": 4},
    "unknown anchor": {"skip": 1, "anchor": 3},
    "smallest ratio": {"skip": 1, "anchor": 4, "ratio": 111 << 23},
    "largest ratio": {"skip": 1, "anchor": 4, "ratio": 143 << 23},
    "infinite guards": {"skip": 1, "anchor": 4, "guard_low": 255 << 23, "guard_exact": 1},
    "guards in the wrong order": {"skip": 1, "anchor": 4, "guard_low": 2, "guard_high": 1},
    "kept, whatever else": {"keep_isd": 1, "ratio": 0, "guard_low": 0xFFC00000},
    "neither, whatever else": {"anchor": 2, "ratio": 0, "guard_high": 0xFFC00000},
}
ENTRIES = {
    "wide": (
        BUILDS["wide"],
        [{"n": 64}, {"n": 1}],
        GOOD,
        BAD | {"skip": {"skip": 1, "anchor": 4}, "keep_isd": {"keep_isd": 1}},
    ),
    "skipping": (SKIPPING, [], GOOD | GOOD_SKIPPING, BAD | BAD_SKIPPING),
    "samples": (
        BUILDS["half, samples"],
        [
            {"first": 10, "n_sub": 3},
            {"first": 12, "n_sub": 1, "stride": 1 << 31},
            {"n_sub": 4, "stride": 4},
        ],
        {},
        BAD | BAD_SAMPLES,
    ),
    "can't do": (
        BUILDS["no affine"],
        [],
        {"as it is": {}},
        {"gamma": {"gamma": 1}, "beta": {"beta": 1}, "norm": {"rmsnorm": 0}},
    ),
}


@pytest.mark.parametrize(("build", "other", "good", "bad"), ENTRIES.values(), ids=ENTRIES)
def test_a_bad_entry_is_refused_and_the_old_one_stays(build, other, good, bad):
    """Each entry is written over one that works, read back, and used by a row."""
    random = np.random.default_rng(7)
    registers = register_map(build)
    affine = build.what.affine
    settings = LayerSettings(
        n=13, mode=build.what.norms[0], affine=affine, slot=int(affine != "none")
    )
    record, parameters = settings.record(build), random_parameters(build, random)
    skipped = LayerSettings(n=5, mode=build.what.norms[0], skip=build.what.skipping).record(build)
    shadow = [each for each in registers if each.startswith("layer_")]
    spoil = [BusAccess(registers[each].address, 0xA5A5A5A5) for each in shadow]
    works = [settings.model_copy(update=update).record(build) for update in other]
    works += [record | change for change in good.values()]
    attempts = [*works, *(record | change for change in bad.values())]
    moments = [setup(build, {}, parameters), Moment(layer_writes(build, 2, skipped))]
    rows, at = [], 0
    for index, attempt in enumerate(attempts):
        for bus in (
            layer_writes(build, 1, record),
            layer_writes(build, 1, attempt),
            [*spoil, write(build, "load", layer=1)],
            reads(build, *shadow),
        ):
            moments.append(Moment(bus, beats=at, packets=index))
        stands = attempt if index < len(works) else record
        bits = stimulus.finite(random, stands["n"] or 5)
        rows.append(Row(bits, settings, layer=1, fields=stands))
        at += len(row_beats(build, rows[-1]))
    answers = run(build, rows, moments)
    assert packets(build, answers) == expected(build, rows, parameters)
    steps = iter(answers.answers[2:])
    for index, attempt in enumerate(attempts):
        first, tried, load, entry = (next(steps) for _ in range(4))
        assert set(codes(first) + codes(tried[:-1]) + codes(load)) == {OKAY}
        good = index < len(works)
        assert tried[-1][0] == (OKAY if good else SLVERR), attempt
        words = dict(zip(shadow, values(entry), strict=True))
        assert registers.layer_record(words) == (attempt if good else record)


def test_there_is_no_layer_beyond_the_table():
    """SLVERR for commits and loads; the shadow and the last layer stay."""
    settings = LayerSettings(n=13, eps=0.5)
    beyond = (5, 7, 8, 255, 256, 1 << 31)
    row = Row(stimulus.finite(np.random.default_rng(1), 13), settings, layer=4)
    bus = [write(TINY, name, layer) for layer in beyond for name in ("commit", "load")]
    valid = write(TINY, "layer_modes", valid=0)
    moments = [
        setup(TINY, {4: settings}),
        Moment(bus),
        Moment([valid, *bus]),
        Moment(reads(TINY, "layer_n", "layer_eps")),
    ]
    record = run(TINY, [row], moments)
    assert set(codes(record.answers[1])) == {SLVERR}
    assert codes(record.answers[2]) == [OKAY] + [SLVERR] * len(bus)
    assert values(record.answers[3]) == [13, float32_bits(0.5)]
    assert packets(TINY, record) == expected(TINY, [row])


@pytest.mark.parametrize("name", ["wide", "quarter"])
def test_a_row_has_the_entry_that_stands_at_its_first_beat(name):
    """Entries are committed while rows flow; the cycle of each change is that before its answer, and the change counts from the next
    cycle on."""
    build = BUILDS[name]
    random = np.random.default_rng(3)
    versions = [LayerSettings(n=9, eps=float(2.0**k)) for k in range(-3, 5)]
    plain = [Row(stimulus.finite(random, 9), versions[0]) for _ in range(150)]
    moments = [setup(build, {0: versions[0]})]
    for index, settings in enumerate(versions[1:]):
        bus = [
            access._replace(delays=Delays(aw=index % 3))
            for access in layer_writes(build, 0, settings.record(build))
        ]
        moments.append(Moment(bus, beats=20 + 63 * index, holds=False))
    record = run(build, plain, moments)
    changes = [each[-1][2] - 1 for each in record.answers[1:]]
    each = len(row_beats(build, plain[0]))
    starts = record.accepted[::each]
    rows = [
        Row(row.bits, versions[sum(change < start for change in changes)])
        for row, start in zip(plain, starts, strict=True)
    ]
    assert len({row.settings for row in rows}) == len(versions)
    assert packets(build, record) == expected(build, rows)
    middle = [change for change in changes if change in record.accepted]
    assert middle, "no change fell on a beat"


def test_a_commit_in_the_cycle_of_a_first_beat_counts_for_the_next_row():
    """Rows of one beat, one a cycle: every commit falls on a first beat."""
    random = np.random.default_rng(4)
    old, new = LayerSettings(n=2, eps=4.0), LayerSettings(n=2, eps=0.25)
    plain = [Row(stimulus.finite(random, 2), old) for _ in range(120)]
    change = Moment(layer_writes(TINY, 0, new.record(TINY)), beats=30, holds=False)
    record = run(TINY, plain, [setup(TINY, {0: old}), change])
    at = record.answers[1][-1][2] - 1
    index = record.accepted.index(at)
    assert record.accepted[index - 3 : index + 4] == list(range(at - 3, at + 4))
    rows = [Row(row.bits, old if i <= index else new) for i, row in enumerate(plain)]
    assert packets(TINY, record) == expected(TINY, rows)


# Parameters


@pytest.mark.parametrize("name", ["wide", "fp32", "no affine"])
def test_parameters_beyond_the_build_are_refused(name):
    build = BUILDS[name]
    what = build.what
    attempts = {
        (0, 0, 0, 0): what.gamma,
        (1, 0, 0, 0): what.beta,
        (0, 2, 63, 0): what.gamma,
        (0, 3, 0, 0): False,
        (0, 255, 0, 0): False,
        (0, 0, 64, 0): False,
        (0, 0, 1 << 16, 0): False,
        (0, 1, 5, 1): what.one_plus_gamma,
    }
    bus = []
    for beta, slot, index, one_plus in attempts:
        fields = {"beta": beta, "slot": slot, "index": index, "one_plus": one_plus}
        bus += [write(build, "parameter_address", **fields), write(build, "parameter_data", 0x3C00)]
    last = next(iter(reads(build, "parameter_address")))
    settings = LayerSettings(n=13, mode=what.norms[0])
    row = Row(stimulus.finite(np.random.default_rng(1), 13), settings)
    record = run(build, [row], [setup(build, {0: settings}), Moment(bus), Moment([last])])
    assert codes(record.answers[1][::2]) == [OKAY] * len(attempts)
    assert [code == OKAY for code in codes(record.answers[1][1::2])] == list(attempts.values())
    (word,) = values(record.answers[2])
    index = register_map(build)["parameter_address"].unpack(word)["index"]
    assert index == 5 + what.one_plus_gamma


@pytest.mark.parametrize("name", ["wide", "quarter"])
@pytest.mark.parametrize("affine", ["none", "gamma", "beta", "gamma+beta"])
def test_a_slot_in_flight_cannot_be_written(name, affine):
    """From the first beat of a row that uses it to the last of its answer; other slots can."""
    build = BUILDS[name]
    random = np.random.default_rng(6)
    parameters = random_parameters(build, random)
    settings = LayerSettings(n=61, eps=1e-3, affine=affine, slot=1)
    rows = [Row(stimulus.finite(random, 61), settings) for _ in range(3)]
    each = len(row_beats(build, rows[0]))
    used = affine != "none"

    def attempt(slot, value):
        return [
            write(build, "parameter_address", slot=slot, beta=1, index=60),
            write(build, "parameter_data", value),
        ]

    # From an element on that a row could still see change.
    moments = [
        setup(build, {0: settings}, parameters),
        Moment([*attempt(0, 1), *attempt(1, 0x3C00), *attempt(2, 3)], beats=1),
        Moment([*attempt(0, 1), *attempt(1, 0x4000)], beats=each, holds=False),
        Moment([*attempt(2, 1), *attempt(1, 0x4400)], beats=3 * each, packets=2, holds=False),
        Moment(attempt(1, 0x4800), beats=3 * each, packets=3),
    ]
    record = run(build, rows, moments, "stalls")
    inside = [SLVERR if used else OKAY]
    assert [codes(answers)[1::2] for answers in record.answers[1:]] == [
        [OKAY, *inside, OKAY],
        [OKAY, *inside],
        [OKAY, *inside],
        [OKAY],
    ]
    assert packets(build, record) == expected(build, rows, parameters)


def test_a_slot_is_free_exactly_when_the_last_beat_has_left():
    """A write is tried in every cycle about that beat."""
    settings = LayerSettings(n=9, eps=1e-3, affine="gamma", slot=2)
    random = np.random.default_rng(8)
    parameters = random_parameters(TINY, random)
    rows = [Row(stimulus.finite(random, 9), settings)]
    start = write(TINY, "parameter_address", slot=2)
    attempts = [write(TINY, "parameter_data", 0x3C00) for _ in range(90)]
    moments = [
        setup(TINY, {0: settings}, parameters),
        Moment([start, *attempts], beats=1, holds=False),
    ]
    record = run(TINY, rows, moments)
    # The write is done in the cycle before its answer.
    refused = [cycle - 1 for code, _, cycle in record.answers[1][1:] if code == SLVERR]
    taken = [cycle - 1 for code, _, cycle in record.answers[1][1:] if code == OKAY]
    assert max(refused) == record.seen[-1].cycle
    assert min(taken) == record.seen[-1].cycle + 1
    assert packets(TINY, record) == expected(TINY, rows, parameters)


def test_written_parameters_are_those_of_the_next_row():
    """Parameters are changed between rows, whole and in part."""
    random = np.random.default_rng(10)
    settings = LayerSettings(n=20, eps=1e-3, affine="gamma+beta", slot=1)
    gamma = [stimulus.parameters("plain", 20, 16, random) for _ in range(3)]
    beta = stimulus.parameters("wide", 20, 16, random)
    rows = [Row(stimulus.finite(random, 20), settings) for _ in range(4)]
    moments = [
        setup(
            TINY,
            {0: settings},
            [ParameterVector("gamma", gamma[0], 1), ParameterVector("beta", beta, 1)],
        )
    ]
    for index, vector in enumerate(gamma[1:], start=1):
        bus = parameter_writes(TINY, ParameterVector("gamma", vector, 1))
        moments.append(Moment(bus, beats=10 * index, packets=index))
    part = [
        write(TINY, "parameter_address", slot=1, beta=1, index=7),
        write(TINY, "parameter_data", 0x1234),
    ]
    moments.append(Moment(part, beats=30, packets=3))
    changed = beta.copy()
    changed[7] = 0x1234
    record = run(TINY, rows, moments)
    pairs = [(gamma[0], beta), (gamma[1], beta), (gamma[2], beta), (gamma[2], changed)]
    want = [
        expected(TINY, [row], [ParameterVector("gamma", g, 1), ParameterVector("beta", b, 1)])[0]
        for row, (g, b) in zip(rows, pairs, strict=True)
    ]
    assert packets(TINY, record) == want
    assert all(set(codes(each)) == {OKAY} for each in record.answers)


# Commands and counters


@pytest.mark.parametrize("command", ["flush", "isd_clear"])
@pytest.mark.parametrize("stalls", STALLS)
@pytest.mark.parametrize("name", ["wide", "quarter"])
def test_flush_holds_the_input_until_all_has_left(name, stalls, command):
    """Where no ISD is kept, ISD_CLEAR is no more than that."""
    build = BUILDS[name]
    word = register_map(build)["control"].pack(**{command: 1})
    settings = LayerSettings(n=21, eps=1e-3)
    rows = [Row(stimulus.finite(np.random.default_rng(i), 21), settings) for i in range(12)]
    each = len(row_beats(build, rows[0]))
    flush = Moment([write(build, "control", word)], beats=4 * each + each // 2, holds=False)
    looks = [
        Moment(reads(build, "control", "status", "rows_in_flight"), beats=4 * each + 1, holds=False)
        for _ in range(60)
    ]
    record = run(build, rows, [setup(build, {0: settings}), flush, *looks], stalls)
    assert packets(build, record) == expected(build, rows)
    ends = [beat.cycle for beat in record.seen if beat.last]
    begun = record.answers[1][0][2]
    starts = record.accepted[::each]
    before = [start for start in starts if start < begun]
    after = [start for start in starts if start >= begun]
    assert 0 < len(before) < len(rows)
    assert min(after) > ends[len(before) - 1]
    # Not only from a boundary on: the row that had begun went on to its end.
    assert record.accepted[len(before) * each - 1] > begun
    resumed = min(after)
    for (_, control, cycle), (_, status, _), (_, inside, _) in record.answers[2:]:
        if begun < cycle < ends[len(before) - 1]:
            assert (control, status) == (word, 2)
            assert inside > 0
        if cycle > resumed + 2:
            assert control == 0


@pytest.mark.parametrize("command", ["flush", "isd_clear"])
def test_flush_of_an_idle_accelerator_ends_at_once(command):
    settings = LayerSettings(n=4)
    row = Row(stimulus.finite(np.random.default_rng(1), 4), settings)
    moments = [
        setup(TINY, {0: settings}),
        Moment([write(TINY, "control", **{command: 1})]),
        Moment(reads(TINY, "control", "status")),
    ]
    record = run(TINY, [row], moments)
    assert values(record.answers[2]) == [0, 1]
    assert packets(TINY, record) == expected(TINY, [row])


def test_cycles_and_clear():
    settings = LayerSettings(n=6)
    rows = [Row(stimulus.finite(np.random.default_rng(i), 6 + i % 2), settings) for i in range(4)]
    end = sum(len(row_beats(TINY, row)) for row in rows)
    look = reads(TINY, "cycles_low", "cycles_high", *COUNTERS)
    moments = [
        setup(TINY, {0: settings}),
        Moment(look, beats=end, packets=4),
        Moment(reads(TINY, "cycles_low")),
        Moment([write(TINY, "control", clear=1)]),
        Moment(look),
        Moment(reads(TINY, "control")),
    ]
    record = run(TINY, rows, moments)
    first, second, cleared, third = (record.answers[i] for i in (1, 2, 3, 4))
    counters = dict(zip(COUNTERS, values(first)[2:], strict=True))
    assert (counters["rows_in"], counters["rows_out"], counters["row_flags_1"]) == (4, 4, 2)
    # One count a cycle, and none lost: reads are as far apart as their answers.
    assert second[0][1] - first[0][1] == second[0][2] - first[0][2]
    assert first[1][1] == 0
    assert third[0][1] == third[0][2] - cleared[0][2] - 2
    assert values(third)[2:] == [0] * len(COUNTERS)
    assert values(record.answers[5]) == [0]


def test_every_layer_is_unknown_after_a_reset():
    rows = [Row(stimulus.finite(np.random.default_rng(i), 4), None, layer=i) for i in range(5)]
    record = run(TINY, rows)
    assert [(bits, flags) for bits, flags, _, _ in packets(TINY, record)] == [
        ([], RowFlag.SETTINGS)
    ] * 5


@pytest.mark.parametrize("name", ["wide", "quarter"])
def test_a_reset_leaves_no_trace(name):
    """Wherever it falls, everything comes as if it was the first time: values, answers, counters, and cycles."""
    build = BUILDS[name]
    random = np.random.default_rng(12)
    layers, parameters = random_layers(build, random), random_parameters(build, random)
    rows = random_rows(build, layers, random, 30)
    end = sum(len(row_beats(build, row)) for row in rows)
    moments = [
        setup(build, layers, parameters),
        Moment([write(build, "control", flush=1)], beats=end // 2, holds=False),
        Moment(reads(build, *COUNTERS, "cycles_low", "status"), beats=end, packets=len(rows)),
    ]
    calm = run(build, rows, moments, "stalls")
    assert packets(build, calm) == expected(build, rows, parameters)
    start = calm.accepted[0]
    for reset_at in (1, 20, start + 1, start + 50, start + 120, calm.accepted[end // 2] + 10):
        again = run(build, rows, moments, "stalls", reset_at=reset_at)
        assert packets(build, again) == packets(build, calm)
        assert [beat.cycle for beat in again.seen] == [beat.cycle for beat in calm.seen]
        assert (again.accepted, again.answers) == (calm.accepted, calm.answers)
