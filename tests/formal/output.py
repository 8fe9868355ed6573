# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Proofs of the output side: the normalization unit's issue, the credits, and the output stream, with any results of the lanes."""

from unittest import mock

from amaranth.hdl import Assume, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from haan.config import Configuration
from haan.flags import COMMON_BITS, RowFlag
from haan.hdl.core import Core
from haan.hdl.normalization import NormalizationUnit, meta_layout, order_layout, window_layout
from haan.hdl.pipe import Pipe
from haan.latency import normalization_latency, output_depth

from .watch import Watch, before, claim, holds_until_ready

SMALL = Configuration().with_(
    p_n=2,
    p_d=2,
    max_n=4,
    layers=2,
    token_slots=2,
    norms=["rmsnorm"],
    affine="none",
    subsampling=True,
    pipeline="short",
)


class Issuer(NormalizationUnit):
    """The normalization unit without its lanes: `lanes` stands for what they answer."""

    def __init__(self, configuration: Configuration, latency: int) -> None:
        super().__init__(configuration)
        self.lanes = Signal(len(self.y) + 1)
        self.latency = latency

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._issue(m)
        p = Pipe(m, self.how.cuts, valid=self.issue)
        m.d.comb += [
            self.o_valid.eq(p.valid(self.latency)),
            Cat(self.y, self.overflow).eq(self.lanes),
        ]
        return m


class OutputSide(Core):
    """The core behind its queues: issue, credits and output stream; with other depths and latencies than the build's if wanted."""

    def __init__(
        self, configuration: Configuration, depth: int | None = None, latency: int | None = None
    ) -> None:
        super().__init__(configuration)
        self.depth = depth or output_depth(configuration)
        self.issuer = Issuer(configuration, latency or normalization_latency(configuration))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.issuer = self.issuer
        with mock.patch("haan.hdl.core.output_depth", lambda configuration: self.depth):
            self._give(m, self.issuer)
        return m


class OutputProof(wiring.Component):
    """For any rows, any results and any `m_axis_tready`: valid and payload hold until ready; each beat that is issued leaves once, in
    order, with its own data, TKEEP, TLAST, TID, token and flags; a row is ⌈N/p_n⌉ beats, one if it is null, of which the last one alone
    has TLAST; no more beats are under way than the output queues hold."""

    def __init__(self, side: OutputSide) -> None:
        self.side = side
        configuration = side.configuration
        names = ("order_valid", "window_valid", "end_valid", "available", "room", "ready", "mark")
        super().__init__(
            {name: In(1) for name in names}
            | {
                "order": In(order_layout(configuration)),
                "window": In(window_layout(configuration)),
                "end": In(COMMON_BITS),
                "lanes": In(16 * configuration.how.p_n + 1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.side = side = self.side
        issuer, configuration = side.issuer, side.configuration
        layout = meta_layout(configuration)
        m.submodules.watch = self.watch = Watch(layout.size, side.depth)
        self.meta = data.View(layout, self.watch.item)
        leaves = side.m_axis_tvalid & side.m_axis_tready
        m.d.comb += [
            *[
                getattr(issuer, name).eq(getattr(self, name))
                for name in self.signature.members
                if name not in ("ready", "mark")
            ],
            side.m_axis_tready.eq(self.ready),
            self.watch.enters.eq(issuer.issue),
            self.watch.entry.eq(issuer.meta.as_value()),
            self.watch.mark.eq(self.mark),
            self.watch.leaves.eq(leaves),
        ]
        self._check_rows(m)
        self._check_beats(m)
        return m

    def _check_rows(self, m: Module) -> None:
        """A row's beats, as they are issued. What the queue of rows offers makes sense, and stays until it is taken."""
        issuer, order = self.side.issuer, self.order.as_value()
        waits = before(m, self.order_valid & ~issuer.order_ready)
        m.d.comb += Assume(~waits | (self.order_valid & (order == before(m, order))))
        single = self.order.null | (self.order.beats == 0)
        m.d.comb += Assume(self.order.single == single)
        sent = Signal(len(self.order.beats) + 1)
        with m.If(issuer.issue):
            m.d.sync += sent.eq(Mux(issuer.order_ready, 0, sent + 1))
        claim(m, issuer.issue, self.order_valid)
        claim(m, issuer.order_ready, issuer.issue & issuer.meta.last)
        claim(m, issuer.issue & issuer.meta.last, issuer.order_ready)
        claim(m, issuer.order_ready, sent == Mux(self.order.null, 0, self.order.beats))
        claim(m, issuer.issue, issuer.read == ~self.order.null)

    def _check_beats(self, m: Module) -> None:
        """A beat's way through the lanes and the queues, beside what is known of it."""
        side, meta = self.side, self.meta
        payload = Cat(
            side.m_axis_tdata,
            side.m_axis_tkeep,
            side.m_axis_tlast,
            side.m_axis_tid,
            side.m_axis_tuser,
        )
        holds_until_ready(m, side.m_axis_tvalid, side.m_axis_tready, payload)
        answered, result = self.watch.chosen, Signal.like(self.lanes)
        for _ in range(side.issuer.latency):
            answered = before(m, answered)
        with m.If(answered):
            m.d.sync += result.eq(self.lanes)
        due = self.watch.due & side.m_axis_tvalid
        whole = ~meta.last | (meta.tail == 0)
        keep = Cat(
            (~meta.null & (whole | (meta.tail > i))).replicate(2) for i in range(side.how.p_n)
        )
        flags = meta.flags | Mux(result[-1], RowFlag.OVERFLOW.value, 0)
        # One bit of each element stands for all: the queue keeps them in one word, whose others were proved to hold.
        claim(m, due, side.m_axis_tdata[::16] == result[:-1:16])
        claim(m, due, side.m_axis_tkeep == keep)
        claim(m, due, (side.m_axis_tlast == meta.last) & (side.m_axis_tid == meta.id))
        claim(m, due, side.m_axis_tuser == Cat(meta.token, Mux(meta.last, flags, 0)))


class OutputWithoutCredit(OutputSide):
    """Issues whether or not there is a place for the result."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.issuer.credit.eq(1)
        return m


class OutputThatChanges(OutputSide):
    """Says with the answer to a late READY that the packet ends."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(before(m, self.m_axis_tvalid & ~self.m_axis_tready)):
            m.d.comb += self.m_axis_tlast.eq(1)
        return m
