# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The core: rows in on one stream, normalized rows out on another, layer settings and parameters on plain ports."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import Configuration
from ..flags import COMMON_BITS, ERROR_BITS, RowFlag
from ..formats import FP32
from ..latency import (
    QUEUE_LATENCY,
    STATISTICS_STREAM_LATENCY,
    STORE_LATENCY,
    RowTimes,
    buffer_depth,
    order_depth,
    output_depth,
    prediction_delay,
    row_depth,
    window_push_time,
)
from ..layer import record_layout
from ..layout import statistics_settings, stored_bits
from ..numerics import clog2
from .arithmetic import above, named
from .buffers import Queue, RegisterSlice, ResultStore, RowBuffer, step
from .framer import Framer, beat_layout, row_settings
from .int8 import INT8_NUMBER, Packer, Unpacker
from .normalization import NormalizationUnit, meta_layout, order_layout, scale_layout, window_layout
from .pipe import Pipe, struct
from .predictor import IsdPredictor, choice_layout
from .row import RowUnit
from .statistics import StatisticsUnit
from .statistics_stream import StatisticsStream


def core_ports(configuration: Configuration) -> list[tuple[str, str, int]]:
    """(name, "input" | "output", width) of every port but `clk` and `rst`, in the order of the documents."""
    what, p_n = configuration.what, configuration.how.p_n
    width = configuration.what.element.width * p_n
    stream = [("tdata", width), ("tkeep", width // 8), ("tlast", 1), ("tid", what.id_bits)]
    ports = [(f"s_axis_{name}", "input", size) for name, size in stream]
    ports += [("s_axis_tuser", "input", what.token_bits + FP32.width)]
    ports += [("s_axis_tvalid", "input", 1), ("s_axis_tready", "output", 1)]
    ports += [(f"m_axis_{name}", "output", size) for name, size in stream]
    ports += [("m_axis_tuser", "output", what.token_bits + ERROR_BITS)]
    ports += [("m_axis_tvalid", "output", 1), ("m_axis_tready", "input", 1)]
    ports += [("m_axis_parameters", "output", 1), ("m_axis_slot", "output", what.slot_bits)]
    if configuration.how.bus_bytes is not None:
        ports.append(("s_axis_mixed", "input", 1))
    if what.statistics_stream:
        ports += [
            ("m_stat_tdata", "output", 2 * FP32.width),
            ("m_stat_tid", "output", what.id_bits),
            ("m_stat_tuser", "output", what.token_bits),
            ("m_stat_tlast", "output", 1),
            ("m_stat_tvalid", "output", 1),
            ("m_stat_tready", "input", 1),
        ]
    ports += [("sum_active", "output", 1), ("root_active", "output", 1)]
    if what.skipping:
        ports += [("isd_clear", "input", 1), ("isd_clearing", "output", 1)]
    ports += [
        (f"layer_{name}", "input", size) for name, size in record_layout(configuration).items()
    ]
    writes = [
        ("valid", 1),
        ("beta", 1),
        ("slot", what.slot_bits),
        ("index", max(1, clog2(what.max_n))),
        ("data", what.parameters.width),
        ("one_plus", 1),
    ]
    return ports + [(f"parameter_write_{name}", "input", size) for name, size in writes]


def members(ports: list[tuple[str, str, int]]) -> dict[str, wiring.Member]:
    """The signature of a list of ports."""
    flows = {"input": In, "output": Out}
    return {name: flows[way](width) for name, way, width in ports}


class Core(wiring.Component):
    """The accelerator without its control plane. Ports: `core_ports`.

    `m_axis_parameters` says beside a beat that its row uses gamma or beta of `m_axis_slot`. `s_axis_mixed` (builds with a narrow bus)
    says that a part of the beat came with another TID than the row's first. `isd_clear` (builds with skipping) forgets the ISDs that are kept;
    it may come only while no row is inside, and until `isd_clearing` falls no row is taken. `sum_active` and `root_active` are 1 in cycles in
    which the statistics unit takes elements, and in which an inverse square root begins.

    Rows: `docs/numerics.md`, section 9. Equal rows follow each other every max(⌈N_sub/p_d⌉, ⌈N/p_n⌉, isd_interval) cycles.
    Latency: `haan.latency.core_latency`.
    """

    MODULE = "haan_core"

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.what, self.how = configuration.what, configuration.how
        super().__init__(members(core_ports(configuration)))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        configuration = self.configuration
        depth = row_depth(configuration)
        m.submodules.framer = framer = Framer(configuration)
        m.submodules.statistics = statistics = StatisticsUnit(configuration)
        m.submodules.row = row = RowUnit(configuration)
        m.submodules.normalization = normalization = NormalizationUnit(configuration)
        m.submodules.buffer = buffer = RowBuffer(
            stored_bits(self.what) * self.how.p_n, buffer_depth(configuration)
        )
        self._take(m, framer)
        m.d.comb += [
            buffer.w_valid.eq(framer.beat_valid),
            buffer.w_data.eq(framer.beat_data),
            buffer.read.eq(normalization.read),
            normalization.available.eq(buffer.available),
            normalization.z.eq(buffer.r_data),
            statistics.i_valid.eq(framer.sum_valid),
            statistics.first.eq(framer.sum_first),
            statistics.last.eq(framer.sum_last),
            statistics.z.eq(framer.sum_data),
            statistics.sampled.eq(framer.sum_sampled),
            statistics.fault.eq(framer.sum_fault),
        ]
        order_room = self._queue_orders(m, framer, normalization, depth)
        self._compute(m, framer, statistics, row, depth)
        p = self._hand_over(m, statistics, row, normalization, depth)
        if self.what.skipping:
            self._predict(m, framer, row, normalization, p)
        m.d.comb += [self.sum_active.eq(framer.sum_valid), self.root_active.eq(row.roots)]
        if self.what.statistics_stream:
            self._tell(m, row, normalization, p)
        else:
            m.d.comb += normalization.room.eq(1)
        m.d.comb += framer.room.eq(buffer.room & order_room)
        self._give(m, normalization)
        if self.what.gamma:
            for name in ("valid", "beta", "slot", "index", "data", "one_plus"):
                port = getattr(self, f"parameter_write_{name}")
                m.d.comb += getattr(normalization, f"write_{name}").eq(port)
        return m

    def _tell(self, m: Module, row: RowUnit, normalization: NormalizationUnit, p: Pipe) -> None:
        """The statistics stream."""
        head_start = STATISTICS_STREAM_LATENCY - STORE_LATENCY + QUEUE_LATENCY - 1
        assert self.times.numbers <= window_push_time(self.configuration) + head_start
        m.submodules.stream = stream = StatisticsStream(self.configuration)
        order = normalization.order
        m.d.comb += [
            stream.w_valid.eq(p.valid(self.times.numbers)),
            stream.isd.eq(row.isd_number),
            stream.mean.eq(row.mean_number),
            *[
                getattr(stream, name).eq(getattr(normalization, name))
                for name in ("ends", "row", "void", "computed", "predicted")
            ],
            stream.id.eq(order.id),
            stream.token.eq(order.token),
            normalization.room.eq(stream.room),
            self.m_stat_tdata.eq(stream.o_data),
            self.m_stat_tid.eq(stream.o_id),
            self.m_stat_tuser.eq(stream.o_token),
            self.m_stat_tlast.eq(1),
            self.m_stat_tvalid.eq(stream.o_valid),
            stream.o_ready.eq(self.m_stat_tready),
        ]
        if self.what.skipping:
            m.d.comb += [
                stream.prediction_row.eq(normalization.taken),
                self.predictor.number_row.eq(stream.number_row),
                stream.number.eq(self.predictor.number),
            ]

    def _predict(
        self,
        m: Module,
        framer: Framer,
        row: RowUnit,
        normalization: NormalizationUnit,
        p: Pipe,
    ) -> None:
        """The ISD predictor, between the rows that come in, the ISDs and the lanes."""
        predictor, settings = self.predictor, framer.settings
        inside, takes = Signal(), Signal()
        token = self.s_axis_tuser[: self.what.token_bits]
        m.d.comb += takes.eq(self.s_axis_tvalid & self.s_axis_tready)
        with m.If(takes):
            m.d.sync += inside.eq(~self.s_axis_tlast)
        choice, waits = Signal(choice_layout(), reset_less=True), Signal(reset_less=True)
        with m.If(framer.frames):
            m.d.sync += [choice.eq(predictor.now), waits.eq(predictor.waits)]
        m.d.comb += [
            predictor.accepts.eq(takes & ~inside),
            predictor.accepted_token.eq(token),
            predictor.accepted_anchor.eq(self.layer_anchor),
            predictor.accepted_keeps.eq(self.layer_keep_isd & self.layer_valid),
            predictor.accepted_skips.eq(self.layer_skip & self.layer_valid),
            predictor.frames.eq(framer.frames),
            predictor.framed.eq(framer.framed),
            predictor.known.eq(framer.known),
            framer.predicted.eq(predictor.now.predicted),
            predictor.row_valid.eq(framer.row_valid & ~framer.null & ~framer.early),
            predictor.refused.eq(framer.row_valid & framer.null),
            predictor.row.eq(settings),
            predictor.row_id.eq(framer.id),
            predictor.row_token.eq(framer.token),
            predictor.isd_valid.eq(p.valid(self.times.isd)),
            predictor.isd.eq(row.isd),
            predictor.exponent.eq(row.exponent),
            predictor.void.eq(p.at(self.no_isd, self.times.isd)),
            normalization.choice_valid.eq(predictor.choice_valid),
            normalization.choice.eq(predictor.choice),
            predictor.choice_ready.eq(normalization.choice_ready),
            predictor.prediction_row.eq(normalization.prediction_row),
            normalization.prediction.eq(predictor.prediction),
            predictor.clear.eq(self.isd_clear),
            self.isd_clearing.eq(predictor.clearing),
            self.choice.eq(choice),
            self.waits.eq(waits),
        ]

    def _take(self, m: Module, framer: Framer) -> None:
        """Input stream, with the settings that stand beside a first beat."""
        layout = beat_layout(self.configuration)
        m.submodules.input = entry = RegisterSlice(layout.size)
        beat = Signal(layout)
        m.d.comb += [
            beat.data.eq(self.s_axis_tdata),
            beat.keep.eq(self.s_axis_tkeep),
            beat.last.eq(self.s_axis_tlast),
            beat.id.eq(self.s_axis_tid),
            *[beat.mixed.eq(self.s_axis_mixed) for _ in range(self.how.bus_bytes is not None)],
            beat.token.eq(self.s_axis_tuser[: self.what.token_bits]),
            *[
                beat.x_scale.eq(self.s_axis_tuser[self.what.token_bits :])
                for _ in range(self.what.int8)
            ],
            *[
                beat.settings[name].eq(getattr(self, f"layer_{name}"))
                for name in row_settings(self.configuration).members
            ],
            entry.i_data.eq(beat.as_value()),
        ]
        valid, ready = self.s_axis_tvalid, entry.i_ready
        if self.what.skipping:
            m.submodules.predictor = self.predictor = IsdPredictor(self.configuration)
            valid, ready = valid & ~self.predictor.clearing, ready & ~self.predictor.clearing
        m.d.comb += [entry.i_valid.eq(valid), self.s_axis_tready.eq(ready)]
        arrived = data.View(layout, entry.o_data)
        if not self.what.mixed:
            m.d.comb += [
                framer.i_valid.eq(entry.o_valid),
                framer.i_beat.eq(arrived),
                entry.o_ready.eq(framer.i_ready),
            ]
            return
        m.submodules.unpacker = unpacker = Unpacker(self.configuration, layout)
        m.d.comb += [
            unpacker.i_valid.eq(entry.o_valid),
            unpacker.i.eq(arrived),
            entry.o_ready.eq(unpacker.i_ready),
            framer.i_valid.eq(unpacker.o_valid),
            framer.i_beat.eq(unpacker.o),
            unpacker.o_ready.eq(framer.i_ready),
        ]

    def _queue_orders(
        self, m: Module, framer: Framer, normalization: NormalizationUnit, depth: int
    ) -> Signal:
        """What the normalization unit needs of a row from its beginning and from its end."""
        layout = order_layout(self.configuration)
        m.submodules.orders = orders = Queue(
            layout.size, order_depth(self.configuration), late=True
        )
        m.submodules.ends = ends = Queue(COMMON_BITS, depth, late=True)
        order = Signal(layout)
        settings = framer.settings
        lane_bits = clog2(self.how.p_n)
        if self.what.skipping:
            self.choice, self.waits = Signal(choice_layout()), Signal()
            both = self.what.layernorm and self.what.rmsnorm
            delay = prediction_delay(self.configuration)
            m.d.comb += [
                order.rmsnorm.eq(settings.rmsnorm if both else self.what.rmsnorm),
                order.early.eq(framer.early),
                order.waits.eq(self.waits | (self.choice.predicted & (delay > 0))),
                *[order[name].eq(self.choice[name]) for name in choice_layout().members],
            ]
        m.d.comb += [
            order.null.eq(framer.null),
            *[
                order.int8.eq((settings.output_format == INT8_NUMBER) & ~framer.null)
                for _ in range(self.what.mixed)
            ],
            order.beats.eq((settings.n - 1) >> lane_bits),
            order.single.eq(framer.null | ~above(settings.n, self.how.p_n)),
            order.tail.eq(settings.n[:lane_bits] if lane_bits else 0),
            order.id.eq(framer.id),
            order.token.eq(framer.token),
            *[order[name].eq(settings[name]) for name in ("gamma", "slot") if self.what.gamma],
            *[order.beta.eq(settings.beta) for _ in range(self.what.beta)],
            *[
                order.cast.eq(settings.cast_before_gamma)
                for _ in range(self.what.cast_before_gamma)
            ],
            orders.w_valid.eq(framer.row_valid),
            orders.w_data.eq(order.as_value()),
            ends.w_valid.eq(framer.end_valid),
            ends.w_data.eq(framer.faults),
            normalization.order_valid.eq(orders.r_valid),
            normalization.order.eq(data.View(layout, orders.r_data)),
            orders.r_ready.eq(normalization.order_ready),
            normalization.end_valid.eq(ends.r_valid),
            normalization.end.eq(ends.r_data),
            ends.r_ready.eq(normalization.end_ready),
        ]
        return orders.room

    def _compute(
        self, m: Module, framer: Framer, statistics: StatisticsUnit, row: RowUnit, depth: int
    ) -> None:
        """The row unit, with its settings waiting for the sums."""
        settings = framer.settings
        layout = struct(statistics_settings(self.configuration))
        values = {
            name: settings[name] for name in layout.members if name in settings.shape().members
        }
        if self.what.subsampling:
            values["n"] = settings.n_sub
            values["subsampled"] = settings.n_sub != settings.n
        if self.what.mixed:
            values["int8"] = settings.input_format == INT8_NUMBER
        enters = framer.row_valid & ~framer.null
        if self.what.skipping:
            values["predicted"] = self.choice.predicted
            enters = enters & ~framer.early
        m.submodules.settings = queue = Queue(layout.size, depth)
        entry = Signal(layout)
        m.d.comb += [
            *[entry[name].eq(value) for name, value in values.items()],
            queue.w_valid.eq(enters),
            queue.w_data.eq(entry.as_value()),
            queue.r_ready.eq(statistics.o_valid),
            row.i_valid.eq(statistics.o_valid),
            row.s2.eq(statistics.s2),
            *[getattr(row, name).eq(data.View(layout, queue.r_data)[name]) for name in values],
        ]
        if not (self.what.layernorm and self.what.rmsnorm):
            m.d.comb += row.rmsnorm.eq(self.what.rmsnorm)
        if self.what.layernorm:
            m.d.comb += row.s1.eq(statistics.s1)

    def _hand_over(
        self,
        m: Module,
        statistics: StatisticsUnit,
        row: RowUnit,
        normalization: NormalizationUnit,
        depth: int,
    ) -> Pipe:
        """Results of a row to the normalization unit: it starts with the window, and finds mean and ISD when it needs them."""
        self.times = times = RowTimes(self.configuration)
        p = Pipe(m, self.how.cuts, products=self.how.products, valid=statistics.o_valid)
        layout = window_layout(self.configuration)
        nonfinite = p.let("sums_nonfinite", statistics.nonfinite)
        nan = p.let("sums_nan", statistics.nonfinite | statistics.o_fault)
        p.now = times.window
        zero = p.let("row_zero_variance", row.zero_variance)
        if self.what.skipping:
            self.no_isd = p.let("no_isd", p(nan) | row.zero_variance)
        shift = p.let("row_shift", row.shift) if "shift" in layout.members else None
        p.now = window_push_time(self.configuration)
        window = Signal(layout)
        m.submodules.windows = windows = Queue(layout.size, depth, late=True)
        m.d.comb += [
            window.nan.eq(p(nan)),
            window.nonfinite.eq(p(nonfinite)),
            window.zero_variance.eq(p(zero)),
            *[window.shift.eq(p(shift)) for shift in [shift] if shift is not None],
            windows.w_valid.eq(p.valid()),
            windows.w_data.eq(window.as_value()),
            normalization.window_valid.eq(windows.r_valid),
            normalization.window.eq(data.View(layout, windows.r_data)),
            windows.r_ready.eq(normalization.window_ready),
        ]
        scale = scale_layout(self.configuration)
        m.submodules.scales = scales = ResultStore(scale.size, depth)
        m.d.comb += [
            scales.w_valid.eq(p.valid(times.scale)),
            scales.w_data.eq(
                row.scale if self.what.integer else Cat(row.scale, row.scale_exponent)
            ),
            scales.r_row.eq(normalization.scale_row),
            normalization.scale.eq(data.View(scale, scales.r_data)),
        ]
        if self.what.layernorm:
            m.submodules.means = means = ResultStore(len(row.mean), depth)
            m.d.comb += [
                means.w_valid.eq(p.valid(times.mean)),
                means.w_data.eq(row.mean),
                means.r_row.eq(normalization.mean_row),
                normalization.mean.eq(means.r_data),
            ]
        return p

    def _give(self, m: Module, normalization: NormalizationUnit) -> None:
        """Output stream. A beat is sent through the lanes only when a place in the output queue is sure to be free."""
        depth = output_depth(self.configuration)
        layout = meta_layout(self.configuration)
        m.submodules.results = results = Queue(len(normalization.y) + 1, depth)
        m.submodules.metas = metas = Queue(layout.size, depth)
        leaves, takes = Signal(), Signal()
        m.d.comb += leaves.eq(results.r_valid & takes)
        under_way = Signal(range(depth + 1))
        credit = Signal()
        step(m, under_way, normalization.issue, leaves)
        # Told a cycle late, and therefore with a place in reserve.
        m.d.sync += credit.eq(under_way < depth - 1)
        m.d.comb += [
            normalization.credit.eq(credit),
            metas.w_valid.eq(normalization.issue),
            metas.w_data.eq(normalization.meta.as_value()),
            results.w_valid.eq(normalization.o_valid),
            results.w_data.eq(Cat(normalization.y, normalization.overflow)),
            results.r_ready.eq(takes),
            metas.r_ready.eq(leaves),
        ]
        meta = data.View(layout, metas.r_data)
        overflow = Mux(results.r_data[-1], RowFlag.OVERFLOW.value, 0)
        tail = named(m, "tail", meta.tail)
        whole = named(m, "whole", ~meta.last | (tail == 0))
        # The last lane has an element only in whole beats: a tail is at most p_n - 1.
        present = [whole | (tail > i) for i in range(self.how.p_n - 1)] + [whole]
        exists = named(m, "exists", ~meta.null)
        there = [exists & each for each in present]
        flags = Mux(meta.last, meta.flags | overflow, 0)
        rest = ERROR_BITS - len(meta.flags)
        if self.what.mixed:
            m.submodules.packer = packer = Packer(self.configuration)
            m.d.comb += [
                packer.i_valid.eq(results.r_valid),
                packer.data.eq(results.r_data[:-1]),
                packer.keep.eq(Cat(there)),
                packer.int8.eq(meta.int8),
                packer.last.eq(meta.last),
                takes.eq(packer.i_ready),
                packer.o_ready.eq(self.m_axis_tready),
                self.m_axis_tvalid.eq(packer.o_valid),
                self.m_axis_tdata.eq(packer.o_data),
                self.m_axis_tkeep.eq(packer.o_keep),
            ]
        else:
            m.d.comb += [
                takes.eq(self.m_axis_tready),
                self.m_axis_tvalid.eq(results.r_valid),
                self.m_axis_tdata.eq(results.r_data[:-1]),
                self.m_axis_tkeep.eq(
                    Cat(each.replicate(self.what.element.width // 8) for each in there)
                ),
            ]
        m.d.comb += [
            self.m_axis_tlast.eq(meta.last),
            self.m_axis_tid.eq(meta.id),
            self.m_axis_tuser.eq(Cat(meta.token, flags[: len(meta.flags)], Const(0, rest))),
        ]
        if self.what.gamma:
            m.d.comb += [self.m_axis_parameters.eq(meta.parameters), self.m_axis_slot.eq(meta.slot)]
