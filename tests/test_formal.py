# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Proofs of the plumbing: each holds for the design, and breaks where the design is broken. `docs/formal.md` lists them."""

from pathlib import Path

import pytest
from amaranth.hdl import Assert, Module, Signal
from amaranth.lib import wiring

from haan.formal import Verdict, prove

from .formal import PROOFS, Proof

DOCUMENT = Path(__file__).parents[1] / "docs" / "formal.md"
RIGHT = [
    pytest.param(proof, id=str(proof), marks=[pytest.mark.slow] * proof.slow) for proof in PROOFS
]
WRONG = [
    pytest.param(proof, broken, id=f"{broken.func.__name__}, {proof.claim.__name__}")
    for proof in PROOFS
    for broken in proof.broken
]


@pytest.mark.parametrize("proof", RIGHT)
def test_the_claim_holds(proof: Proof, tmp_path):
    verdict = proof.judge(proof.design, tmp_path)
    assert verdict == ("proved" if proof.cycles is None else "held")


@pytest.mark.parametrize(("proof", "broken"), WRONG)
def test_a_broken_design_is_refuted(proof: Proof, broken, tmp_path):
    assert proof.judge(broken, tmp_path) == "refuted"


def test_each_claim_can_fail():
    assert {proof.claim for proof in PROOFS if proof.broken} == {proof.claim for proof in PROOFS}


def test_the_document_lists_the_proofs():
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = lines.index("| design | what is proved | depth | set |") + 2
    table = lines[start : lines.index("", start)]
    assert table == [proof.row for proof in PROOFS]


class Counter(wiring.Component):
    """Counts, and claims that it never gets to a number."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(4)
        with m.If(count < 8):
            m.d.sync += count.eq(count + 1)
        m.d.comb += Assert(count != self.limit)
        return m


@pytest.mark.parametrize(
    ("limit", "cycles", "verdict"),
    [
        (9, None, "proved"),
        (8, None, "refuted"),
        (8, 8, "held"),
        (8, 9, "refuted"),
    ],
)
def test_verdicts(limit, cycles, verdict, tmp_path):
    assert prove(Counter(limit), tmp_path, cycles=cycles).status == verdict


@pytest.mark.parametrize("cycles", [None, 8])
def test_the_cycle_that_breaks_the_claim_is_told(cycles, tmp_path):
    assert prove(Counter(3), tmp_path, cycles=cycles) == Verdict("refuted", 4)
