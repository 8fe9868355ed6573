# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Random rows, faults, stalls and register traffic through the top; and that the soak finds what differs."""

import copy
import runpy
import time
from collections import Counter
from pathlib import Path

import pytest

from haan.flags import SKIPPING, RowFlag
from haan.registers import register_map
from haan.sim.soak import BUILDS, SoakReport, judge_run, plan, run, simulate_plan

COMMAND = Path(__file__).parents[1] / "bench" / "soak.py"
KINDS = {
    "clear",
    "commit",
    "commit refused",
    "load",
    "load refused",
    "parameter",
    "parameter refused",
    "parameter refused in flight",
    "read",
    "read refused",
    "write",
    "write refused",
    "write without strobes",
}


def check(build, rows, seed):
    report = run(build, rows, seed)
    assert report.sentence == ""
    assert report.rows == rows
    assert report.accesses.keys() == KINDS
    never = RowFlag(0) if build.what.skipping else SKIPPING
    if build.what.integer:
        never |= RowFlag.NONFINITE
    always = {flag for flag in RowFlag if flag not in never | RowFlag.OVERFLOW}
    assert {flag.name for flag in always} <= report.flags.keys()
    assert not {flag.name for flag in never} & report.flags.keys()


@pytest.mark.parametrize("name", ["lanes-8", "int8-skipping", "int8-alone"])
def test_everything_is_as_golden_says(name):
    (build,) = (build for build in BUILDS if build.name == name)
    check(build, 2000, 100)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.name)
def test_for_minutes_everything_is_as_golden_says(build, seed):
    check(build, 20_000, 200 + seed)


@pytest.fixture(scope="module")
def calm():
    planned = plan(BUILDS[0], 300, 7)
    record = simulate_plan(planned)
    assert judge_run(planned, record).sentence == ""
    return planned, record


def accesses(planned):
    """(moment, place in it, access)"""
    return [
        (moment, place, access)
        for moment, each in enumerate(planned.moments)
        for place, access in enumerate(each.bus)
    ]


def one_bit(record, planned):
    record.seen[200] = record.seen[200]._replace(data=record.seen[200].data ^ 1 << 5)
    return "elements differ"


def a_flag(record, planned):
    index = [i for i, beat in enumerate(record.seen) if beat.last][150]
    user = record.seen[index].user ^ 1 << planned.configuration.what.token_bits
    record.seen[index] = record.seen[index]._replace(user=user)
    return "flags are"


def a_token(record, planned):
    index = [i for i, beat in enumerate(record.seen) if beat.last and record.seen[i - 1].last][5]
    record.seen[index] = record.seen[index]._replace(user=record.seen[index].user ^ 1)
    return "TID and token slot are"


def a_cycle_out(record, planned):
    for index in range(100, len(record.seen) - 1):
        if record.seen[index].cycle + 1 < record.seen[index + 1].cycle:
            break
    record.seen[index] = record.seen[index]._replace(cycle=record.seen[index].cycle + 1)
    return "beats moved"


def a_cycle_in(record, planned):
    for index in range(100, len(record.accepted) - 1):
        if record.accepted[index] + 1 < record.accepted[index + 1]:
            break
    record.accepted[index] += 1
    return "beats moved"


def answered(planned, record, name, wanted):
    """Places of accesses to a register with a response."""
    address = register_map(planned.configuration)[name].address
    return [
        (moment, place)
        for moment, place, access in accesses(planned)
        if access.address == address and record.answers[moment][place][0] == wanted
    ]


def another_response(name, wanted):
    def change(record, planned):
        moment, place = answered(planned, record, name, wanted)[0]
        _, data, cycle = record.answers[moment][place]
        record.answers[moment][place] = (2 - wanted, data, cycle)
        return f"response {2 - wanted}"

    return change


def another_count(name):
    def change(record, planned):
        moment, place = answered(planned, record, name, 0)[-1]
        response, data, cycle = record.answers[moment][place]
        record.answers[moment][place] = (response, data + 1, cycle)
        return "is right"

    return change


CHANGES = {
    "one bit": one_bit,
    "a flag": a_flag,
    "a token": a_token,
    "a cycle out": a_cycle_out,
    "a cycle in": a_cycle_in,
    "commit": another_response("commit", 0),
    "refused commit": another_response("commit", 2),
    "parameter": another_response("parameter_data", 0),
    "refused parameter": another_response("parameter_data", 2),
    **{f"counter {name}": another_count(name) for name in ("rows_in", "rows_out", "stall_in")},
    **{f"counter {name}": another_count(name) for name in ("stall_out", "cycles_low", "status")},
    **{f"flag {place}": another_count(f"row_flags_{place}") for place in range(16)},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_difference_is_found(calm, change):
    planned, record = calm
    record = copy.deepcopy(record)
    sentence = change(record, planned)
    assert sentence in judge_run(planned, record).sentence


def test_the_command_tells_how_to_repeat_a_difference(monkeypatch, capsys):
    """And stops there, with status 1."""
    soak = runpy.run_path(str(COMMAND))
    seeds = []

    def spoilt(build, rows, seed):
        seeds.append(seed)
        time.sleep(0.01)
        return SoakReport(rows, flags=Counter(SHORT=1), sentence="it differs" * (seed == 6))

    monkeypatch.setitem(soak["chunk"].__globals__, "run", spoilt)
    monkeypatch.setitem(soak["main"].__globals__, "build_top", lambda *_, **__: None)
    monkeypatch.setattr("sys.argv", ["soak.py", "--rows", "10000", "--chunk", "100", "--seed", "5"])
    with pytest.raises(SystemExit) as ended:
        soak["main"]()
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert "--rows 100 --chunk 100 --seed 6" in printed.err
    assert "it differs" in printed.out
    assert len(seeds) < 100
