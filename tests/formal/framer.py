# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Proofs of the framer: any sequence of packets, against the rules of `docs/numerics.md`, section 9, said once more."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from haan.config import Configuration
from haan.flags import RowFlag
from haan.hdl.framer import Framer, beat_layout
from haan.numerics import Numerics, clog2

from .watch import Twins, Watch, before, claim, patient

SMALL = Configuration().with_(
    p_n=2, p_d=1, max_n=6, layers=2, token_slots=2, norms=["rmsnorm"], affine="none"
)
EVEN = SMALL.with_(p_d=2)
SHORT = SMALL.with_(max_n=4)
SAMPLED, SAMPLED_EVEN = SMALL.with_(subsampling=True), EVEN.with_(subsampling=True)


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
        row_n, row_id, place = (
            Signal(self.count_bits),
            Signal.like(beat.id),
            Signal(self.count_bits),
        )
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
            last_sample = settings.first + (
                (settings.n_sub - 1).as_unsigned() << settings.stride_log2
            )
            works &= (settings.n_sub != 0) & (last_sample < settings.n)
        return ~works


class Followed(wiring.Component):
    """A framer with any input, and a packet that is followed, with one of its beats; both chosen by the prover."""

    def __init__(self, framer: Framer) -> None:
        self.framer = framer
        self.configuration = framer.configuration
        names = ("valid", "room", "mark", "mark_beat")
        beat = In(beat_layout(framer.configuration))
        super().__init__({name: In(1) for name in names} | {"beat": beat})

    @property
    def patience(self) -> int:
        """Cycles in which the longest row can be padded, and be fed after it is framed."""
        how = self.configuration.how
        return Numerics(self.configuration).row_beats * (how.p_n // how.p_d) + 1

    def follow(self, m: Module, capacity: int) -> None:
        """Places the parts. A packet is followed from its first beat until `watch.leaves`."""
        m.submodules.framer = dut = self.framer
        m.submodules.packets = self.packets = packets = Packets(self.configuration)
        m.submodules.watch = self.watch = watch = Watch(_entry(self.configuration).size, capacity)
        self.row = data.View(_entry(self.configuration), watch.item)
        beat = self.beat
        self.taken = dut.i_valid & dut.i_ready
        m.d.comb += [
            dut.i_valid.eq(self.valid),
            dut.i_beat.eq(beat),
            dut.room.eq(self.room),
            packets.valid.eq(self.taken),
            packets.beat.eq(beat),
            watch.entry.eq(Cat(beat.settings.n, beat.id, beat.token, packets.null)),
            watch.mark.eq(self.mark),
        ]
        follows = Signal()
        self.complete, self.flags = Signal(), Signal(len(RowFlag))
        self.follows = watch.chosen | (follows & ~packets.first)
        with m.If(self.taken):
            m.d.sync += follows.eq(self.follows)
        with m.If(self.taken & self.follows):
            m.d.sync += [self.complete.eq(packets.done), self.flags.eq(packets.flags)]
        self._keep_beat(m)

    def _keep_beat(self, m: Module) -> None:
        """One beat of the packet: `known`, its place in the packet, its data and TKEEP."""
        p_n = self.configuration.how.p_n
        self.known, self.data, self.keep = Signal(), Signal(16 * p_n), Signal(2 * p_n)
        self.place, index = Signal(self.packets.count_bits), Signal(self.packets.count_bits)
        first = self.packets.first
        with m.If(self.taken & self.follows):
            m.d.sync += index.eq(Mux(first, 1, index + ~index.all()))
            with m.If(first):
                m.d.sync += self.known.eq(0)
            with m.If(self.mark_beat & (first | ~self.known)):
                m.d.sync += [
                    self.known.eq(1),
                    self.place.eq(Mux(first, 0, index)),
                    self.data.eq(self.beat.data),
                    self.keep.eq(self.beat.keep),
                ]

    def whole(self, element: int) -> Value:
        """An element of the kept beat is present."""
        return self.keep[2 * element : 2 * element + 2].all()

    def value(self, element: int) -> Value:
        """An element of the kept beat."""
        return self.data[16 * element : 16 * element + 16]


class FramerProof(Followed):
    """For every sequence of packets, of any length, TKEEP, TID and settings, and any `room`: one `row_valid` and one `end_valid` a
    packet, in order, with its own N, TID, token and `null`; between them ⌈N/p_n⌉ `beat_valid`, none for a null row, with the packet's
    data in order; `faults` as the rules say; all this only in the cycle after `room`. While there is room, the next beat is
    taken, and a row whose last beat or TLAST has come ends, within a bound."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # One that is being framed, and one that waits.
        self.follow(m, 2)
        dut = self.framer
        m.d.comb += [
            self.watch.enters.eq(self.taken & self.packets.first),
            self.watch.leaves.eq(dut.end_valid),
        ]
        self._check_row(m)
        self._check_end(m)
        patient(m, dut.room & ~dut.i_ready, self.patience)
        return m

    def _check_row(self, m: Module) -> None:
        """A row's beginning, and its beats."""
        dut, row, due = self.framer, self.row, self.watch.due
        some = dut.row_valid | dut.beat_valid | dut.end_valid
        opened, beats = Signal(), Signal(self.packets.count_bits)
        self.beats = Mux(dut.row_valid, 0, beats)
        m.d.sync += [
            opened.eq((opened | dut.row_valid) & ~dut.end_valid),
            beats.eq(self.beats + dut.beat_valid),
        ]
        claim(m, some, before(m, dut.room))
        claim(m, dut.row_valid, ~opened)
        claim(m, some, opened | dut.row_valid)
        same = (dut.settings.n == row.n) & (dut.id == row.id) & (dut.token == row.token)
        claim(m, due & dut.row_valid, same & (dut.null == row.null))
        kept = due & dut.beat_valid & self.known & (self.place == self.beats)
        for i in range(self.configuration.how.p_n):
            element = dut.beat_data[16 * i : 16 * i + 16]
            claim(m, kept & self.whole(i), element == self.value(i))

    def _check_end(self, m: Module) -> None:
        """A row's end."""
        dut, row, due = self.framer, self.row, self.watch.due
        lanes = self.configuration.how.p_n
        wanted = Mux(row.null, 0, (row.n + lanes - 1) >> clog2(lanes))
        ends = due & dut.end_valid
        claim(m, ends, self.complete & (self.beats + dut.beat_valid == wanted))
        claim(m, ends, dut.faults == Mux(row.null, RowFlag.SETTINGS.value, self.flags))
        patient(m, dut.room & due & self.complete & ~dut.end_valid, self.patience)


class FeedProof(Followed):
    """For every sequence of packets and any `room`: each row that isn't null is fed to the statistics unit, in order, from one
    `sum_first` to one `sum_last`; without subsampling in ⌈N/p_d⌉ cycles, each element once, in its place, and sampled if it is
    present."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Besides the two of the framer, one that is being fed, and one that was a cycle ago.
        self.follow(m, 4)
        dut, row = self.framer, self.row
        what, how = self.configuration.what, self.configuration.how
        valid, first, last = (before(m, v) for v in (dut.sum_valid, dut.sum_first, dut.sum_last))
        opened, cycles = Signal(), Signal(self.packets.count_bits)
        so_far = Mux(first, 0, cycles)
        m.d.comb += [
            self.watch.enters.eq(self.taken & self.packets.first & ~self.packets.null),
            self.watch.leaves.eq(valid & last),
        ]
        with m.If(valid):
            m.d.sync += [opened.eq(~last), cycles.eq(so_far + 1)]
        claim(m, valid, opened ^ first)
        claim(m, valid, self.watch.inside != 0)
        due = self.watch.due & valid
        if what.subsampling:
            return m
        claim(m, due & last, so_far == (row.n - 1) >> clog2(how.p_d))
        values, sampled = before(m, dut.sum_data), before(m, dut.sum_sampled)
        for i in range(how.p_n):
            cycle, lane = divmod(i, how.p_d)
            now = due & self.known & (so_far == self.place * (how.p_n // how.p_d) + cycle)
            inside = self.place * how.p_n + i < row.n
            claim(m, now, sampled[lane] == (self.whole(i) & inside))
            claim(m, now & inside, values[16 * lane : 16 * lane + 16] == self.value(i))
        return m


class FramerTwins(Twins):
    """`i_ready` depends on earlier cycles and on `room`, not on what comes in beside it."""

    outputs = ("i_ready",)
    shared = ("room",)


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


class FramerThatSkips(Framer):
    """Doesn't feed a row that follows another one at once."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(before(m, self.sum_last & self.sum_valid)):
            m.d.comb += self.sum_valid.eq(0)
        return m
