# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Cycles. The golden model says when each beat moves; here the hardware moves every beat just then, whatever stalls, packets and
settings come, and the model keeps latency and interval as promised. Rows of all kinds are compared in `test_rows.py` too."""

from typing import Any

import numpy as np
import pytest

from haan.config import Configuration
from haan.golden import Packet, Passage, passages
from haan.latency import (
    CHOICE_LATENCY,
    INPUT_LATENCY,
    QUEUE_LATENCY,
    RowTimes,
    core_latency,
    normalization_latency,
    skipped_latency,
    statistics_latency,
)
from haan.layer import LayerSettings
from haan.sim import Row, StallPattern, simulate_core
from haan.sim.verdict import compare

SMALL = {"layers": 2, "slots": 1, "token_slots": 2}
STALLS = {
    "flowing": (StallPattern(), StallPattern()),
    "idle": (StallPattern(0.3), StallPattern()),
    "bursts": (StallPattern(0.5, 8), StallPattern(0.3, 20)),
    "blocked": (StallPattern(), StallPattern(period=400, busy=390)),
    "both blocked": (StallPattern(0.2, 100), StallPattern(0.2, 100)),
}
BUILDS = {
    "4x4": {"p_n": 4, "p_d": 4, "max_n": 64},
    "1x1": {"p_n": 1, "p_d": 1, "max_n": 40, "affine": "none"},
    "8x2": {"p_n": 8, "p_d": 2, "max_n": 64},
    "8x2 subsampling": {"p_n": 8, "p_d": 2, "max_n": 64, "subsampling": True},
    "8x2 subsampling, every 16": {
        "p_n": 8,
        "p_d": 2,
        "max_n": 64,
        "subsampling": True,
        "isd_interval": 16,
    },
    "4x4 subsampling": {"p_n": 4, "p_d": 4, "max_n": 300, "subsampling": True},
    "4x1 every 20, short": {
        "p_n": 4,
        "p_d": 1,
        "max_n": 64,
        "isd_interval": 20,
        "pipeline": "short",
        "norms": ["rmsnorm"],
        "affine": "gamma",
    },
    "8x2 skipping": {"p_n": 8, "p_d": 2, "max_n": 64, "skipping": True},
    "4x4 skipping, subsampling, every 16": {
        "p_n": 4,
        "p_d": 4,
        "max_n": 64,
        "skipping": True,
        "subsampling": True,
        "isd_interval": 16,
        "affine": "none",
    },
}

QUICK = ("1x1", "8x2 subsampling, every 16", "4x1 every 20, short", "8x2 skipping")


def any_settings(build: Configuration, random: np.random.Generator) -> LayerSettings:
    longest = build.what.max_n if random.random() < 0.5 else 2 * build.how.p_n
    n = int(random.integers(1, longest, endpoint=True))
    samples: dict[str, Any] = {}
    if build.what.subsampling and random.random() < 0.7:
        stride, first = 1 << int(random.integers(4)), int(random.integers(n))
        most = (n - 1 - first) // stride + 1
        samples = {"stride": stride, "first": first, "n_sub": int(random.integers(1, most + 1))}
    if build.what.skipping:
        kind = random.random()
        samples |= {"skip": True} if kind < 0.5 else {"keep_isd": kind < 0.8}
    return LayerSettings(n=n, mode=str(random.choice(build.what.norms)), **samples)


def any_rows(build: Configuration, count: int, random: np.random.Generator) -> list[Row]:
    """Right rows, short and long ones, and runs of rows with unknown layers, which need no place in the row buffer."""
    pool = [any_settings(build, random) for _ in range(12)]
    rows = []
    for index in range(count):
        settings: LayerSettings | None = pool[random.integers(len(pool))]
        assert settings is not None
        elements, fate = settings.n, random.random()
        if fate < 0.15:
            elements = int(random.integers(settings.n))
        elif fate < 0.3:
            elements = int(random.integers(settings.n, settings.n + 3 * build.how.p_n))
        if random.random() < (0.6 if index // 60 % 2 else 0.05):
            settings, elements = None, int(random.integers(2 * build.how.p_n))
        row = Row(random.normal(size=elements).astype(np.float16), settings)
        if build.what.skipping and settings is not None:
            # One that is refused still makes those behind it wait.
            fields = {"n": 0} if random.random() < 0.1 else {}
            token = int(random.integers(2))
            row = Row(row.bits, settings, token=token, fields=fields)
        rows.append(row)
    return rows


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(changes, id=name, marks=[pytest.mark.slow] * (name not in QUICK))
        for name, changes in BUILDS.items()
    ],
)
def test_every_beat_moves_when_the_model_says(changes):
    build = Configuration().with_(**SMALL, **changes)
    rows = any_rows(build, 300, np.random.default_rng(1))
    for seed, (source, sink) in enumerate(STALLS.values()):
        result = simulate_core(build, rows, source_idle=source, sink_stall=sink, seed=seed)
        verdict = compare(build, rows, [], result)
        assert verdict.exact, verdict.sentence


def flowing(build: Configuration, layers: list[LayerSettings]) -> list[Passage]:
    """Rows back to back, the sink always ready."""
    beats = [-(-layer.n // build.how.p_n) for layer in layers]
    packets = [Packet(*packet) for packet in zip(beats, layers, strict=True)]
    return passages(build, packets, [True], [True])


@pytest.mark.parametrize(
    ("changes", "goal"),
    [
        ({"affine": "gamma+beta"}, 64),
        ({"affine": "gamma+beta", "norms": ["rmsnorm"]}, 56),
        ({"affine": "gamma"}, 48),
        ({"affine": "gamma", "norms": ["rmsnorm"]}, 48),
        ({"affine": "gamma+beta", "pipeline": "short"}, 40),
    ],
    ids=["layernorm-beta", "rmsnorm-beta", "layernorm", "rmsnorm", "short"],
)
def test_latency_from_idle(changes, goal):
    build = Configuration().with_(p_d=16, p_n=16, **changes)
    for n in (1, 16, 17, 576, 4096):
        beats = -(-n // 16)
        (row,) = flowing(build, [LayerSettings(n=n, mode=build.what.norms[0])])
        assert row.in_cycles == list(range(beats))
        assert row.out_cycles[0] == row.in_cycles[-1] + core_latency(build)
        latency = row.out_cycles[-1] - row.in_cycles[0]
        assert latency == 2 * (beats - 1) + core_latency(build)
        assert latency <= 2 * beats + goal


LANES = [(1, 1), (4, 1), (8, 2), (8, 8), (16, 4), (32, 16)]


def test_interval_of_equal_rows():
    """max(⌈N_sub/p_d⌉, ⌈N/p_n⌉, isd_interval), for samples anywhere. Where `first` is no multiple of p_d·stride, the first and the last
    samples may each take a cycle with fewer than p_d of them: that is one cycle a row more."""
    for p_n, p_d in LANES:
        for interval in (1, 16, 33):
            build = Configuration().with_(
                p_n=p_n, p_d=p_d, isd_interval=interval, max_n=769, subsampling=True
            )
            for n in (1, 2, 3, 8, 16, 17, 33, 64, 250, 769):
                for samples in (1, n // 5, n // 3, n // 2, n - 1, n):
                    check_interval(build, n=n, n_sub=max(1, samples))
            for stride in (2, 4, p_n // p_d, 64):
                for first in {0, 1, stride - 1, min(p_d * stride, 512)}:
                    count = (768 - first) // stride + 1
                    check_interval(build, n=769, n_sub=count, first=first, stride=stride)


def check_interval(build: Configuration, **settings: Any) -> None:
    layer, how = LayerSettings(**settings), build.how
    leaves = [row.out_cycles[-1] for row in flowing(build, [layer] * 20)]
    beats, samples = -(-layer.n // how.p_n), -(-layer.samples // how.p_d)
    bound = max(beats, how.isd_interval, samples)
    intervals = set(np.diff(leaves[8:]).tolist())
    if layer.first % (how.p_d * layer.stride) == 0:
        assert intervals == {bound}, (layer, how)
    else:
        assert intervals <= {bound, bound + 1}, (layer, how)


SKIPPING = Configuration().with_(p_d=4, p_n=4, max_n=64, skipping=True)
KEEP = LayerSettings(n=8, mode="rmsnorm", keep_isd=True)
SKIP = LayerSettings(n=8, mode="rmsnorm", skip=True)
OUT = QUEUE_LATENCY + normalization_latency(SKIPPING) + QUEUE_LATENCY
"""From the writing of what a beat has waited for to its way out."""
TO_ISD = statistics_latency(SKIPPING) + RowTimes(SKIPPING).isd


def after(gap: int, second: Packet, first: Packet | None = None) -> Passage:
    """The passage of a packet, accepted `gap` cycles after the first beat of another one, if nothing is in the way."""
    first = Packet(2, KEEP) if first is None else first
    willing = np.zeros(1000, dtype=bool)
    willing[: first.beats] = willing[gap:] = True
    (_, move) = passages(SKIPPING, [first, second], willing, [True])
    assert move.in_cycles[0] == gap
    return move


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({"affine": "gamma", "norms": ["rmsnorm"]}, 16),
        ({"affine": "gamma+beta", "norms": ["rmsnorm"]}, 21),
        ({"affine": "gamma+beta"}, 26),
        # One more than the goal of 20: the lane of a build with LayerNorm is longer.
        ({"affine": "gamma"}, 21),
        ({"affine": "gamma", "norms": ["rmsnorm"], "p_d": 4}, 16),
        ({"affine": "gamma", "norms": ["rmsnorm"], "formats": ["fp16", "int8"]}, 20),
    ],
    ids=["rmsnorm", "rmsnorm-beta", "layernorm-beta", "layernorm", "few statistics lanes", "int8"],
)
def test_latency_of_a_row_whose_isd_is_known(changes, known):
    build = Configuration().with_(**({"p_d": 16, "p_n": 16, "skipping": True} | changes))
    through = skipped_latency(build)
    for n in (1, 16, 17, 576, 4096):
        beats = -(-n // 16)
        settings = LayerSettings(n=n, mode="rmsnorm", skip=True)
        early = Packet(beats, settings, predicted=True)
        (row,) = passages(build, [early], [True], [True])
        assert row.out_cycles == [cycle + through for cycle in row.in_cycles]
        assert row.out_cycles[-1] - row.in_cycles[0] == beats + known
        # Whatever the statistics unit could do, a row every ⌈N/p_n⌉ cycles.
        moves = passages(build, [early] * 20, [True], [True])
        assert set(np.diff([move.out_cycles[-1] for move in moves]).tolist()) == {beats}
        # Computed after all, it takes what any row does.
        (row,) = passages(build, [Packet(beats, settings)], [True], [True])
        plain = settings.model_copy(update={"skip": False})
        assert row == passages(build, [Packet(beats, plain)], [True], [True])[0]


def test_a_row_is_early_from_the_cycle_on_in_which_nothing_is_pending():
    # The anchor's last beat is accepted in cycle 1, and framed two cycles later.
    known = 1 + INPUT_LATENCY + TO_ISD
    for gap in range(2, known + 9):
        move = after(gap, Packet(2, SKIP, predicted=True))
        early = gap + INPUT_LATENCY + OUT
        computed = gap + 1 + INPUT_LATENCY + TO_ISD + CHOICE_LATENCY + OUT
        assert move.out_cycles[0] == (early if gap > known else computed)
        assert move.out_cycles[1] == move.out_cycles[0] + 1


def test_a_settled_row_waits_for_no_choice():
    known = 1 + INPUT_LATENCY + TO_ISD
    for settings in (SKIP, SKIP.model_copy(update={"mode": "layernorm"})):
        plain = settings.model_copy(update={"skip": False})
        predicted = settings.mode == "layernorm"
        for gap, waits in ((known, True), (known + 1, False)):
            move = after(gap, Packet(2, settings, predicted=predicted))
            alone = after(gap, Packet(2, plain))
            assert (move.out_cycles == alone.out_cycles) == (not waits)


def test_rows_that_wait_keep_those_behind_them_waiting():
    rows = [Packet(2, KEEP), *[Packet(2, SKIP, predicted=True)] * 60]
    moves = passages(SKIPPING, rows, [True], [True])
    assert all(np.diff([move.in_cycles[0] for move in moves]) == 2)
    for move in moves[1:]:
        written = move.in_cycles[1] + INPUT_LATENCY + TO_ISD + CHOICE_LATENCY
        assert move.out_cycles == [written + OUT, written + OUT + 1]


def test_a_refused_row_is_pending_until_it_is_framed():
    early = Packet(2, SKIP, predicted=True)
    settled = after(3, early, Packet(1, None)).out_cycles
    for refused in (Packet(1, None, keeps=True), Packet(1, None, skips=True, keeps=True)):
        # Accepted in 0, framed in 2.
        assert after(3, early, refused).out_cycles > settled
        assert after(4, early, refused).out_cycles == [cycle + 1 for cycle in settled]
    # One that skips is settled when nothing is before it.
    assert after(3, early, Packet(1, None, skips=True)).out_cycles == settled


def test_the_cycles_of_a_build_without_skipping_do_not_know_of_it():
    build = SKIPPING.with_(skipping=False)
    rows = [[Packet(2, None, keeps=flag, skips=flag), Packet(2, None)] for flag in (True, False)]
    one, two = (passages(build, packets, [True], [True]) for packets in rows)
    assert one == two
