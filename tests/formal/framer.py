# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Proofs of the framer: any sequence of packets, against the rules of `docs/numerics.md`, section 9, said once more."""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from haan.config import Configuration
from haan.flags import RowFlag
from haan.hdl.framer import Framer, beat_layout
from haan.numerics import Numerics, clog2

from .watch import Watch, before, claim, patient

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
        self.lane_bits = clog2(self.p_n)
        layout = beat_layout(configuration)
        super().__init__(
            {
                "valid": In(1),
                "beat": In(layout),
                "first": Out(1),
                "null": Out(1),
                "flags": Out(len(RowFlag)),
                "done": Out(1),
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
            self.done.eq(over | reaches | last | (self.first & self.null)),
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
        m.submodules.watch = watch = Watch(_entry(self.configuration).size, self.PACKETS)
        self.packets, self.watch = packets, watch
        beat = self.beat
        self.taken = taken = dut.i_valid & dut.i_ready
        m.d.comb += [
            dut.i_valid.eq(self.valid),
            dut.i_beat.eq(beat),
            dut.room.eq(self.room),
            packets.valid.eq(taken),
            packets.beat.eq(beat),
            watch.enters.eq(taken & packets.first),
            watch.entry.eq(Cat(beat.settings.n, beat.id, beat.token, packets.null)),
            watch.mark.eq(self.mark),
            watch.leaves.eq(dut.end_valid),
        ]
        self._check_row(m)
        self._check_beats(m)
        patient(m, dut.room & ~dut.i_ready, self.patience)
        return m

    def _check_row(self, m: Module) -> None:
        """Beginning, beats and end of a row."""
        dut, watch, packets = self.framer, self.watch, self.packets
        row = data.View(_entry(self.configuration), watch.item)
        some = dut.row_valid | dut.beat_valid | dut.end_valid
        opened, beats = Signal(), Signal(packets.count_bits)
        self.so_far = Mux(dut.row_valid, 0, beats)
        m.d.sync += [
            opened.eq((opened | dut.row_valid) & ~dut.end_valid),
            beats.eq(self.so_far + dut.beat_valid),
        ]
        claim(m, some, before(m, dut.room))
        claim(m, dut.row_valid, ~opened)
        claim(m, some, opened | dut.row_valid)
        same = (dut.settings.n == row.n) & (dut.id == row.id) & (dut.token == row.token)
        claim(m, watch.due & dut.row_valid, same & (dut.null == row.null))
        follows, complete, flags = Signal(), Signal(), Signal(len(RowFlag))
        self.follows = watch.chosen | (follows & ~packets.first)
        with m.If(self.taken & self.follows):
            m.d.sync += [complete.eq(packets.done), flags.eq(packets.flags)]
        with m.If(self.taken):
            m.d.sync += follows.eq(self.follows)
        wanted = Mux(row.null, 0, (row.n + self.configuration.how.p_n - 1) >> packets.lane_bits)
        ends = watch.due & dut.end_valid
        claim(m, ends, complete & (self.so_far + dut.beat_valid == wanted))
        claim(m, ends, dut.faults == Mux(row.null, RowFlag.SETTINGS.value, flags))
        patient(m, dut.room & watch.due & complete & ~dut.end_valid, self.patience)

    def _check_beats(self, m: Module) -> None:
        """Data of one beat of the row that is followed, chosen by the prover."""
        dut, p_n = self.framer, self.configuration.how.p_n
        kept, keep, place, known = Signal(16 * p_n), Signal(2 * p_n), Signal(8), Signal()
        index = Signal.like(place)
        with m.If(self.taken & self.follows):
            m.d.sync += index.eq(Mux(self.packets.first, 1, index + ~index.all()))
            with m.If(self.packets.first):
                m.d.sync += known.eq(0)
            with m.If(self.mark_beat & (self.packets.first | ~known)):
                m.d.sync += [
                    known.eq(1),
                    place.eq(Mux(self.packets.first, 0, index)),
                    kept.eq(self.beat.data),
                    keep.eq(self.beat.keep),
                ]
        due = self.watch.due & dut.beat_valid & known & (place == self.so_far)
        for i in range(p_n):
            element = slice(16 * i, 16 * i + 16)
            whole = keep[2 * i : 2 * i + 2].all()
            claim(m, due & whole, dut.beat_data[element] == kept[element])


class FramerTwins(wiring.Component):
    """`i_ready` is the same whatever comes in with it: it depends on what came before alone."""

    def __init__(self, make: Callable[[], Framer]) -> None:
        self.framers = make(), make()
        beat = In(beat_layout(self.framers[0].configuration))
        super().__init__({"valid": In(2), "one": beat, "other": beat, "room": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        one, other = m.submodules.one, m.submodules.other = self.framers
        alike = Signal(init=1)
        m.d.comb += [
            one.i_valid.eq(self.valid[0]),
            other.i_valid.eq(self.valid[1]),
            one.i_beat.eq(self.one),
            other.i_beat.eq(self.other),
            one.room.eq(self.room),
            other.room.eq(self.room),
        ]
        same = (self.valid[0] == self.valid[1]) & (self.one.as_value() == self.other.as_value())
        m.d.sync += alike.eq(alike & same)
        claim(m, alike, one.i_ready == other.i_ready)
        return m


def _entry(configuration: Configuration) -> data.StructLayout:
    """What is known of a packet from its first beat."""
    beat = beat_layout(configuration).members
    count = Numerics(configuration).n_bits
    return data.StructLayout({"n": count, "id": beat["id"], "token": beat["token"], "null": 1})


class FramerWithoutSettings(Framer):
    """Takes any settings for good ones."""

    def _settings_work(self, m: Module, settings: Value) -> Value:
        return super()._settings_work(m, settings) | 1


class FramerThatEndsEarly(Framer):
    """Ends a row with its TLAST."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        m.d.comb += self.end_valid.eq(self.row_valid)
        return m


class FramerWithoutRoom(Framer):
    """Doesn't look at `room`."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = Framer(self.configuration)
        wiring.connect(m, wiring.flipped(self), inner)
        m.d.comb += inner.room.eq(1)
        return m


class FramerThatWaits(Framer):
    """Takes a beat only when the next one is there."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(~self.i_valid):
            m.d.comb += self.i_ready.eq(0)
        return m
