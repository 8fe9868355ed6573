# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The normalization unit: reads the rows that have their results, beat by beat, and sends them through p_n lanes."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import layout
from ..config import Configuration, What
from ..flags import COMMON_BITS, RowFlag
from ..formats import FP16
from ..latency import (
    BUFFER_LATENCY,
    STORE_LATENCY,
    normalization_latency,
    operand_time,
    row_depth,
)
from ..numerics import SCALE_EXPONENT_BITS, Numerics, clog2
from .emit import Shared
from .integer import HALF, IntegerEncoder, IntegerLane
from .lane import Lane
from .parameters import ParameterEncoder, ParameterMemory
from .pipe import Pipe, Staged, struct
from .predictor import PREDICTION_LAYOUT, choice_layout


def order_layout(configuration: Configuration) -> data.StructLayout:
    return struct(layout.order(configuration))


def window_layout(configuration: Configuration) -> data.StructLayout:
    return struct(layout.window(configuration))


def scale_layout(configuration: Configuration) -> data.StructLayout:
    return struct(layout.scale(configuration))


def meta_layout(configuration: Configuration) -> data.StructLayout:
    return struct(layout.meta(configuration))


def lane_kind(what: What) -> type[Lane] | type[IntegerLane]:
    """The lanes of a build."""
    return IntegerLane if what.integer else Lane


def parameter_encoder(configuration: Configuration) -> ParameterEncoder | IntegerEncoder:
    """What converts written parameters to what this build's lanes take."""
    kind = IntegerEncoder if configuration.what.integer else ParameterEncoder
    return kind(configuration)


class NormalizationUnit(wiring.Component):
    """p_n elements a cycle from the row buffer through the lanes; rows follow each other without a bubble.

    Latency: `haan.latency.normalization_latency` from `issue` to `o_valid`.

    Members
    -------
    order_valid, order, order_ready : rows under way, in order
    window_valid, window, window_ready : rows whose window is known, in order (null and early rows have none)
    choice_valid, choice, choice_ready; prediction_row, prediction : as of `IsdPredictor` (builds with skipping)
    end_valid, end, end_ready : faults of the rows that have ended, in order
    available, z : the row buffer; z in the cycle after it is read
    mean_row, mean; scale_row, scale : the stores of mean and ISD, by row; they answer after `haan.latency.STORE_LATENCY` cycles
    credit : a beat may be sent; room : a row's last one may
    issue, meta : a beat is under way
    read : it takes a beat of the row buffer
    ends : it is a row's last; row : its number in the stores; void : it is all NaN; computed, predicted : it has a window, a predicted ISD
    o_valid, y, overflow : its result; overflow is that of the row up to this beat
    write_* : gamma and beta: one parameter a cycle
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.what, self.how = configuration.what, configuration.how
        self.numerics = Numerics(configuration)
        what, p_n = self.what, self.how.p_n
        row_bits = clog2(row_depth(configuration))
        members: dict[str, wiring.Member] = {
            "order_valid": In(1),
            "order": In(order_layout(configuration)),
            "order_ready": Out(1),
            "window_valid": In(1),
            "window": In(window_layout(configuration)),
            "window_ready": Out(1),
            "end_valid": In(1),
            "end": In(COMMON_BITS),
            "end_ready": Out(1),
            "available": In(1),
            "z": In(layout.stored_bits(what) * p_n),
            "scale_row": Out(row_bits),
            "scale": In(scale_layout(configuration)),
            "credit": In(1),
            "room": In(1),
            "issue": Out(1),
            "meta": Out(meta_layout(configuration)),
            "read": Out(1),
            "ends": Out(1),
            "row": Out(row_bits),
            "void": Out(1),
            "computed": Out(1),
            "predicted": Out(1),
            "o_valid": Out(1),
            "y": Out(what.element.width * p_n),
            "overflow": Out(1),
        }
        if what.skipping:
            members |= {
                "choice_valid": In(1),
                "choice": In(choice_layout()),
                "choice_ready": Out(1),
                "taken": Out(row_bits + 1),
                "prediction_row": Out(row_bits + 1),
                "prediction": In(PREDICTION_LAYOUT),
            }
        if what.layernorm:
            width = self.numerics.integer_mean_bits if what.integer else self.numerics.window
            members |= {"mean_row": Out(row_bits), "mean": In(width)}
        if what.gamma:
            members |= {
                "write_valid": In(1),
                "write_beta": In(1),
                "write_slot": In(what.slot_bits),
                "write_index": In(max(1, clog2(what.max_n))),
                "write_data": In(what.parameters.width),
                "write_one_plus": In(1),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, last = self._issue(m)
        p = Pipe(m, self.how.cuts, valid=self.issue)
        operands = self._operands(m, p, beat)
        end_of_row = p.let("end_of_row", last)
        tail = p.let("tail", self.order.tail)
        whole = p.let("whole", ~last | (self.order.tail == 0))
        p.now = BUFFER_LATENCY
        width = layout.stored_bits(self.what)
        z = Signal(width * self.how.p_n, reset_less=True)
        m.d.sync += z.eq(self.z)
        kind = lane_kind(self.what)
        lanes = [Shared(kind, self.configuration) for _ in range(self.how.p_n)]
        for index, lane in enumerate(lanes):
            m.submodules[f"lane{index}"] = lane
            m.d.comb += lane.z.eq(z[width * index : width * (index + 1)])
            for name, value in operands.items():
                each = len(getattr(lane, name))
                shared = len(value) == each
                part = value if shared else value[each * index : each * (index + 1)]
                m.d.comb += getattr(lane, name).eq(part)
        p.now = normalization_latency(self.configuration)
        sofar, overflow = Signal(), Signal()
        # Lanes behind the row's last element compute on what happens to be there.
        counts = [p(whole) | (p(tail) > i) for i in range(self.how.p_n - 1)] + [p(whole)]
        seen = Cat(lane.overflow & there for lane, there in zip(lanes, counts, strict=True))
        m.d.comb += overflow.eq(sofar | seen.any())
        kept = overflow & ~p(end_of_row)
        with m.If(p.valid()):
            m.d.sync += sofar.eq(kept)
        m.d.comb += [
            self.o_valid.eq(p.valid()),
            self.y.eq(Cat(lane.y for lane in lanes)),
            self.overflow.eq(overflow),
        ]
        return m

    def _issue(self, m: Module) -> tuple[Signal, Signal]:
        """Sends the next beat of the oldest row as soon as all that it needs is there."""
        order, window = self.order, self.window
        beat, last, ready = Signal(len(order.beats)), Signal(), Signal()
        # Known before the beat's turn comes: whether it is the row's last decides much else in the same cycle.
        inside, ends = Signal(), Signal(reset_less=True)
        # A row whose sums took in all elements is in the buffer when its window is known.
        there = self.available if self.what.starts_early else Const(1, 1)
        computed, spared, predicted = self._choose(m)
        if self.what.skipping:
            there = there & (~order.waits | self.choice_valid)
            m.d.comb += self.choice_ready.eq(self.issue & last & order.waits)
        m.d.comb += [
            last.eq(Mux(inside, ends, order.single)),
            ready.eq(order.null | ((self.window_valid | ~computed) & there)),
            self.issue.eq(
                self.order_valid & ready & self.credit & (~last | (self.end_valid & self.room))
            ),
            self.read.eq(self.issue & ~order.null),
            self.order_ready.eq(self.issue & last),
            self.end_ready.eq(self.issue & last),
            self.window_ready.eq(self.issue & last & ~order.null & computed),
            self.meta.id.eq(order.id),
            self.meta.token.eq(order.token),
            self.meta.tail.eq(order.tail),
            self.meta.null.eq(order.null),
            self.meta.last.eq(last),
            *[self.meta.int8.eq(order.int8) for _ in range(self.what.mixed)],
        ]
        own = Mux(window.nonfinite & ~spared, RowFlag.NONFINITE.value, 0)
        zero = window.zero_variance & ~window.nan & ~predicted
        own |= Mux(zero, RowFlag.ZERO_VARIANCE.value, 0)
        if self.what.skipping:
            own |= self.chosen.as_value() << COMMON_BITS
        m.d.comb += self.meta.flags.eq(self.end | Mux(order.null, 0, own))
        if self.what.gamma:
            used = order.gamma | order.beta if self.what.beta else order.gamma
            m.d.comb += [self.meta.parameters.eq(used), self.meta.slot.eq(order.slot)]
        with m.If(self.issue):
            m.d.sync += [
                beat.eq(Mux(last, 0, beat + 1)),
                inside.eq(~last),
                ends.eq(beat + 1 == order.beats),
            ]
        return beat, last

    def _choose(self, m: Module) -> tuple[Value, Value, Value]:
        """Of the oldest row: it has a window; its sums don't matter; its ISD is predicted."""
        order = self.order
        self.choice_bits: tuple[Value, Value, Value] = (Const(1, 1), Const(0, 1), Const(0, 1))
        if self.what.skipping:
            self.chosen = Signal(choice_layout())
            own = Cat(order[name] for name in choice_layout().members)
            m.d.comb += self.chosen.eq(Mux(order.waits, self.choice.as_value(), own))
            predicted = self.chosen.predicted
            self.choice_bits = (~order.early, predicted & order.rmsnorm, predicted)
        return self.choice_bits

    def _scale(self, m: Module, p: Pipe, time: int, shift: Staged | None) -> tuple[Value, Value]:
        """Significand and exponent of the row's scale, at a time."""
        if not self.what.skipping:
            return self.scale.isd, Const(0) if self.what.integer else self.scale.exponent
        predicted = p.let("predicted", self.chosen.predicted)
        taken = Signal(len(self.prediction_row))
        with m.If(self.issue & self.meta.last & (self.order.waits | self.chosen.predicted)):
            m.d.sync += taken.eq(taken + 1)
        number = p.let("prediction", taken)
        m.d.comb += [
            self.taken.eq(taken),
            self.prediction_row.eq(p.at(number, time - STORE_LATENCY)),
        ]
        chosen = p.at(predicted, time)
        offset = p.at(shift, time) if shift is not None else -FP16.bias - FP16.lsb_exponent
        exponent = (self.prediction.exponent - offset)[:SCALE_EXPONENT_BITS].as_signed()
        return (
            Mux(chosen, self.prediction.isd, self.scale.isd),
            Mux(chosen, exponent, self.scale.exponent),
        )

    def _operands(self, m: Module, p: Pipe, beat: Signal) -> dict[str, Any]:
        """The lanes' operands, each at the time at which the lanes use it: constants of the row, and parameters of the beat."""
        row = Signal(clog2(row_depth(self.configuration)))
        with m.If(self.window_ready):
            m.d.sync += row.eq(row + 1)
        m.d.comb += [
            self.ends.eq(self.issue & self.meta.last),
            self.row.eq(row),
            self.void.eq(self.order.null | (self.window.nan & ~self.choice_bits[1])),
            self.computed.eq(self.choice_bits[0]),
            self.predicted.eq(self.choice_bits[2]),
        ]
        at = self._times()
        number = p.let("row", row)
        operands: dict[str, Any] = {}
        computed = self.choice_bits[0]
        nan = p.let("row_nan", self.void)
        operands["nan"] = p.at(nan, at["nan"])
        shift = None
        if self.what.layernorm and not self.what.integer:
            integer = -FP16.bias - FP16.lsb_exponent
            shift = p.let("shift", Mux(computed, self.window.shift, integer).as_signed())
            operands["shift"] = p.at(shift, at["shift"])
        if self.what.layernorm:
            m.d.comb += self.mean_row.eq(p.at(number, at["mean"] - STORE_LATENCY))
            operands["mean"] = self.mean
            if self.what.skipping:
                taken = p.at(p.let("computed", computed), at["mean"])
                operands["mean"] = self.mean & taken.replicate(len(self.mean))
        m.d.comb += self.scale_row.eq(p.at(number, at["isd"] - STORE_LATENCY))
        isd, exponent = self._scale(m, p, at["isd"], shift)
        operands["isd"] = isd
        if not self.what.integer:
            p.now = at["isd"]
            exponent = p.let("scale_exponent", exponent)
            operands["scale_exponent"] = p.at(exponent, at["scale_exponent"])
            p.now = 0
        if self.what.mixed:
            operands["int8"] = p.at(p.let("int8", self.order.int8), at["int8"])
        if self.what.cast_before_gamma:
            operands["cast"] = p.at(p.let("cast", self.order.cast), at["cast"])
        if self.what.gamma:
            operands |= self._parameters(m, p, beat, at)
        return operands

    def _times(self) -> dict[str, int]:
        what = self.what
        names = ["isd", "nan"] + ["mean"] * what.layernorm
        if not what.integer:
            names += ["scale_exponent"] + ["shift"] * what.layernorm
        names += ["cast"] * what.cast_before_gamma + ["int8"] * what.mixed
        names += ["gamma"] * what.gamma + ["beta"] * what.beta
        return {name: BUFFER_LATENCY + operand_time(self.configuration, name) for name in names}

    def _parameters(self, m: Module, p: Pipe, beat: Signal, at: dict[str, int]) -> dict[str, Any]:
        """Gamma and beta, read from their memories in time."""
        m.submodules.encoder = encoder = parameter_encoder(self.configuration)
        w = Pipe(m, frozenset(), valid=self.write_valid)
        slot, index = w.input(self.write_slot), w.input(self.write_index)
        to_beta = w.input(self.write_beta)
        m.d.comb += [encoder.data.eq(self.write_data), encoder.one_plus.eq(self.write_one_plus)]
        w.now = encoder.latency
        number, slots = p.let("beat", beat), p.let("slot", self.order.slot)
        kinds: list[tuple[str, Value, int]] = [("gamma", ~w(to_beta), 0)]
        if self.what.beta:
            kinds.append(("beta", w(to_beta), HALF if self.what.integer else 0))
        operands = {}
        for name, selected, cleared in kinds:
            width = len(getattr(encoder, name))
            memory = ParameterMemory(self.configuration, width, cleared)
            m.submodules[f"{name}_memory"] = memory
            used: Staged = p.let(f"uses_{name}", getattr(self.order, name))
            time = at[name] - ParameterMemory.LATENCY
            m.d.comb += [
                memory.write_enable.eq(w.valid() & selected),
                memory.write_slot.eq(w(slot)),
                memory.write_index.eq(w(index)),
                memory.write_data.eq(getattr(encoder, name)),
                memory.read_slot.eq(p.at(slots, time)),
                memory.read_beat.eq(p.at(number, time)),
                memory.enable.eq(p.at(used, time)),
            ]
            operands[name] = memory.read_data
        return operands
