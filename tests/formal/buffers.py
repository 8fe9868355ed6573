# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Proofs of the storage between the stages."""

from amaranth.hdl import Assert, Assume, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from haan.hdl.buffers import Queue, RegisterSlice, ResultStore, RowBuffer
from haan.latency import QUEUE_LATENCY

from .watch import Watch, after_reset, before, claim, holds_until_ready

WIDTH, DEPTH = 2, 4


class RegisterSliceProof(wiring.Component):
    """Everything leaves once, unchanged and in order; valid and data hold until ready; latency 1, one entry a cycle; both
    handshakes are low in reset."""

    def __init__(self, slice_: RegisterSlice) -> None:
        self.slice = slice_
        width = slice_.width
        super().__init__({"valid": In(1), "data": In(width), "ready": In(1), "mark": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.slice = dut = self.slice
        m.submodules.watch = watch = Watch(dut.width, 2)
        fresh = after_reset(m)
        m.d.comb += [
            dut.i_valid.eq(self.valid),
            dut.i_data.eq(self.data),
            dut.o_ready.eq(self.ready),
            watch.enters.eq(dut.i_valid & dut.i_ready),
            watch.entry.eq(dut.i_data),
            watch.leaves.eq(dut.o_valid & dut.o_ready),
            watch.mark.eq(self.mark),
            Assert(dut.o_valid == (watch.inside != 0)),
            Assert(dut.i_ready == ~fresh & (watch.inside != 2)),
        ]
        claim(m, fresh, ~dut.i_ready & ~dut.o_valid)
        claim(m, watch.due & dut.o_valid, dut.o_data == watch.item)
        holds_until_ready(m, dut.o_valid, dut.o_ready, dut.o_data)
        return m


class SliceWithoutBack(RegisterSlice):
    """Takes an entry although both places are full."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.i_ready.eq(~after_reset(m))
        return m


class SliceThatChanges(RegisterSlice):
    """Shows what arrives in place of what waits."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(self.i_valid & ~self.o_ready):
            m.d.comb += self.o_data.eq(self.i_data)
        return m


class SliceReadyInReset(RegisterSlice):
    """Is ready in reset."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(after_reset(m)):
            m.d.comb += self.i_ready.eq(1)
        return m


class QueueProof(wiring.Component):
    """For a writer that watches `room`, up to a cycle late, or that never has more than `depth` entries under way: everything leaves
    once, unchanged and in order; an entry is there exactly 3 cycles after it came in, or as soon as those before it have
    left, and stays until ready; `room` is low only where fewer than two more fit."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        width = queue.width
        super().__init__({"valid": In(1), "data": In(width), "ready": In(1), "mark": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = dut = self.queue
        # Two entries, or three, are in registers behind the memory.
        m.submodules.watch = watch = Watch(dut.width, dut.depth + 2 + dut.late)
        aged, arrived = Signal.like(watch.inside), dut.w_valid
        for _ in range(QUEUE_LATENCY - 1):
            arrived = before(m, arrived)
        leaves = dut.r_valid & dut.r_ready
        m.d.sync += aged.eq(aged + arrived - leaves)
        m.d.comb += [
            dut.w_valid.eq(self.valid),
            dut.w_data.eq(self.data),
            dut.r_ready.eq(self.ready),
            watch.enters.eq(dut.w_valid),
            watch.entry.eq(dut.w_data),
            watch.leaves.eq(leaves),
            watch.mark.eq(self.mark),
            Assume(~dut.w_valid | dut.room | before(m, dut.room) | (watch.inside < dut.depth)),
            Assert(dut.r_valid == (aged != 0)),
            Assert(dut.room | (watch.inside > dut.depth - 2)),
        ]
        claim(m, watch.due & dut.r_valid, dut.r_data == watch.item)
        holds_until_ready(m, dut.r_valid, dut.r_ready, dut.r_data)
        return m


class QueueWithoutEnd(Queue):
    """Has room at all times."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.room.eq(1)
        return m


class QueueThatForgets(Queue):
    """Drops an entry that comes in as one leaves."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Queue(self.width, self.depth)
        wiring.connect(m, wiring.flipped(self), inner)
        m.d.comb += inner.w_valid.eq(self.w_valid & ~(inner.r_valid & self.r_ready))
        return m


class RowBufferProof(wiring.Component):
    """For a writer that watches `room`, up to a cycle late, and a reader that reads only beats that are there: everything leaves
    once, unchanged, in order, in the cycle after it is read; `available` in the cycle after a beat came in and until the last one is
    read; `room` where two more fit, and only there."""

    def __init__(self, buffer: RowBuffer) -> None:
        self.buffer = buffer
        super().__init__({"valid": In(1), "data": In(buffer.width), "read": In(1), "mark": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.buffer = dut = self.buffer
        m.submodules.watch = watch = Watch(dut.width, dut.depth)
        m.d.comb += [
            dut.w_valid.eq(self.valid),
            dut.w_data.eq(self.data),
            dut.read.eq(self.read),
            watch.enters.eq(dut.w_valid),
            watch.entry.eq(dut.w_data),
            watch.leaves.eq(dut.read),
            watch.mark.eq(self.mark),
            Assume(~dut.w_valid | dut.room | before(m, dut.room)),
            Assume(~dut.read | (watch.inside != 0)),
            Assert(dut.available == (watch.inside != 0)),
            Assert(dut.room == (watch.inside <= dut.depth - 2)),
        ]
        was_due, item = before(m, watch.due & dut.read), before(m, watch.item)
        claim(m, was_due, dut.r_data == item)
        return m


class BufferAlwaysWithRoom(RowBuffer):
    """Has room at all times."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.room.eq(1)
        return m


class BufferThatIsEarly(RowBuffer):
    """Offers a beat while it is written."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(self.w_valid):
            m.d.comb += self.available.eq(1)
        return m


class ResultStoreProof(wiring.Component):
    """A result is read by the number of its row, 2 cycles after the question, if it was written before the question."""

    def __init__(self, store: ResultStore) -> None:
        self.store = store
        names = {"valid": 1, "data": store.width, "row": range(store.depth), "mark": 1}
        super().__init__({name: In(shape) for name, shape in names.items()})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.store = dut = self.store
        written, row = Signal(range(dut.depth)), Signal(range(dut.depth))
        known, kept = Signal(), Signal(dut.width)
        m.d.comb += [
            dut.w_valid.eq(self.valid),
            dut.w_data.eq(self.data),
            dut.r_row.eq(self.row),
        ]
        m.d.sync += written.eq(written + dut.w_valid)
        with m.If(dut.w_valid & (written == row) & known):
            m.d.sync += known.eq(0)
        with m.If(dut.w_valid & self.mark):
            m.d.sync += [known.eq(1), row.eq(written), kept.eq(dut.w_data)]
        asked, answer = known & (dut.r_row == row), kept
        for _ in range(2):
            asked, answer = before(m, asked), before(m, answer)
        claim(m, asked, dut.r_data == answer)
        return m


class StoreThatMixes(ResultStore):
    """Answers about the neighbouring row."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = ResultStore(self.width, self.depth)
        wiring.connect(m, wiring.flipped(self), inner)
        m.d.comb += inner.r_row.eq(self.r_row ^ self.w_valid)
        return m
