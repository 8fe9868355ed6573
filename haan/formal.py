# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Proofs about hardware: an Amaranth component with `Assert` and `Assume` in it, judged by the ABC that is built into Yosys.

Inputs of the component are free in each cycle, its reset too. Registers start with their initial values.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .hdl.emit import Emission
from .synthesis import SynthesisError, run_tool

_SCRIPT = """\
read_rtlil proof.il
hierarchy -top proof
{cuts}
proc
flatten
opt_clean
memory_map
chformal -lower
opt -full
dffunmap
techmap
aigmap
opt_clean
write_aiger -zinit proof.aig
design -reset
read_rtlil gate.il
abc -script proof.abc
"""
# Yosys' pass runs ABC on a netlist, and takes one back: it gets a gate, and the proof is run beside it.
_GATE = """\
module \\gate
  wire input 1 \\a
  wire input 2 \\b
  wire output 3 \\y
  cell $_AND_ \\and
    connect \\A \\a
    connect \\B \\b
    connect \\Y \\y
  end
end
"""
_STEPS = """\
write_blif gate.blif
read_aiger proof.aig
fold
{engine} -L proof.log
read_blif gate.blif
map
"""


@dataclass(frozen=True)
class Verdict:
    """What came out of a proof."""

    status: Literal["proved", "refuted", "held"]
    """`proved`: in all cycles; `held`: in the first `cycles`, which is as far as was asked for."""
    cycles: int
    """Where it is refuted: cycles up to and with the one that breaks an assertion."""


def prove(
    component: Any,
    folder: Path,
    *,
    cycles: int | None = None,
    cuts: Sequence[str] = (),
) -> Verdict:
    """Judges all assertions of a component.

    Parameters
    ----------
    component : with `Assert` and `Assume` statements, in itself or in what it contains
    folder : for the tools' files
    cycles : None: property directed reachability, for all cycles; else bounded model checking of as many cycles after a reset
    cuts : Yosys selections of wires whose drivers are taken away: such a wire is free in each cycle
    """
    engine = "scorr\npdr" if cycles is None else f"bmc3 -F {cycles}"
    files = {
        "proof.il": Emission().rtlil(component, "proof"),
        "gate.il": _GATE,
        "proof.abc": _STEPS.format(engine=engine),
        "proof.ys": _SCRIPT.format(cuts="\n".join(f"cutpoint {cut}" for cut in cuts)),
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    run_tool("yosys", ["-q", "-s", "proof.ys"], folder)
    log = folder / "proof.log"
    if not log.exists():
        raise SynthesisError("ABC said nothing of a proof: are all its assertions constants?")
    return _verdict(log.read_text(encoding="utf-8"), cycles)


def _verdict(log: str, cycles: int | None) -> Verdict:
    """Reads ABC's log. «snl_UNSAT 15 pdr»: 15 is the last cycle looked at; «snl_SAT 7 pdr 2 8»: 8 is the one that breaks a claim;
    «snl_SAT 7 bmc3»: 7 is the last one that doesn't."""
    if (found := re.match(r"snl_SAT (-?\d+) \w+(?: \d+ (\d+))?\n", log)) is not None:
        return Verdict("refuted", int(found[2]) + 1 if found[2] else int(found[1]) + 2)
    if (found := re.match(r"snl_(UNSAT|UNK) (\d+) ", log)) is None:
        raise SynthesisError(f"ABC's log of a proof can't be read: {log[:80]!r}")
    seen = int(found[2]) + 1
    # Without a bound ABC doesn't give up; it has no opinion where all assertions have become constants, and a false one is refuted above.
    if found[1] == "UNSAT" or (cycles is None and seen == 1):
        return Verdict("proved", seen)
    if cycles is None or seen < cycles:
        raise SynthesisError(f"ABC gave up on a proof after {seen} cycles")
    return Verdict("held", cycles)
