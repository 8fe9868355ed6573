# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Predicted ISDs in hardware: the same elements and flags whatever the build and the stalls, the cycles that they save, and the registers
that belong to them. Every run is compared with the golden model, whose answers `test_golden_prediction.py` holds against the rules."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from haan.config import Configuration, ConfigurationError
from haan.estimate import feed_cycles
from haan.flags import RowFlag
from haan.golden import IsdMemory, ReceivedRow, accepted_settings, row_outputs
from haan.latency import (
    RowTimes,
    clear_cycles,
    core_latency,
    skipped_latency,
    statistics_latency,
)
from haan.layer import LayerSettings
from haan.registers import register_map
from haan.sim import (
    ParameterVector,
    Row,
    SimulationResult,
    StallPattern,
    layer_writes,
    runner,
    simulate,
    simulate_core,
    stimulus,
)
from haan.sim.jobs import AxiJob, AxiRecord, BusAccess, Moment
from haan.sim.rows import row_beats, row_results, stream_fields
from haan.sim.top import build_top
from haan.sim.verdict import compare

STACK = {
    0: LayerSettings(n=24, keep_isd=True, affine="gamma+beta"),
    1: LayerSettings(n=24, skip=True, anchor=0, ratio=0.8, affine="gamma+beta"),
    2: LayerSettings(n=24, mode="rmsnorm", skip=True, anchor=0, ratio=1.25, guard_high=2.0),
    3: LayerSettings(n=19, mode="rmsnorm", keep_isd=True),
    4: LayerSettings(
        n=37,
        mode="rmsnorm",
        affine="gamma",
        skip=True,
        anchor=3,
        ratio=0.7,
        guard_low=0.2,
        guard_action="exact",
    ),
    5: LayerSettings(n=19, skip=True, anchor=3, ratio=3.0, guard_high=1.5, guard_action="exact"),
    6: LayerSettings(n=64, affine="beta"),
    # Of a layer that keeps nothing, but shares the place of layers 0 and 8.
    7: LayerSettings(n=13, mode="rmsnorm", skip=True, anchor=6),
    8: LayerSettings(n=8, mode="rmsnorm", keep_isd=True, eps=0.0),
    9: LayerSettings(n=61, mode="rmsnorm", skip=True, anchor=8, ratio=2.0**-3, eps=0.0),
    10: LayerSettings(n=24, keep_isd=True, eps=0.0),
    11: LayerSettings(n=1, mode="rmsnorm", skip=True, anchor=10, guard_low=0.1, guard_high=4.0),
    12: None,
}
"""Settings by layer. Every row takes each of the layers, and all that a skipped one can meet comes."""
SMALL = {"max_n": 64, "layers": 13, "slots": 1, "token_slots": 4, "skipping": True, "anchors": 2}
BUILDS = {
    "4x4": Configuration().with_(**SMALL, p_n=4, p_d=4),
    "8x2 every 16": Configuration().with_(**SMALL, p_n=8, p_d=2, isd_interval=16),
    "16x16": Configuration().with_(**SMALL, p_n=16, p_d=16),
    "1x1 subsampling, short": Configuration().with_(
        **SMALL, p_n=1, p_d=1, subsampling=True, pipeline="short"
    ),
    "narrow bus": Configuration().with_(**SMALL, p_n=8, p_d=4, bus_bytes=4),
}
STALLS = {
    "flowing": (StallPattern(), StallPattern()),
    "sparse": (StallPattern(0.9, 10), StallPattern()),
    "bursts": (StallPattern(0.5, 8), StallPattern(0.3, 20)),
    "blocked": (StallPattern(), StallPattern(period=400, busy=300)),
    "both blocked": (StallPattern(0.2, 100), StallPattern(0.2, 100)),
}
PARAMETERS = [
    ParameterVector(kind, stimulus.parameters("plain", 64, 16, np.random.default_rng(seed)))
    for seed, kind in enumerate(("gamma", "beta"))
]
PREDICTED, GUARD, NO_ANCHOR = RowFlag.PREDICTED, RowFlag.GUARD, RowFlag.NO_ANCHOR


def stack_row(layer: int, token: int, random: np.random.Generator) -> Row:
    """A row of a layer, perhaps with a fault; none of these looks different through other lanes."""
    settings = STACK[layer]
    n = 5 if settings is None else settings.n
    x = random.standard_normal(n + 5) * 2.0 ** random.integers(-4, 4)
    fate, count, ids = random.random(), n, {}
    if fate < 0.08:
        count = int(random.integers(n))
    elif fate < 0.16:
        count = n + int(random.integers(1, 6))
    elif fate < 0.24:
        x[random.integers(n)] = random.choice([np.nan, np.inf, -np.inf])
    elif fate < 0.3:
        x[:] = 0
    elif fate < 0.4 and n > 16:
        # There is a second beat in every build.
        ids = {1: 12}
    return Row(x[:count].astype(np.float16), settings, layer, token, ids=ids)


@cache
def stack_rows() -> list[Row]:
    """A batch of four goes through the layers in turn, the next one by itself; some rows come in any order."""
    random = np.random.default_rng(10)
    rows = []
    for _ in range(4):
        rows += [stack_row(layer, token, random) for layer in STACK for token in range(4)]
        rows += [stack_row(layer, 3, random) for layer in STACK]
        steps = random.integers((len(STACK), 4), size=(40, 2)).tolist()
        rows += [stack_row(layer, token, random) for layer, token in steps]
    return rows


def exact(
    build: Configuration,
    rows: Sequence[Row],
    parameters: Sequence[ParameterVector] = (),
    **options: Any,
) -> SimulationResult:
    """What the hardware does, which is what golden says."""
    run = simulate_core if build.how.bus_bytes is None else simulate
    result = run(build, rows, parameters, **options)
    verdict = compare(build, rows, parameters, result)
    assert verdict.exact, verdict.sentence
    return result


@cache
def reference() -> list[tuple[list[int], RowFlag]]:
    return answers(exact(BUILDS["4x4"], stack_rows(), PARAMETERS))


def answers(result: SimulationResult) -> list[tuple[list[int], RowFlag]]:
    return [(row.bits.tolist(), row.flags) for row in result.rows]


def test_the_stack_has_all_that_a_skipped_row_can_meet():
    rows = list(zip(stack_rows(), reference(), strict=True))
    for mode in ("layernorm", "rmsnorm"):
        seen = {
            flags & (PREDICTED | GUARD | NO_ANCHOR)
            for row, (_, flags) in rows
            if row.settings is not None and row.settings.skip and row.settings.mode == mode
        }
        # Of LayerNorm layers none holds.
        held = {PREDICTED | GUARD} if mode == "rmsnorm" else set()
        assert seen == {PREDICTED, GUARD, NO_ANCHOR} | held
    predicted = [flags for _, (_, flags) in rows if PREDICTED in flags]
    faults = RowFlag.SHORT, RowFlag.LONG, RowFlag.ID, RowFlag.NONFINITE
    for fault in faults:
        assert any(fault in flags for flags in predicted)
    anchors = [flags for row, (_, flags) in rows if row.settings and row.settings.keep_isd]
    for fault in (*faults, RowFlag.ZERO_VARIANCE):
        assert any(fault in flags for flags in anchors)
    assert any(RowFlag.SETTINGS in flags for _, (_, flags) in rows)


def waits(build: Configuration, rows: Sequence[Row], result: SimulationResult) -> int:
    """Skipped rows that come before the ISD of their anchor can be there."""
    to_isd = statistics_latency(build) + RowTimes(build).isd
    kept: dict[tuple[int, int], int] = {}
    count = 0
    for row, got in zip(rows, result.rows, strict=True):
        settings = row.settings
        if settings is not None and settings.keep_isd:
            kept[row.layer, row.token] = got.in_cycles[-1]
        if settings is not None and settings.skip and PREDICTED in got.flags:
            count += got.in_cycles[0] <= kept[settings.anchor, row.token] + to_isd
    return count


def early(build: Configuration, rows: Sequence[Row], result: SimulationResult) -> int:
    """Rows that leave before a row could whose statistics are taken."""
    return sum(
        PREDICTED in got.flags
        and row.settings is not None
        and row.settings.mode == "rmsnorm"
        and got.out_cycles[0] - got.in_cycles[0] < core_latency(build)
        for row, got in zip(rows, result.rows, strict=True)
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "narrow bus")) for name in BUILDS],
)
def test_values_depend_neither_on_the_build_nor_on_stalls(name):
    """All of them are those of one build without stalls, whether rows know their anchor when they come or wait for it."""
    build, rows = BUILDS[name], stack_rows()
    waited = was_early = 0
    for seed, (source, sink) in enumerate(STALLS.values()):
        result = exact(build, rows, PARAMETERS, source_idle=source, sink_stall=sink, seed=seed)
        assert answers(result) == reference()
        waited += waits(build, rows, result)
        was_early += early(build, rows, result)
    assert waited >= 30
    assert was_early >= 5


@pytest.mark.icarus
def test_the_stack_on_icarus():
    rows = stack_rows()[:80]
    source, sink = STALLS["sparse"]
    result = exact(
        BUILDS["4x4"], rows, PARAMETERS, simulator="icarus", source_idle=source, sink_stall=sink
    )
    assert answers(result) == reference()[: len(rows)]
    assert waits(BUILDS["4x4"], rows, result) > 0
    assert early(BUILDS["4x4"], rows, result) > 0


def test_a_reset_forgets_what_was_kept():
    build, rows = BUILDS["4x4"], stack_rows()[:60]
    for cycle in (1, 40, 150, 260):
        result = exact(build, rows, PARAMETERS, reset_at=cycle)
        assert answers(result) == reference()[: len(rows)]


# Cycles

FAST = Configuration().with_(
    p_n=16, max_n=320, layers=2, slots=1, token_slots=8, skipping=True, affine="gamma"
)
FAST_BUILDS = {
    "rmsnorm, 4 lanes for statistics": FAST.with_(norms=["rmsnorm"], p_d=4),
    "both norms": FAST.with_(p_d=16),
}


@pytest.mark.parametrize("build", FAST_BUILDS.values(), ids=FAST_BUILDS)
@pytest.mark.parametrize("n", [1, 17, 313])
def test_rows_whose_isd_is_known_follow_each_other_and_leave_at_once(build, n):
    """Latency from idle, and an interval that knows of the output alone: the statistics unit would take ⌈N/p_d⌉ cycles."""
    beats = -(-n // 16)
    keep = LayerSettings(n=n, mode="rmsnorm", keep_isd=True)
    skip = LayerSettings(n=n, mode="rmsnorm", skip=True, anchor=0)
    random = np.random.default_rng(n)
    rows = [
        Row(random.standard_normal(n).astype(np.float16), settings, layer, token)
        for settings, layer in ((keep, 0), (skip, 1), (skip, 1))
        for token in range(5)
    ]
    # Five rows, and a pause.
    pause = StallPattern(period=900 + 5 * beats, busy=900)
    result = exact(build, rows, source_idle=pause)
    assert all(PREDICTED in row.flags for row in result.rows[5:])
    for first in (5, 10):
        window = result.rows[first : first + 5]
        for row in window:
            assert row.out_cycles[0] - row.in_cycles[0] == skipped_latency(build)
            assert row.latency == beats - 1 + skipped_latency(build)
        assert set(np.diff([row.out_cycles[-1] for row in window])) == {beats}


# Registers

AXI = Configuration.preset("tiny").with_(
    p_n=8, p_d=2, layers=6, skipping=True, anchors=2, subsampling=True
)
LAYERS = {
    0: LayerSettings(n=21, mode="rmsnorm", keep_isd=True),
    1: LayerSettings(n=60, mode="rmsnorm", skip=True, anchor=0, ratio=0.9),
    2: LayerSettings(n=21, skip=True, anchor=0, ratio=0.9, n_sub=5, stride=4, first=1),
    3: LayerSettings(n=64, mode="rmsnorm", skip=True, anchor=0, guard_high=0, guard_action="exact"),
    4: LayerSettings(n=11, mode="rmsnorm", skip=True, anchor=5),
}
"""Layer 5 is left unknown."""


def row_of(layer: int, token: int = 0, count: int | None = None) -> Row:
    settings = LAYERS.get(layer)
    n = count or (5 if settings is None else settings.n)
    x = np.random.default_rng(100 * layer + token).standard_normal(n)
    return Row(x.astype(np.float16), settings, layer, token)


def length(rows: Sequence[Row]) -> int:
    """In beats."""
    return sum(len(row_beats(AXI, row)) for row in rows)


def run(rows: Sequence[Row], moments: Sequence[Moment], **options: Any) -> AxiRecord:
    """The bench's record of rows and register accesses, after the layers were written."""
    setup = [
        access
        for layer, settings in LAYERS.items()
        for access in layer_writes(AXI, layer, settings.record(AXI))
    ]
    one = np.ones(1, dtype=np.bool_)
    job = AxiJob(
        beats=[beat for row in rows for beat in row_beats(AXI, row)],
        setup=setup,
        moments=list(moments),
        **stream_fields(AXI, rows, one, one) | options,
    )
    record: AxiRecord = runner.run(build_top(AXI), "haan.sim.bench_axi", job)
    assert record.fault == ""
    assert {response for response, _, _ in record.setup} == {0}
    return record


def results(rows: Sequence[Row], record: AxiRecord) -> list[tuple[list[int], RowFlag]]:
    beats = [beat for row in rows for beat in row_beats(AXI, row)]
    return [(got.bits.tolist(), got.flags) for got in row_results(AXI, beats, record)]


def golden(rows: Sequence[Row], memory: IsdMemory | None = None) -> list[tuple[list[int], RowFlag]]:
    received = [ReceivedRow(*row.packet(AXI.how.p_n), row.token) for row in rows]
    settings = [accepted_settings(row.record(AXI), AXI) for row in rows]
    return [
        (answer.bits.tolist(), answer.flags)
        for answer in row_outputs(received, settings, AXI, {}, memory)
    ]


def clear_isds() -> BusAccess:
    control = register_map(AXI)["control"]
    return BusAccess(control.address, control.pack(isd_clear=1))


def reads(*names: str) -> list[BusAccess]:
    return [BusAccess(register_map(AXI)[name].address) for name in names]


def test_isd_clear_forgets_everything_when_all_rows_have_left():
    rows = [row_of(0, token) for token in range(4)]
    rows += [row_of(layer, token) for layer in (1, 2) for token in range(4)]
    each = length(rows[4:5])
    during = length(rows[:6]) + 1
    look = reads("control", "status", "rows_in_flight")
    looks = [Moment(look, beats=during, holds=False) for _ in range(60)]
    looks.append(Moment(look, beats=length(rows), packets=len(rows)))
    record = run(rows, [Moment([clear_isds()], beats=during, holds=False), *looks])
    begun = record.answers[0][0][2]
    ends = [beat.cycle for beat in record.seen if beat.last]
    starts, place = [], 0
    for row in rows:
        starts.append(record.accepted[place])
        place += length([row])
    before = sum(start < begun for start in starts)
    assert 6 < before < len(rows) - 2
    # The row that had begun came in whole; the next one waits until all have left, and nothing is kept.
    assert record.accepted[during + each - 2] > begun
    assert starts[before] > ends[before - 1] + clear_cycles(AXI)
    assert results(rows, record) == golden(rows[:before]) + golden(rows[before:])
    flags = [flags for _, flags in results(rows, record)]
    assert flags[4:before] == [PREDICTED] * (before - 4)
    assert flags[before:] == [NO_ANCHOR] * (len(rows) - before)
    seen = set()
    for (_, control, cycle), (_, status, _), (_, inside, _) in record.answers[1:]:
        if begun < cycle < ends[before - 1]:
            assert (control, status) == (4, 2)
            assert inside > 0
            seen.add("rows inside")
        elif ends[before - 1] + 2 < cycle < starts[before] - 2:
            assert (control, inside) == (4, 0)
            seen.add("clearing")
        elif cycle > starts[before] + 2:
            assert control == 0
            seen.add("over")
    assert seen == {"rows inside", "clearing", "over"}


def test_isd_clear_of_an_idle_accelerator():
    rows = [row_of(0), row_of(1), row_of(1), row_of(0), row_of(1)]
    moments = [
        Moment([clear_isds()], beats=length(rows[:2]), packets=2),
        Moment(reads("control"), beats=length(rows[:3]), packets=3),
    ]
    record = run(rows, moments)
    assert results(rows, record) == golden(rows[:2]) + golden(rows[2:])
    flags = [flags for _, flags in results(rows, record)]
    assert flags == [0, PREDICTED, NO_ANCHOR, 0, PREDICTED]
    assert record.answers[1][0][:2] == (0, 0)


def test_a_reset_of_the_whole_forgets_too():
    rows = [row_of(1), row_of(0), row_of(1), row_of(2), row_of(1)]
    want = golden(rows)
    assert [flags for _, flags in want] == [NO_ANCHOR, 0, *[PREDICTED] * 3]
    calm = run(rows, [])
    assert results(rows, calm) == want
    for cycle in (calm.seen[-1].cycle + 5, calm.accepted[-1] + 1):
        again = run(rows, [], reset_at=cycle)
        assert results(rows, again) == want
        assert [beat.cycle for beat in again.seen] == [beat.cycle for beat in calm.seen]


def test_ready_falls_for_exactly_the_cycles_in_which_isds_are_forgotten():
    assert clear_cycles(AXI) == 2 * 16
    assert clear_cycles(AXI.with_(skipping=False, anchors=1)) == 0
    row = row_of(5)
    beats = row_beats(AXI, row)
    one = np.ones(1, dtype=np.bool_)
    fields = stream_fields(AXI, [row], one, one) | {"clears": 0}
    record: AxiRecord = runner.run(
        build_top(AXI), "haan.sim.bench_axi", AxiJob(beats=beats, **fields)
    )
    assert record.fault == ""
    assert record.accepted[0] == clear_cycles(AXI)


def test_counters_of_sums_and_roots():
    """Groups that the statistics unit is fed with, and roots: early rows take neither, and no root is computed where the prediction is
    known beforehand."""
    phases: list[tuple[list[Row], int]] = [
        # Rows, and roots.
        ([row_of(0), row_of(0, 1), row_of(4)], 3),
        ([row_of(1), row_of(1, 1)], 0),
        ([row_of(1)], 0),
        ([row_of(2)], 0),
        ([row_of(3)], 1),
        ([row_of(4)], 1),
        ([row_of(5), row_of(5)], 0),
        # Faults change nothing of it.
        ([row_of(0, count=3), row_of(0, 1, count=40)], 2),
        ([row_of(0), row_of(1), row_of(1, 1), row_of(2)], 4),
        ([row_of(1, count=2)], 0),
    ]
    flags_of = [flags for _, flags in golden([row for rows, _ in phases for row in rows])]
    rows: list[Row] = []
    moments = []
    want = []
    for phase, roots in phases:
        rows += phase
        moments.append(Moment(reads("sum_cycles", "roots"), beats=length(rows), packets=len(rows)))
        fed = 0
        for row, flags in zip(phase, flags_of[len(rows) - len(phase) :], strict=False):
            settings = row.settings
            is_early = PREDICTED in flags and settings.mode == "rmsnorm" and not roots
            fed += 0 if settings is None or is_early else feed_cycles(AXI, settings)
        want.append((fed, roots))
    record = run(rows, moments)
    assert results(rows, record) == golden(rows)
    counts = np.array([[data for _, data, _ in answer] for answer in record.answers])
    assert np.diff(counts, axis=0, prepend=0).tolist() == [list(each) for each in want]
    assert sum(fed for fed, _ in want) > 0


# Settings


@pytest.mark.parametrize("name", ["guard_low", "guard_high"])
def test_a_guard_is_a_number_of_fp32(name):
    for guard in (0.0, 1e-40, 3.4028235e38, math.inf):
        settings = LayerSettings.from_dict({"n": 8, "skip": True, name: guard})
        assert settings.record(AXI)[name] <= 0x7F800000
    for guard in (1e39, 3.5e38):
        with pytest.raises(ConfigurationError, match=f"{name}.* beyond FP32; allowed are 0 to"):
            LayerSettings.from_dict({"n": 8, "skip": True, name: guard})
    for guard in (-1.0, math.nan):
        with pytest.raises(ConfigurationError, match=f"{name} = "):
            LayerSettings.from_dict({"n": 8, "skip": True, name: guard})
