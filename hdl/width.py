# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The width converter between a narrow bus and the beats of p_n elements inside. `docs/numerics.md`, section 10."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import Configuration
from ..flags import ERROR_BITS
from ..formats import FP32
from .framer import row_settings


def in_layout(configuration: Configuration, size: int) -> data.StructLayout:
    """A beat of `size` bytes on its way in, with the row's record beside its first one. `mixed`: a part of the beat came with another
    TID than the row's first."""
    what = configuration.what
    return data.StructLayout(
        {
            "data": 8 * size,
            "keep": size,
            "last": 1,
            "id": what.id_bits,
            "user": what.token_bits + FP32.width,
            "mixed": 1,
            "settings": row_settings(configuration),
        }
    )


def out_layout(configuration: Configuration, size: int) -> data.StructLayout:
    """A beat of `size` bytes on its way out, and the slot whose parameters its row uses, if it does."""
    what = configuration.what
    return data.StructLayout(
        {
            "data": 8 * size,
            "keep": size,
            "last": 1,
            "id": what.id_bits,
            "token": what.token_bits,
            "flags": ERROR_BITS,
            "parameters": 1,
            "slot": what.slot_bits,
        }
    )


def _stream(i_shape: data.StructLayout, o_shape: data.StructLayout) -> dict[str, wiring.Member]:
    return {
        "i_valid": In(1),
        "i_ready": Out(1),
        "i": In(i_shape),
        "o_valid": Out(1),
        "o_ready": In(1),
        "o": Out(o_shape),
    }


class Widener(wiring.Component):
    """Narrow beats to wide ones: as many as fit, fewer where TLAST comes. Throughput: one narrow beat a cycle.

    Latency: 1 cycle from the last narrow beat of a wide one. `i_ready` is low in reset.

    Members
    -------
    i_valid, i_ready, i : narrow beats (`in_layout`, bus_bytes); `mixed` isn't read, `settings` only beside a row's first
    o_valid, o_ready, o : wide beats (`in_layout`); `id` is that of the row's first narrow beat
    """

    def __init__(self, configuration: Configuration) -> None:
        self.size = configuration.bus
        self.ratio = configuration.beat_bytes // self.size
        super().__init__(
            _stream(
                in_layout(configuration, self.size),
                in_layout(configuration, configuration.beat_bytes),
            )
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = Signal(self.o.shape(), reset_less=True)
        running, full, inside = Signal(), Signal(), Signal()
        place = Signal(range(self.ratio))
        takes, ends, other = Signal(), Signal(), Signal()
        m.d.sync += running.eq(1)
        m.d.comb += [
            self.i_ready.eq(running & (~full | self.o_ready)),
            self.o_valid.eq(full),
            self.o.eq(beat),
            takes.eq(self.i_valid & self.i_ready),
            ends.eq(self.i.last | (place == self.ratio - 1)),
            other.eq(inside & (self.i.id != beat.id)),
        ]
        m.d.sync += full.eq((takes & ends) | (full & ~self.o_ready))
        with m.If(takes):
            m.d.sync += [
                place.eq(Mux(ends, 0, place + 1)),
                inside.eq(~self.i.last),
                beat.last.eq(self.i.last),
                beat.mixed.eq(other | (beat.mixed & (place != 0))),
            ]
            with m.If(place == 0):
                m.d.sync += [beat.keep.eq(0), beat.user.eq(self.i.user)]
            for index in range(self.ratio):
                with m.If(place == index):
                    m.d.sync += [
                        beat.data.word_select(index, 8 * self.size).eq(self.i.data),
                        beat.keep.word_select(index, self.size).eq(self.i.keep),
                    ]
            with m.If(~inside):
                m.d.sync += [beat.id.eq(self.i.id), beat.settings.eq(self.i.settings)]
        return m


class Narrower(wiring.Component):
    """Wide beats to narrow ones: only those that hold elements, at least one. Throughput: one narrow beat a cycle.

    Latency: 1 cycle. Flags are beside the last narrow beat of a packet alone.

    Members
    -------
    i_valid, i_ready, i : wide beats (`out_layout`), elements from the first on
    o_valid, o_ready, o : narrow beats (`out_layout`, bus_bytes)
    """

    def __init__(self, configuration: Configuration) -> None:
        self.size = configuration.bus
        super().__init__(
            _stream(
                out_layout(configuration, configuration.beat_bytes),
                out_layout(configuration, self.size),
            )
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = Signal(self.i.shape(), reset_less=True)
        full, final = Signal(), Signal()
        last = beat.last & final
        m.d.comb += [
            final.eq(~beat.keep[self.size]),
            self.i_ready.eq(~full | (self.o_ready & final)),
            self.o_valid.eq(full),
            *[
                self.o[name].eq(beat[name])
                for name in ("data", "keep", "id", "token", "parameters", "slot")
            ],
            self.o.last.eq(last),
            self.o.flags.eq(Mux(last, beat.flags, 0)),
        ]
        with m.If(self.o_ready):
            m.d.sync += [
                beat.data.eq(beat.data >> 8 * self.size),
                beat.keep.eq(beat.keep >> self.size),
            ]
        with m.If(self.i_ready):
            m.d.sync += [full.eq(self.i_valid), beat.eq(self.i)]
        return m
