# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The framer: turns packets, whatever they are, into rows of exactly ⌈N/p_n⌉ beats, and feeds the statistics unit.

`docs/numerics.md`, section 9, says what is wrong with which packet.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import layout
from ..config import Configuration
from ..flags import COMMON_BITS, PACKET_FAULTS, RowFlag
from ..formats import FP16, FP32
from ..latency import buffer_depth, feeds_wait
from ..layout import stored_bits
from ..numerics import Numerics, clog2
from .arithmetic import above, choose, choose_any, named
from .buffers import Queue
from .int8 import FP32_ONE, INT8_NUMBER, formats_work
from .pipe import struct
from .predictor import prediction_works


def row_settings(configuration: Configuration) -> data.StructLayout:
    return struct(layout.row_settings(configuration))


def beat_layout(configuration: Configuration) -> data.StructLayout:
    """A beat of the input stream with the settings that were sampled beside it. `mixed` (builds with a narrow bus): a part of it has
    another TID than the row's first."""
    what, p_n = configuration.what, configuration.how.p_n
    members: dict[str, Any] = {
        "data": what.element.width * p_n,
        "keep": what.element.width // 8 * p_n,
        "last": 1,
        "id": what.id_bits,
        "token": what.token_bits,
        "settings": row_settings(configuration),
    }
    if configuration.how.bus_bytes is not None:
        members["mixed"] = 1
    if what.int8:
        members["x_scale"] = FP32.width
    return data.StructLayout(members)


def eps_works(eps: Value) -> Value:
    """An FP32 number that is finite and not negative (-0 is 0)."""
    return (~eps[31] | ~eps[:31].any()) & ~eps[FP32.fraction_bits : 31].all()


def last_sample(m: Module, settings: Value, bits: int) -> Signal:
    """Index of the last sample that settings ask for, however far; `bits` hold the longest row."""
    count, stride_log2 = (settings.n_sub - 1)[:bits], settings.stride_log2[:5]
    reach = Signal(bits + (1 << len(stride_log2)) - 1, name="reach")
    m.d.comb += reach.eq(count << stride_log2)
    return named(m, "last_sample", reach + settings.first[:bits])


class Framer(wiring.Component):
    """Frames rows. One beat a cycle, as long as there is room and the statistics unit keeps up.

    Latency: 2 cycles from a beat's arrival to `beat_valid`.

    Members
    -------
    i_valid, i_ready, i_beat : beats as they arrive (`beat_layout`)
    room : the row buffer and the queues have room for two more beats and rows
    beat_valid : a beat of a row, for one cycle; `beat_data` for the row buffer
    row_valid : with a row's first beat; `settings`, `id`, `token`, `null` are the row's
    end_valid : with a row's last beat; `faults` are those of the packet
    frames, framed, known : in builds with skipping: a row's first beat becomes framed in the next cycle; its settings; they aren't refused
    predicted, early : in the same cycle: its ISD is predicted; with row_valid: the row takes no statistics
    sum_valid, sum_first, sum_last, sum_data, sum_sampled : p_d elements a cycle for the statistics unit
    sum_fault : with `sum_last`: the row is all NaN
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.what, self.how = configuration.what, configuration.how
        self.numerics = Numerics(configuration)
        self.lane_bits = clog2(self.how.p_n)
        self.chunk_bits = clog2(self.how.p_n // self.how.p_d)
        skipping = {"frames": Out(1), "framed": Out(row_settings(configuration)), "known": Out(1)}
        skipping |= {"predicted": In(1), "early": Out(1)}
        super().__init__(
            (skipping if self.what.skipping else {})
            | {
                "i_valid": In(1),
                "i_ready": Out(1),
                "i_beat": In(beat_layout(configuration)),
                "room": In(1),
                "beat_valid": Out(1),
                "beat_data": Out(stored_bits(self.what) * self.how.p_n),
                "row_valid": Out(1),
                "settings": Out(row_settings(configuration)),
                "id": Out(self.what.id_bits),
                "token": Out(self.what.token_bits),
                "null": Out(1),
                "end_valid": Out(1),
                "faults": Out(COMMON_BITS),
                "sum_valid": Out(1),
                "sum_first": Out(1),
                "sum_last": Out(1),
                "sum_data": Out(self.what.element.width * self.how.p_d),
                "sum_sampled": Out(self.how.p_d),
                "sum_fault": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._inspect(m)
        self._frame(m)
        self._feed(m)
        return m

    def _inspect(self, m: Module) -> None:
        """First stage: what can be said of a beat by itself, and of its settings if it is a row's first."""
        p_n = self.how.p_n
        beat = Signal(beat_layout(self.configuration), name="arrived")
        m.d.comb += beat.eq(self.i_beat)
        if self.what.int8:
            # The row's scale, whoever gives it; FP16 numbers have none.
            own = Mux(
                self.i_beat.settings.x_scale == 0, self.i_beat.x_scale, self.i_beat.settings.x_scale
            )
            if self.what.mixed:
                int8 = self.i_beat.settings.input_format == INT8_NUMBER
                own = Mux(int8, own, FP32_ONE)
            m.d.comb += beat.settings.x_scale.eq(own)
        self.seen = Signal(beat_layout(self.configuration), reset_less=True)
        self.seen_valid, self.take = Signal(), Signal()
        self.known_settings = Signal(reset_less=True)
        self.full, self.ragged = Signal(reset_less=True), Signal(reset_less=True)
        moves = ~self.seen_valid | self.take
        m.d.comb += self.i_ready.eq(moves)
        whole, touched = Signal(p_n, name="arrived_whole"), Signal(p_n, name="arrived_touched")
        octets = self.what.element.width // 8
        kept = self._by_element(named(m, "arrived_keep", beat.keep), octets)
        m.d.comb += whole.eq(Cat(pair.all() for pair in kept))
        m.d.comb += touched.eq(Cat(pair.any() for pair in kept))
        split = (whole ^ touched).any()
        holes = (touched[1:] & ~touched[:-1]).any() if p_n > 1 else Const(0, 1)
        with m.If(moves):
            m.d.sync += [
                self.seen_valid.eq(self.i_valid),
                self.seen.eq(beat),
                self.known_settings.eq(self._settings_work(m, beat.settings)),
                self.full.eq(beat.keep.all()),
                self.ragged.eq(split | holes),
            ]
            if self.what.subsampling:
                self.last_sample = Signal(self.numerics.n_bits, reset_less=True)
                m.d.sync += self.last_sample.eq(self._last_sample)

    def _settings_work(self, m: Module, settings: Value) -> Value:
        works = settings.valid & (settings.n != 0) & ~above(settings.n, self.what.max_n)
        works &= eps_works(settings.eps)
        if self.what.subsampling:
            last = last_sample(m, settings, self.numerics.n_bits)
            self._last_sample = last[: self.numerics.n_bits]
            works &= (settings.n_sub != 0) & (last < settings.n)
        if self.what.skipping:
            works &= prediction_works(settings)
        if self.what.int8:
            works &= formats_work(settings, self.what)
        return works

    def _frame(self, m: Module) -> None:
        """Second stage: one beat of a row, cut to the row's length."""
        p_n, bits = self.how.p_n, self.numerics.n_bits
        seen = self.seen
        inside, padding, swallowing = Signal(), Signal(), Signal()
        left = Signal(bits, reset_less=True)
        row_id = Signal(self.what.id_bits, reset_less=True)
        faults = Signal(COMMON_BITS, reset_less=True)
        first = ~inside & ~padding
        remaining = named(m, "remaining", Mux(first, seen.settings.n, left))
        null = first & ~self.known_settings
        end = ~above(remaining, p_n) | null
        whole, touched, wanted = (Signal(p_n, name=n) for n in ("whole", "touched", "wanted"))
        octets = self.what.element.width // 8
        kept = self._by_element(named(m, "seen_keep", seen.keep), octets)
        m.d.comb += [
            whole.eq(Cat(pair.all() & ~padding for pair in kept)),
            touched.eq(Cat(pair.any() for pair in kept)),
            wanted.eq(Cat(above(remaining, i) for i in range(p_n))),
        ]
        missing, extra = (wanted & ~whole).any(), (touched & ~wanted).any() & ~padding
        last = seen.last | padding
        other_id = ~first & (seen.id != row_id)
        if self.how.bus_bytes is not None:
            other_id = other_id | seen.mixed
        known = {
            RowFlag.SHORT: last & (~end | missing),
            RowFlag.LONG: end & (~last | extra),
            RowFlag.KEEP: ~padding & Mux(seen.last, self.ragged, ~self.full),
            RowFlag.ID: ~padding & other_id,
        }
        found = Signal(COMMON_BITS, name="found")
        with m.If(null):
            m.d.comb += found.eq(RowFlag.SETTINGS.value)
        with m.Else():
            m.d.comb += found.eq(Cat(*[known.get(flag, Const(0, 1)) for flag in RowFlag]))
        sofar = Signal(COMMON_BITS, name="sofar")
        m.d.comb += sofar.eq(Mux(first, 0, faults) | found)

        emits = Signal()
        offered = (self.seen_valid | padding) & ~swallowing
        feeds, follow, feed = self._plan(remaining, first, null, end)
        if self.what.skipping:
            feeds = feeds & ~self._early(m, emits, first)
        feed |= {
            "present": whole & wanted,
            "data": seen.data,
            "fault": (sofar & PACKET_FAULTS.value).any(),
        }
        fits = self._enter(m, emits, feeds, feed)
        m.d.comb += emits.eq(offered & self.room & fits)
        m.d.comb += self.take.eq(Mux(swallowing, 1, emits & ~padding))
        with m.If(emits):
            m.d.sync += [
                *follow,
                left.eq(remaining - p_n),
                faults.eq(sofar),
                inside.eq(~end & ~last),
                padding.eq(~end & last),
                swallowing.eq(end & ~last),
            ]
            with m.If(first):
                m.d.sync += row_id.eq(seen.id)
        with m.If(swallowing & self.seen_valid & seen.last):
            m.d.sync += swallowing.eq(0)
        self._latch(m, emits, first, null, end, sofar, whole)

    def _early(self, m: Module, emits: Signal, first: Value) -> Signal:
        """Whether the row takes no statistics: a predicted RMSNorm row."""
        settings = self.seen.settings
        rmsnorm = (
            settings.rmsnorm if self.what.layernorm and self.what.rmsnorm else self.what.rmsnorm
        )
        early, row_early = Signal(name="now_early"), Signal(reset_less=True)
        m.d.comb += [
            early.eq(Mux(first, self.predicted & rmsnorm, row_early)),
            self.frames.eq(emits & first),
            self.framed.eq(settings),
            self.known.eq(self.known_settings),
            self.early.eq(row_early),
        ]
        with m.If(emits):
            m.d.sync += row_early.eq(early)
        return early

    def _by_element(self, value: Value, width: int) -> list[Value]:
        """The bits of each element."""
        return [value[width * i : width * (i + 1)] for i in range(self.how.p_n)]

    def _latch(
        self,
        m: Module,
        emits: Signal,
        first: Value,
        null: Value,
        end: Value,
        faults: Signal,
        whole: Value,
    ) -> None:
        """Registers of the framed beat."""
        seen, p_n = self.seen, self.how.p_n
        self.fresh = Signal()
        self.row_end, self.row_start = Signal(reset_less=True), Signal(reset_less=True)
        self.beat_faults = Signal(COMMON_BITS, reset_less=True)
        self.beat = Signal(stored_bits(self.what) * p_n, reset_less=True)
        self.row_null = Signal(reset_less=True)
        settings = Signal(row_settings(self.configuration), reset_less=True)
        row_id = Signal(self.what.id_bits, reset_less=True)
        token = Signal(self.what.token_bits, reset_less=True)
        m.d.sync += self.fresh.eq(emits)
        with m.If(emits):
            m.d.sync += [
                self.row_start.eq(first),
                self.row_end.eq(end),
                self.row_null.eq(null),
                self.beat_faults.eq(faults),
                self.beat.eq(self._marked(m, seen.data, whole)),
            ]
            with m.If(first):
                m.d.sync += [settings.eq(seen.settings), row_id.eq(seen.id), token.eq(seen.token)]
        m.d.comb += [
            self.beat_valid.eq(self.fresh & ~self.row_null),
            self.beat_data.eq(self.beat),
            self.row_valid.eq(self.fresh & self.row_start),
            self.settings.eq(settings),
            self.id.eq(row_id),
            self.token.eq(token),
            self.null.eq(self.row_null),
            self.end_valid.eq(self.fresh & self.row_end),
            self.faults.eq(self.beat_faults),
        ]

    def _marked(self, m: Module, data: Value, whole: Value) -> Value:
        """Where a row's result may start before its end, missing elements are stored as NaN, or, in INT8, with their mark."""
        if not self.what.starts_early:
            return data
        elements = self._by_element(named(m, "seen_data", data), self.what.element.width)
        if self.what.integer:
            return Cat(Cat(each, ~there) for each, there in zip(elements, whole, strict=True))
        quiet = FP16.quiet_nan
        return Cat(each | Mux(there, 0, quiet) for each, there in zip(elements, whole, strict=True))

    def _plan(
        self, remaining: Value, first: Value, null: Value, end: Value
    ) -> tuple[Value, list[Any], dict[str, Value]]:
        """(the beat is fed; registers to set with each beat; what is known of a beat that is fed, by the names in `haan.layout.feed_beat`).

        p_d elements a cycle are fed, only where samples are. With a stride of up to p_n/p_d the elements of one cycle are as far
        apart, so that no cycle is spent on what isn't sampled.
        """
        follow: list[Any] = []
        feed: dict[str, Value] = {}
        if self.what.subsampling:
            low, high, sampled, holds_first, holds_last, follow, feed = self._plan_samples(
                remaining, first
            )
        else:
            low, high = Const(0, self.lane_bits + 1), Mux(end, remaining - 1, self.how.p_n - 1)
            sampled, holds_first, holds_last = Const(1, 1), first, end
        feed |= {
            "chunk": self._chunk_of(low[: self.lane_bits]),
            "chunk_end": self._chunk_of(high[: self.lane_bits]),
            "holds_first": holds_first,
            "holds_last": holds_last,
        }
        return sampled & ~null, follow, feed

    def _enter(self, m: Module, emits: Value, feeds: Value, values: dict[str, Value]) -> Value:
        """A framed beat into the registers of the one being fed. Returns whether it can be taken.

        Where samples are fewer than elements and are fed more slowly than beats arrive, beats with samples wait in a queue, so that
        those behind them without any keep coming. What waits is in the row buffer too, so that the queue never is full.
        """
        fields = struct(layout.feed_beat(self.configuration))
        entry = Signal(fields)
        self.fed = Signal(fields, reset_less=True)
        self.chunk = Signal(len(self.fed.chunk), reset_less=True)
        self.feeding, self.feed_begins, self.feed_done, self.held = (Signal() for _ in range(4))
        m.d.comb += [entry[name].eq(value) for name, value in values.items()]
        begins = Signal()
        coming = entry
        fits, updates = self.feed_done, emits
        if feeds_wait(self.configuration):
            m.submodules.waiting = queue = Queue(fields.size, buffer_depth(self.configuration))
            m.d.comb += [
                queue.w_valid.eq(emits & feeds),
                queue.w_data.eq(entry.as_value()),
                queue.r_ready.eq(self.feed_done),
                begins.eq(queue.r_valid & self.feed_done),
            ]
            coming = data.View(fields, queue.r_data)
            fits, updates = Const(1, 1), begins
        else:
            m.d.comb += begins.eq(emits & feeds)
        m.d.sync += self.feed_begins.eq(begins | (self.feed_begins & self.held))
        with m.If(self.feed_done):
            m.d.sync += self.feeding.eq(begins)
        with m.Else():
            m.d.sync += self.chunk.eq(self.chunk + ~self.held)
        with m.If(updates):
            m.d.sync += [self.fed.eq(coming), self.chunk.eq(coming.chunk)]
        return fits

    def _chunk_of(self, offset: Value) -> Value:
        """Cycle, within a beat, in which the element at an offset is fed."""
        place = Cat(offset[clog2(self.how.p_d) :], Const(0, 1))
        return place >> self._apart(self.now_stride) if self.what.subsampling else place

    def _plan_samples(
        self, remaining: Value, first: Value
    ) -> tuple[Value, Value, Value, Value, Value, list[Any], dict[str, Value]]:
        """Offsets of the first and the last sample in a beat, whether there is any, the row's first and its last, registers to set
        with each beat, and what is known of one that has samples."""
        bits, p_n = self.numerics.n_bits, self.how.p_n
        settings = self.seen.settings
        start, stop, position = (Signal(bits, reset_less=True) for _ in range(3))
        begun, passed, complete = (Signal(reset_less=True) for _ in range(3))
        row_first, row_stride = Signal(bits, reset_less=True), Signal(5, reset_less=True)
        # Begin and end of the sampled range, counted from the beat's first element; `start` is 0 once the range has begun.
        begin, finish = Mux(first, settings.first, start), Mux(first, self.last_sample, stop)
        now_first = Mux(first, settings.first, row_first)
        self.now_stride = Mux(first, settings.stride_log2, row_stride)
        now_complete = Mux(first, settings.n_sub == remaining, complete)
        here = Mux(first, 0, position)
        over = ~first & passed
        steps = Cat(self.now_stride > i for i in range(bits))
        aligned = ~((here ^ now_first) & steps)[self.lane_bits :].any()
        sampled = (begin < p_n) & ~over & aligned
        last_here = finish < p_n
        low = begin[: self.lane_bits]
        high = Mux(last_here, finish, p_n - 1)[: self.lane_bits]
        follow = [
            start.eq(Mux(begin < p_n, 0, begin - p_n)),
            stop.eq(finish - p_n),
            begun.eq((~first & begun) | sampled),
            passed.eq(over | last_here),
            position.eq(here + p_n),
            row_first.eq(now_first),
            row_stride.eq(self.now_stride),
            complete.eq(now_complete),
        ]
        feed = {
            "low": low,
            "high": high,
            "first_sample": now_first,
            "stride": self.now_stride,
            "complete": now_complete,
        }
        return low, high, sampled, first | ~begun, last_here, follow, feed

    def _apart(self, stride: Value) -> Value:
        """log2 of the distance of elements that are fed together."""
        if self.chunk_bits == 0:
            return Const(0, 1)
        return Mux(stride > self.chunk_bits, self.chunk_bits, stride)[
            : self.chunk_bits.bit_length()
        ]

    def _feed(self, m: Module) -> None:
        """Third stage: the samples of a beat to the statistics unit, p_d elements a cycle."""
        p_n, fed = self.how.p_n, self.fed
        elements = self._by_element(named(m, "fed_data", fed.data), self.what.element.width)
        present = sampled = named(m, "fed_present", fed.present)
        starts = self.feed_begins & fed.holds_first
        ends = self.chunk == fed.chunk_end if self.chunk_bits else Const(1, 1)
        m.d.comb += self.sum_fault.eq(fed.fault)
        if self.what.subsampling:
            bits = self.lane_bits
            steps = named(m, "steps", Cat(fed.stride > i for i in range(bits)))
            low, high = named(m, "fed_low", fed.low), named(m, "fed_high", fed.high)
            phase = named(m, "phase", fed.first_sample[:bits] & steps)
            chosen, sampled = Signal(p_n, name="chosen"), Signal(p_n, name="sampled")
            m.d.comb += chosen.eq(
                Cat(
                    (low <= i) & (high >= i if i else Const(1, 1)) & ~(phase ^ (steps & i)).any()
                    for i in range(p_n)
                )
            )
            m.d.comb += sampled.eq(chosen & present)
            lost = (chosen & ~present).any()
            gap = Signal(reset_less=True)
            missing = (gap & ~starts) | (self.feed_begins & lost)
            m.d.sync += gap.eq(missing)
            m.d.comb += self.sum_fault.eq(missing | (fed.complete & fed.fault))
        self._space(m, fed.holds_last & ends)
        m.d.comb += [
            self.feed_done.eq(~self.feeding | (ends & ~self.held)),
            self.sum_data.eq(self._gather(elements)),
            self.sum_sampled.eq(self._gather(list(sampled))),
            self.sum_valid.eq(self.feeding & ~self.held),
            self.sum_first.eq(starts),
            self.sum_last.eq(fed.holds_last & ends),
        ]

    def _space(self, m: Module, completes: Value) -> None:
        """Sums of rows leave at least `isd_interval` cycles apart: what completes a row is held back until then."""
        interval = self.how.isd_interval
        if interval == 1:
            return
        wait = Signal(range(interval))
        m.d.comb += self.held.eq(self.feeding & completes & (wait != 0))
        with m.If(self.sum_valid & self.sum_last):
            m.d.sync += wait.eq(interval - 1)
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)

    def _gather(self, items: list[Value]) -> Value:
        """The p_d of p_n items that are fed in the current cycle."""
        p_d = self.how.p_d
        chunks = self.how.p_n // p_d
        if chunks == 1:
            return Cat(*items)
        orders = []
        for apart in range(self.chunk_bits + 1 if self.what.subsampling else 1):
            low_mask = (1 << apart) - 1
            groups = [
                Cat(
                    items[((c >> apart) * p_d + lane << apart) | (c & low_mask)]
                    for lane in range(p_d)
                )
                for c in range(chunks)
            ]
            high = self.chunk[: self.chunk_bits - apart]
            select = Cat(self.fed.first_sample[:apart], high) if apart else high
            orders.append(choose(select, groups))
        if not self.what.subsampling:
            return orders[0]
        return choose_any(self._apart(self.fed.stride), orders)
