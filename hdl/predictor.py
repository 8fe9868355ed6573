# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The ISD predictor: keeps the ISDs of anchor layers by token slot, and gives rows of skipped layers theirs from it."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .. import layout
from ..config import Configuration
from ..formats import FP32
from ..latency import CHOICE_LATENCY, isd_entries, prediction_delay, row_depth
from ..layout import row_number_bits
from ..numerics import (
    EXPONENT_BITS,
    ISD_BITS,
    KEPT_EXPONENT_BITS,
    PREDICTED_EXPONENT_BITS,
    VARIANCE_BITS,
    clog2,
)
from .arithmetic import named, product
from .buffers import Queue, ResultStore
from .int8 import INT8_NUMBER, round_scaled
from .pipe import Pipe, signed_shape, struct
from .statistics_stream import isd_number

SMALLEST_RATIO, LARGEST_RATIO = 111 << 23, 143 << 23
FP32_INFINITY = 255 << 23
_WAITING_ROWS = 4
"""Rows between their acceptance and their framing, at most, and one."""


def prediction_works(settings: Value) -> Value:
    """Whether the settings of a row are such that a skipped one can be predicted: section 11 of `docs/numerics.md`."""
    ratio = settings.ratio
    able = (ratio >= SMALLEST_RATIO) & (ratio <= LARGEST_RATIO)
    for guard in (settings.guard_low, settings.guard_high):
        able &= guard <= FP32_INFINITY
    return ~settings.skip | (able & ~settings.keep_isd)


def kept_layout(configuration: Configuration) -> data.StructLayout:
    return struct(layout.kept_isd(configuration))


def choice_layout() -> data.StructLayout:
    return struct(layout.CHOICE)


PREDICTION_LAYOUT = struct(layout.PREDICTION)


class IsdPredictor(wiring.Component):
    """Numerics: `docs/numerics.md`, section 11. Cycles: `docs/timing.md`, section Skipping.

    A row's anchor is looked up when its first beat is accepted. If no row before it still may change what was found, the choice falls when
    it is framed; else when its own ISD is there, which is then computed for nothing.

    Members
    -------
    accepts, accepted_token, accepted_anchor, accepted_keeps, accepted_skips : a row's first beat is accepted
    frames, framed, known : it is framed, two cycles later or more; its settings; they are not refused
    now, waits : in the same cycle: its choice (0 where it isn't settled), and whether it has to wait for one
    row_valid, row, row_id, row_token : a cycle later: it isn't refused nor early; its settings. refused : it is refused
    isd_valid, isd, exponent, void : the ISD of such rows, in order
    choice_valid, choice, choice_ready : the choices of rows that waited, in order
    prediction_row, prediction : the store of predictions, by number: of all rows that waited or are predicted
    clear : forget all; clearing : that goes on, and no row may come
    number_row, number : the predictions in FP32, likewise (builds with statistics_stream)
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.what = what = configuration.what
        self.depth = row_depth(configuration)
        settings = struct(layout.row_settings(configuration))
        super().__init__(
            {
                "accepts": In(1),
                "accepted_token": In(what.token_bits),
                "accepted_anchor": In(what.id_bits),
                "accepted_keeps": In(1),
                "accepted_skips": In(1),
                "frames": In(1),
                "framed": In(settings),
                "known": In(1),
                "now": Out(choice_layout()),
                "waits": Out(1),
                "row_valid": In(1),
                "refused": In(1),
                "row": In(settings),
                "row_id": In(what.id_bits),
                "row_token": In(what.token_bits),
                "isd_valid": In(1),
                "isd": In(ISD_BITS),
                "exponent": In(signed_shape(EXPONENT_BITS)),
                "void": In(1),
                "choice_valid": Out(1),
                "choice": Out(choice_layout()),
                "choice_ready": In(1),
                "prediction_row": In(range(2 * self.depth)),
                "prediction": Out(PREDICTION_LAYOUT),
                "clear": In(1),
                "clearing": Out(1),
                "number_row": In(range(2 * self.depth)),
                "number": Out(FP32.width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        what, kept = self.what, kept_layout(self.configuration)
        m.submodules.memory = memory = Memory(shape=kept, depth=isd_entries(what), init=[])
        self.write, self.read = memory.write_port(), memory.read_port()
        self._look_up(m, kept)
        late, late_entry, late_settings = self._resolve(m, kept)
        late_choice = decide(m, "late", late_entry, late_settings)
        entry, choice = Signal(kept, name="used_entry"), Signal(choice_layout(), name="used_choice")
        row = Signal(struct(layout.marked(self.configuration)), name="used_settings")
        settled = self.frames & self.now.predicted
        m.d.comb += [
            entry.eq(Mux(late, late_entry, self.head)),
            choice.eq(Mux(late, late_choice, self.now)),
            *[
                row[name].eq(Mux(late, late_settings[name], self.framed[name]))
                for name in row.shape().members
            ],
        ]
        ratio = Mux(choice.guard, FP32.bias << FP32.fraction_bits, row.ratio)
        self._predict(m, late | settled, entry, ratio, row)

        m.submodules.choices = choices = Queue(choice_layout().size, self.depth, late=True)
        delay = prediction_delay(self.configuration)
        # Rows that start at once need no choice to be told, unless their prediction would come too late.
        p = Pipe(
            m, frozenset({"decide", "delay"}), valid=late | (settled if delay else Const(0, 1))
        )
        decision = p.let("decision", choice.as_value())
        p.cut("decide")
        for _ in range(delay):
            p.cut("delay")
        m.d.comb += [
            choices.w_valid.eq(p.valid()),
            choices.w_data.eq(p(decision)),
            self.choice_valid.eq(choices.r_valid),
            self.choice.eq(data.View(choice_layout(), choices.r_data)),
            choices.r_ready.eq(self.choice_ready),
        ]
        return m

    def _place(self, token: Value, layer: Value) -> Value:
        """Where the ISD of a layer stands."""
        return Cat(token, layer[: clog2(self.what.anchors)])

    def _look_up(self, m: Module, kept: data.StructLayout) -> None:
        """What the memory has for a row that comes in, and whether that can still change."""
        settled, pends = Signal(), Signal()
        self.pending = Signal(row_number_bits(self.configuration))
        m.d.comb += [
            settled.eq((self.pending == 0) & self.accepted_skips),
            pends.eq(self.accepted_keeps | (self.accepted_skips & ~settled)),
        ]
        # What was found waits with the row, which is framed two cycles after it was accepted, or later.
        found = data.StructLayout({"entry": kept, "settled": 1, "pends": 1})
        m.submodules.found = waiting = Memory(shape=found, depth=_WAITING_ROWS, init=[])
        write, read = waiting.write_port(), waiting.read_port(domain="comb")
        arrives, was_settled, did_pend = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        m.d.sync += [
            arrives.eq(self.accepts),
            was_settled.eq(settled),
            did_pend.eq(pends),
            write.addr.eq(write.addr + write.en),
        ]
        head_row = Signal(range(_WAITING_ROWS))
        m.d.comb += [
            write.en.eq(arrives),
            write.data.entry.eq(self.read.data),
            write.data.settled.eq(was_settled),
            write.data.pends.eq(did_pend),
            read.addr.eq(head_row),
        ]
        with m.If(self.frames):
            m.d.sync += head_row.eq(head_row + 1)
        self.head, self.settled_now = read.data.entry, read.data.settled
        choice = decide(m, "now", self.head, self.framed)
        skips = self.framed.skip & self.known
        settled = skips & self.settled_now
        m.d.comb += [
            self.now.eq(choice.as_value() & settled.replicate(len(choice.as_value()))),
            self.waits.eq(skips & ~self.settled_now),
        ]
        pended, waited = Signal(reset_less=True), Signal(reset_less=True)
        with m.If(self.frames):
            m.d.sync += [pended.eq(read.data.pends), waited.eq(self.waits)]
        self.row_waits = waited
        self.drops = self.refused & pended
        self.comes = self.accepts & pends

    def _resolve(self, m: Module, kept: data.StructLayout) -> tuple[Signal, Value, Value]:
        """Keeps ISDs, and looks up the anchors of rows that waited: (one is there, its entry, its settings)."""
        marks = struct(layout.mark(self.configuration))
        m.submodules.marks = queue = Queue(marks.size, self.depth)
        entry, mark = Signal(marks), data.View(marks, queue.r_data)
        m.d.comb += [
            *[entry[name].eq(self.row[name]) for name in layout.marked(self.configuration)],
            entry.waits.eq(self.row_waits),
            entry.keeps.eq(self.row.keep_isd),
            entry.id.eq(self.row_id),
            entry.token.eq(self.row_token),
            queue.w_valid.eq(self.row_valid),
            queue.w_data.eq(entry.as_value()),
            queue.r_ready.eq(self.isd_valid),
        ]
        ends = self.isd_valid & (mark.keeps | mark.waits)
        step = Signal(signed_shape(3))
        m.d.comb += step.eq(self.comes - ends - self.drops)
        m.d.sync += self.pending.eq(self.pending + step)

        sweep = Signal(range(isd_entries(self.what)))
        clearing = Signal(init=1)
        with m.If(self.clear):
            m.d.sync += [clearing.eq(1), sweep.eq(0)]
        with m.Elif(clearing):
            m.d.sync += [sweep.eq(sweep + 1), clearing.eq(sweep != isd_entries(self.what) - 1)]
        sign = self.exponent[-1].replicate(EXPONENT_BITS - KEPT_EXPONENT_BITS + 1)
        fits = ~(self.exponent[KEPT_EXPONENT_BITS - 1 :] ^ sign).any()
        looks = self.isd_valid & mark.waits
        m.d.comb += [
            self.clearing.eq(clearing),
            self.write.en.eq(clearing | (self.isd_valid & mark.keeps)),
            self.write.addr.eq(Mux(clearing, sweep, self._place(mark.token, mark.id))),
            self.write.data.valid.eq(~clearing & ~self.void & fits),
            self.write.data.layer.eq(mark.id),
            self.write.data.fraction.eq(self.isd[: ISD_BITS - 1]),
            self.write.data.exponent.eq(self.exponent[:KEPT_EXPONENT_BITS]),
            self.read.en.eq(1),
            # Rows that are accepted while one waits aren't settled, whatever they find.
            self.read.addr.eq(
                Mux(
                    looks,
                    self._place(mark.token, mark.anchor),
                    self._place(self.accepted_token, self.accepted_anchor),
                )
            ),
        ]
        late, found = looks, Signal(kept, name="found_late", reset_less=True)
        settings: Any = mark
        for stage in range(CHOICE_LATENCY - 1):
            valid = Signal(name=f"late_{stage}")
            later = Signal(marks, name=f"mark_{stage}", reset_less=True)
            m.d.sync += [valid.eq(late), later.eq(settings)]
            late, settings = valid, later
        m.d.sync += found.eq(self.read.data)
        return late, found, settings

    def _predict(self, m: Module, starts: Value, entry: Value, ratio: Value, row: Value) -> None:
        """The product of ISD and ratio, and that with the scale of an INT8 row, into the store."""
        cuts = self.configuration.how.cuts | {"choose", "ratio", "round_prediction"}
        p = Pipe(m, cuts, valid=starts)
        isd = p.let("anchor_isd", Cat(entry.fraction, Const(1, 1)))
        significand = p.let("ratio_significand", Cat(ratio[:23], Const(1, 1)))
        power = entry.exponent + (ratio[23:31] - FP32.bias)
        exponent = p.let("prediction_exponent", power[:PREDICTED_EXPONENT_BITS].as_signed())
        if self.what.int8:
            scale = p.let("scale_significand", Cat(row.x_scale[:23], Const(1, 1)))
            scale_power = p.let("scale_power", row.x_scale[23:31] - FP32.bias)
            int8 = p.let("is_int8", row.input_format == INT8_NUMBER)
            no_scale = p.let("no_scale", ~row.x_scale.any())
        p.cut("choose")
        low = p.let("ratio_low", p(isd) * p(significand)[:12])
        high = p.let("ratio_high", p(isd) * p(significand)[12:])
        p.cut("ratio")
        total = named(m, "ratio_total", p(low) + (p(high) << 12))[: ISD_BITS + 24]
        top = total[-1]
        rounded = Signal(ISD_BITS + 1, name="prediction_rounded")
        m.d.comb += rounded.eq(Mux(top, total[24:], total[23:]) + Mux(top, total[23], total[22]))
        significand = p.let("predicted", Cat(rounded[: ISD_BITS - 1], Const(1, 1)))
        exponent = p.let("predicted_exponent", p(exponent) + (top + rounded[-1]))
        p.cut("round_prediction")
        if self.what.statistics_stream:
            m.submodules.numbers = numbers = ResultStore(FP32.width, 2 * self.depth)
            m.d.comb += [
                numbers.w_valid.eq(p.valid()),
                numbers.w_data.eq(isd_number(p(significand), p(exponent))),
                numbers.r_row.eq(self.number_row),
                self.number.eq(numbers.r_data),
            ]
        if self.what.int8:
            wide = p.let("wide", Cat(Const(0, VARIANCE_BITS - ISD_BITS), p(significand)))
            scaled = product(p, "scaled_prediction", wide, scale)
            value, power, none = round_scaled(
                m, "scaled", p(scaled), p(exponent) + p(scale_power), p(int8)
            )
            keeps = (~(none | p(no_scale))).replicate(ISD_BITS)
            significand, exponent = p.let("scale", value & keeps), p.let("power", power)
            p.cut("scale_isd")
        entry = Signal(PREDICTION_LAYOUT, name="stored_prediction")
        m.submodules.predictions = store = ResultStore(PREDICTION_LAYOUT.size, 2 * self.depth)
        m.d.comb += [
            entry.isd.eq(p(significand)),
            entry.exponent.eq(p(exponent)),
            store.w_valid.eq(p.valid()),
            store.w_data.eq(entry.as_value()),
            store.r_row.eq(self.prediction_row),
            self.prediction.eq(data.View(PREDICTION_LAYOUT, store.r_data)),
        ]


def decide(m: Module, name: str, entry: Value, settings: Value) -> Value:
    """The choice for a skipped row."""
    choice = Signal(choice_layout(), name=f"{name}_choice")
    known, inside = Signal(name=f"{name}_known"), Signal(name=f"{name}_inside")
    bits = Cat(Const(0, 23 - ISD_BITS + 1), entry.fraction, (entry.exponent + FP32.bias)[:8])
    m.d.comb += [
        known.eq(entry.valid & (entry.layer == settings.anchor)),
        inside.eq((bits >= settings.guard_low) & (bits <= settings.guard_high)),
        choice.predicted.eq(known & (inside | ~settings.guard_exact)),
        choice.guard.eq(known & ~inside),
        choice.no_anchor.eq(~known),
    ]
    return choice
