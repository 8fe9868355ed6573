# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The proofs: a claim about a design, and broken designs that refute it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from amaranth.lib import wiring

from haan.formal import prove
from haan.hdl.buffers import Queue, RegisterSlice, ResultStore, RowBuffer
from haan.hdl.core import Core
from haan.hdl.framer import Framer
from haan.hdl.registers import RegisterBlock
from haan.hdl.width import Narrower, Widener

from . import axi, buffers, core, framer, output, width

Design = Callable[[], wiring.Component]


@dataclass(frozen=True)
class Proof:
    """A claim, whose docstring says what it is; the design that keeps it; designs that don't."""

    claim: Callable[..., wiring.Component]
    subject: str
    design: Design
    broken: tuple[Design, ...] = ()
    cycles: int | None = None
    """None: all."""
    slow: bool = False

    def __str__(self) -> str:
        return f"{self.claim.__name__}, {self.subject}, {self.depth}"

    def judge(self, design: Design, folder: Path) -> str:
        """The verdict on a design."""
        component = self.claim(design())
        cuts = getattr(component, "cuts", ())
        return prove(component, folder, cycles=self.cycles, cuts=cuts).status

    @property
    def depth(self) -> str:
        return "all cycles" if self.cycles is None else f"{self.cycles} cycles"

    @property
    def row(self) -> str:
        """Its row in the table of `docs/formal.md`."""
        claim = " ".join((inspect.getdoc(self.claim) or "").split())
        return f"| {self.subject} | {claim} | {self.depth} | {'slow' if self.slow else 'quick'} |"


def _storage(kind: Callable[..., wiring.Component]) -> Design:
    sizes = (buffers.WIDTH,) if issubclass(kind, RegisterSlice) else (buffers.WIDTH, buffers.DEPTH)
    return partial(kind, *sizes)


PLACES = f"{buffers.DEPTH} places of {buffers.WIDTH} bits"

PROOFS = (
    Proof(
        buffers.RegisterSliceProof,
        f"`RegisterSlice` of {buffers.WIDTH} bits",
        _storage(RegisterSlice),
        (
            _storage(buffers.SliceWithoutBack),
            _storage(buffers.SliceThatChanges),
            _storage(buffers.SliceReadyInReset),
        ),
    ),
    Proof(
        buffers.QueueProof,
        f"`Queue` of {PLACES}",
        _storage(Queue),
        (_storage(buffers.QueueWithoutEnd), _storage(buffers.QueueThatForgets)),
    ),
    Proof(
        buffers.QueueProof,
        f"`Queue` with `late`, {PLACES}",
        partial(Queue, buffers.WIDTH, buffers.DEPTH, late=True),
    ),
    Proof(
        buffers.RowBufferProof,
        f"`RowBuffer` of {PLACES}",
        _storage(RowBuffer),
        (_storage(buffers.BufferAlwaysWithRoom), _storage(buffers.BufferThatIsEarly)),
    ),
    Proof(
        buffers.ResultStoreProof,
        f"`ResultStore` of {PLACES}",
        _storage(ResultStore),
        (_storage(buffers.StoreThatMixes),),
    ),
    Proof(
        framer.FramerProof,
        "`Framer`, p_n = 2, p_d = 1, max_n = 6",
        partial(Framer, framer.SMALL),
        (
            partial(framer.FramerWithoutSettings, framer.SMALL),
            partial(framer.FramerThatEndsEarly, framer.SMALL),
            partial(framer.FramerWithoutRoom, framer.SMALL),
        ),
    ),
    Proof(
        framer.FramerProof,
        "`Framer`, p_n = p_d = 2, max_n = 6",
        partial(Framer, framer.EVEN),
    ),
    Proof(
        framer.FramerProof,
        "`Framer` with subsampling, p_n = 2, p_d = 1, max_n = 6",
        partial(Framer, framer.SAMPLED),
    ),
    Proof(
        framer.FramerTwins,
        "Two `Framer`s, p_n = 2, p_d = 1, max_n = 6",
        partial(Framer, framer.SMALL),
        (partial(framer.FramerThatWaits, framer.SMALL),),
    ),
    Proof(
        framer.FeedProof,
        "`Framer`, p_n = 2, p_d = 1, max_n = 4",
        partial(Framer, framer.SHORT),
        (partial(framer.FramerThatSkips, framer.SHORT),),
    ),
    Proof(
        framer.FeedProof,
        "`Framer`, p_n = 2, p_d = 1, max_n = 6",
        partial(Framer, framer.SMALL),
        slow=True,
    ),
    Proof(
        framer.FeedProof,
        "`Framer` with subsampling, p_n = p_d = 2, max_n = 6",
        partial(Framer, framer.SAMPLED_EVEN),
    ),
    Proof(
        output.OutputProof,
        "`Core._give` and `NormalizationUnit._issue`, p_n = 2, max_n = 4; queues of 4 places, lanes of 1 cycle",
        partial(output.OutputSide, output.SMALL, 4, 1),
        (
            partial(output.OutputWithoutCredit, output.SMALL, 4, 1),
            partial(output.OutputThatChanges, output.SMALL, 4, 1),
        ),
    ),
    Proof(
        core.CoreProof,
        "`Core`, p_n = p_d = 1, max_n = 2; its arithmetic is cut out",
        partial(Core, core.SMALL),
        (partial(core.CoreThatGivesUp, core.SMALL), partial(core.CoreThatRepeats, core.SMALL)),
        cycles=23,
    ),
    Proof(
        axi.RegisterBlockProof,
        "`RegisterBlock` of a small build; what is behind it answers within 2 cycles",
        partial(RegisterBlock, axi.SMALL),
        (
            partial(axi.BlockThatGivesUp, axi.SMALL),
            partial(axi.BlockThatForgets, axi.SMALL),
            partial(axi.BlockThatWaits, axi.SMALL),
        ),
    ),
    Proof(
        axi.AxiTwins,
        "Two `RegisterBlock`s of a small build",
        partial(RegisterBlock, axi.SMALL),
        (partial(axi.BlockThatWaits, axi.SMALL),),
    ),
    Proof(
        width.WidenerProof,
        "`Widener`, 2 to 8 bytes",
        partial(Widener, width.SMALL),
        (partial(width.WidenerThatForgets, width.SMALL),),
    ),
    Proof(
        width.NarrowerProof,
        "`Narrower`, 8 to 2 bytes",
        partial(Narrower, width.SMALL),
        (partial(width.NarrowerThatEndsEarly, width.SMALL),),
    ),
)
