# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Proofs of the framer: any sequence of packets, against the rules of `docs/numerics.md`, section 9, said once more."""

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from haan.config import Configuration
from haan.flags import RowFlag
from haan.hdl.framer import Framer, beat_layout
from haan.numerics import Numerics

from .watch import Watch, after_reset, before, claim

SMALL = Configuration().with_(
    p_n=2, p_d=1, max_n=6, layers=2, token_slots=2, norms=["rmsnorm"], affine="none"
)
EVEN = SMALL.with_(p_d=2)
SAMPLED = EVEN.with_(subsampling=True)


class Packets(wiring.Component):
    """What the rules say of each packet: of its first beat, and of its flags as they are after the beats so far.

    Members
    -------
    valid, beat : a beat is transferred
    first : it is the packet's first
    null : the settings beside it can't work
    flags : SHORT, LONG, KEEP and ID with this beat
    done : with this beat, or before, the packet had its row's last beat, or its own
    """

    def __init__(self, configuration: Configuration) -> None:
        self.what, self.p_n = configuration.what, configuration.how.p_n
        self.count_bits = Numerics(configuration).n_bits + 2
        layout = beat_layout(configuration)
        super().__init__(
            {
                "valid": In(1),
                "beat": In(layout),
                "first": wiring.Out(1),
                "null": wiring.Out(1),
                "flags": wiring.Out(len(RowFlag)),
                "done": wiring.Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, p_n = self.beat, self.p_n
        inside, done = Signal(), Signal()
        row_n, row_id, place = Signal(self.count_bits), Signal.like(beat.id), Signal(self.count_bits)
        flags = Signal(len(RowFlag))
        n = Mux(self.first, beat.settings.n, row_n)
        start = Mux(self.first, 0, place)
        reaches, last = start + p_n >= n, beat.last
        bytes_ = [beat.keep[2 * i : 2 * i + 2] for i in range(p_n)]
        lacking = Cat((start + i < n) & ~pair.all() for i, pair in enumerate(bytes_)).any()
        beyond = Cat((start + i >= n) & pair.any() for i, pair in enumerate(bytes_)).any()
        runs = Cat(beat.keep == (1 << 2 * count) - 1 for count in range(p_n + 1)).any()
        found = {
            RowFlag.SHORT: last & (~reaches | lacking),
            RowFlag.LONG: reaches & (~last | beyond),
            RowFlag.KEEP: Mux(last, ~runs, ~beat.keep.all()),
            RowFlag.ID: ~self.first & (beat.id != row_id),
        }
        new = Cat(found.get(flag, Const(0, 1)) for flag in RowFlag)
        over = ~self.first & done
        m.d.comb += [
            self.first.eq(~inside),
            self.null.eq(self._null(beat.settings)),
            self.flags.eq(Mux(self.first, 0, flags) | Mux(over, 0, new)),
            self.done.eq(over | reaches | last),
        ]
        with m.If(self.valid):
            m.d.sync += [inside.eq(~last), done.eq(self.done), flags.eq(self.flags)]
            m.d.sync += [row_n.eq(n), place.eq(Mux(over, place, start + p_n))]
            with m.If(self.first):
                m.d.sync += row_id.eq(beat.id)
        return m

    def _null(self, settings: Value) -> Value:
        negative, exponent, fraction = settings.eps[31], settings.eps[23:31], settings.eps[:23]
        works = settings.valid & (settings.n >= 1) & (settings.n <= self.what.max_n)
        works &= (exponent != 255) & (~negative | ((exponent == 0) & (fraction == 0)))
        if self.what.subsampling:
            last_sample = settings.first + ((settings.n_sub - 1).as_unsigned() << settings.stride_log2)
            works &= (settings.n_sub != 0) & (last_sample < settings.n)
        return ~works


class FramerProof(wiring.Component):
    """For every sequence of packets, of any length, TKEEP, TID and settings, and any `room`: one `row_valid` and one `end_valid` a
    packet, in order, with its own N, TID and token; between them ⌈N/p_n⌉ `beat_valid`, none for a null row, in order and with the
    packet's data; `faults` as the rules say; a beat only in the cycle after `room`. While there is room, the next beat is taken, and a
    row whose packet or last beat has come ends, within a bound."""

    PACKETS = 3
    """Under way at most: one that is ending, one that is padded, one that waits."""

    def __init__(self, framer: Framer) -> None:
        self.framer = framer
        self.configuration = framer.configuration
        beat = In(beat_layout(framer.configuration))
        names = ("valid", "room", "mark", "mark_beat")
        super().__init__({name: In(1) for name in names} | {"beat": beat})

    @property
    def patience(self) -> int:
        """Cycles in which the longest row can be padded, and the pipeline before it."""
        how = self.configuration.how
        return Numerics(self.configuration).row_beats * (how.p_n // how.p_d) + 3

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.framer = dut = self.framer
        m.submodules.packets = packets = Packets(self.configuration)
        taken = dut.i_valid & dut.i_ready
        begins = taken & packets.first
        m.d.comb += [
            dut.i_valid.eq(self.valid),
            dut.i_beat.eq(self.beat),
            dut.room.eq(self.room),
            packets.valid.eq(taken),
            packets.beat.eq(self.beat),
        ]
        seen = self.beat.settings.n, self.beat.id, self.beat.token, packets.null
        entry = data.StructLayout(
            {name: len(v) for name, v in zip(("n", "id", "token", "null"), seen, strict=True)}
        )
        m.submodules.watch = watch = Watch(entry.size, self.PACKETS)
        m.d.comb += [
            watch.enters.eq(begins),
            watch.entry.eq(Cat(*seen)),
            watch.mark.eq(self.mark),
            watch.leaves.eq(dut.end_valid),
        ]
        return m
