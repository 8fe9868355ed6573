# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Proofs of the width converters."""

from amaranth.hdl import Assert, Assume, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from haan.config import Configuration
from haan.hdl.width import Narrower, Widener, in_layout, out_layout

from .watch import Watch, after_reset, before, claim, holds_until_ready, patient

SMALL = Configuration().with_(
    p_n=4, p_d=4, bus_bytes=2, max_n=8, layers=2, slots=2, token_slots=2, affine="gamma"
)


class WidenerProof(wiring.Component):
    """For any packets and any READY: each wide beat is made of the next narrow ones, as many as fit, fewer where TLAST comes; each of
    these is in its place with its TKEEP, and TKEEP is 0 behind the last; TLAST, TID of the packet, TUSER and `mixed` are right; valid and
    payload hold until ready; READY and VALID are low in reset, and READY comes in time."""

    def __init__(self, widener: Widener, configuration: Configuration = SMALL) -> None:
        self.widener, self.configuration = widener, configuration
        names = ("valid", "ready", "mark", "mark_part")
        beat = In(in_layout(configuration, widener.size))
        super().__init__({name: In(1) for name in names} | {"beat": beat})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.widener = dut = self.widener
        beat, ratio = self.beat, dut.ratio
        what = self.configuration.what
        entry = data.StructLayout({"id": what.id_bits, "user": len(beat.user), "inner": 1})
        m.submodules.watch = watch = Watch(entry.size, 2)
        taken, leaves = dut.i_valid & dut.i_ready, dut.o_valid & dut.o_ready
        inside, row_id, place = Signal(), Signal.like(beat.id), Signal(range(ratio))
        whose = Mux(inside, row_id, beat.id)
        ends = beat.last | (place == ratio - 1)
        m.d.comb += [
            dut.i_valid.eq(self.valid),
            dut.i.eq(beat),
            dut.o_ready.eq(self.ready),
            watch.enters.eq(taken & (place == 0)),
            watch.entry.eq(Cat(whose, beat.user, inside)),
            watch.mark.eq(self.mark),
            watch.leaves.eq(leaves),
        ]
        follows, count, mixed, last = Signal(), Signal(range(ratio + 1)), Signal(), Signal()
        part, known, kept = Signal(range(ratio)), Signal(), Signal(8 * dut.size + dut.size)
        now = watch.chosen | (follows & (place != 0))
        with m.If(taken):
            m.d.sync += [
                inside.eq(~beat.last),
                row_id.eq(whose),
                place.eq(Mux(ends, 0, place + 1)),
                follows.eq(now),
            ]
        with m.If(taken & now):
            other = beat.id != whose
            m.d.sync += [
                count.eq(place + 1),
                last.eq(beat.last),
                mixed.eq(other | (mixed & ~watch.chosen)),
                known.eq(known & ~watch.chosen),
            ]
            with m.If(self.mark_part & (watch.chosen | ~known)):
                m.d.sync += [known.eq(1), part.eq(place), kept.eq(Cat(beat.data, beat.keep))]
        item, due = data.View(entry, watch.item), watch.due & dut.o_valid
        claim(m, after_reset(m), ~dut.i_ready & ~dut.o_valid)
        holds_until_ready(m, dut.o_valid, dut.o_ready, dut.o.as_value())
        claim(m, due, (dut.o.id == item.id) & (dut.o.user == item.user))
        claim(m, due, (dut.o.last == last) & (dut.o.mixed == mixed))
        for i in range(ratio):
            word = dut.o.data.word_select(i, 8 * dut.size)
            keep = dut.o.keep.word_select(i, dut.size)
            claim(m, due & known & (part == i), Cat(word, keep) == kept)
            claim(m, due & (count <= i), keep == 0)
        patient(m, dut.o_ready & ~dut.i_ready, 1)
        m.d.comb += Assert(dut.o_valid | (watch.inside <= 1))
        return m


class WidenerThatForgets(Widener):
    """Says of a beat that waits that all its bytes are there."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(before(m, self.o_valid & ~self.o_ready)):
            m.d.comb += self.o.keep.eq(~0)
        return m


class NarrowerProof(wiring.Component):
    """For wide beats whose elements stand from the first on, and any READY: each becomes as many narrow ones as hold its elements, at least one,
    in order and unchanged; TLAST and flags are with the last one of a packet alone; valid and payload hold until ready."""

    def __init__(self, narrower: Narrower, configuration: Configuration = SMALL) -> None:
        self.narrower, self.configuration = narrower, configuration
        beat = In(out_layout(configuration, configuration.beat_bytes))
        super().__init__({"valid": In(1), "ready": In(1), "beat": beat})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.narrower = dut = self.narrower
        beat, size = self.beat, dut.size
        ratio = self.configuration.beat_bytes // size
        item, inside = Signal(beat.shape()), Signal()
        sent = Signal(range(ratio + 1))
        more = Cat(item.keep.word_select(i, size).any() & (sent < i) for i in range(1, ratio)).any()
        leaves = dut.o_valid & dut.o_ready
        final = Signal()
        runs = Cat(beat.keep == (1 << size * count) - 1 for count in range(ratio + 1)).any()
        m.d.comb += [
            dut.i_valid.eq(self.valid),
            dut.i.eq(beat),
            dut.o_ready.eq(self.ready),
            final.eq(~more),
            Assume(runs),
            Assert(dut.o_valid == inside),
            Assert(dut.i_ready == (~dut.o_valid | (final & dut.o_ready))),
        ]
        with m.If(leaves):
            m.d.sync += sent.eq(Mux(final, 0, sent + 1))
            m.d.sync += inside.eq(~final)
        with m.If(dut.i_valid & dut.i_ready):
            m.d.sync += [inside.eq(1), item.eq(beat)]
        holds_until_ready(m, dut.o_valid, dut.o_ready, dut.o.as_value())
        due = dut.o_valid
        last = item.last & final
        for i in range(ratio):
            now = due & (sent == i)
            claim(m, now, dut.o.data == item.data.word_select(i, 8 * size))
            claim(m, now, dut.o.keep == item.keep.word_select(i, size))
        claim(m, due, (dut.o.id == item.id) & (dut.o.token == item.token))
        claim(m, due, (dut.o.last == last) & (dut.o.flags == Mux(last, item.flags, 0)))
        return m


class NarrowerThatEndsEarly(Narrower):
    """Ends the packet with each narrow beat."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(self.o_valid):
            m.d.comb += self.o.last.eq(1)
        return m
