# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Mean and ISD of each row as FP32 numbers on a stream of their own. `docs/numerics.md`, section 13."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import layout
from ..config import Configuration
from ..formats import FP32
from ..latency import (
    STATISTICS_STREAM_DEPTH,
    STATISTICS_STREAM_LATENCY,
    STORE_LATENCY,
    row_depth,
)
from ..numerics import ISD_BITS, VARIANCE_BITS, clog2
from .arithmetic import leading_zeros, named, product, top_bits, wide_add
from .buffers import Queue, ResultStore, step
from .pipe import Pipe, Staged, struct

NUMBERS_LAYOUT = struct(layout.NUMBERS)
NAN = 0x7FC00000


def isd_number(isd: Value, exponent: Value) -> Value:
    """An ISD in FP32; 0 below the normal numbers, infinite above."""
    field = exponent + FP32.bias
    small, large = field < 1, field >= FP32.max_exponent_field
    fraction = Cat(Const(0, FP32.fraction_bits - ISD_BITS + 1), isd[: ISD_BITS - 1])
    normal = Cat(fraction, field[: FP32.exponent_bits], Const(0, 1))
    infinity = FP32.max_exponent_field << FP32.fraction_bits
    return Mux(small, 0, Mux(large, infinity, normal))[: FP32.width]


def mean_number(
    m: Module,
    p: Pipe,
    mean: Staged,
    lsb_exponent: int,
    scale: tuple[Staged, Staged, Staged] | None,
) -> Staged:
    """A mean, an integer times 2^lsb_exponent, in FP32, and that times a scale (significand of 24 bits, exponent, whether it is 0)."""
    p.wait(mean)
    width = len(mean.signal) - 1
    negative = p.let("mean_negative", p(mean)[-1])
    inverted = p(mean)[:-1] ^ p(negative).replicate(width)
    magnitude = wide_add(m, "mean_absolute", inverted, Const(0, width), width, p(negative))
    magnitude = p.let("mean_magnitude", magnitude)
    p.cut("mean_magnitude")
    zeros = p.let("mean_zeros", leading_zeros(m, "mean_zeros", p(magnitude)))
    p.cut("count_mean")
    top = p.let("mean_top", top_bits(m, "mean_top", p(magnitude), p(zeros), width))
    exponent = p.let("mean_power", (width - 1 + lsb_exponent) - p(zeros))
    zero = p.let("mean_zero", ~p(magnitude).any())
    p.cut("normalize_mean")
    significand, exponent = _nearest(m, p, "mean", p(top), p(exponent))
    p.cut("round_mean")
    if scale is not None:
        total = product(p, "scaled_mean", significand, scale[0])
        high = p(total)[-1]
        normal = Mux(high, p(total), p(total) << 1)[: 2 * VARIANCE_BITS]
        power = p(exponent) + p(scale[1]) + high
        zero = p.let("scaled_mean_zero", p(zero) | p(scale[2]))
        significand, exponent = _nearest(m, p, "scaled_mean", normal, power)
        p.cut("scale_mean")
    field = p(exponent) + FP32.bias
    normal = Cat(p(significand)[:-1], field[: FP32.exponent_bits])
    large = Const(FP32.max_exponent_field << FP32.fraction_bits, FP32.width - 1)
    number = Mux(field < 1, 0, Mux(field >= FP32.max_exponent_field, large, normal))
    sign = p(negative) & ~p(zero)
    return p.let("mean_number", Cat(number[: FP32.width - 1] & (~p(zero)).replicate(31), sign))


def _nearest(m: Module, p: Pipe, name: str, value: Value, exponent: Value) -> tuple[Staged, Staged]:
    """Its 24 leading bits, to nearest even, the first of them set; and the exponent."""
    value = named(m, f"{name}_value", value)
    kept, guard, rest = (
        value[-VARIANCE_BITS:],
        value[-VARIANCE_BITS - 1],
        value[: -VARIANCE_BITS - 1],
    )
    rounded = Signal(VARIANCE_BITS + 1, name=f"{name}_rounded")
    m.d.comb += rounded.eq(kept + (guard & (rest.any() | kept[0])))
    carry = rounded[-1]
    significand = Cat(rounded[: VARIANCE_BITS - 1], rounded[VARIANCE_BITS - 1] | carry)
    return p.let(f"{name}_significand", significand), p.let(f"{name}_exponent", exponent + carry)


class StatisticsStream(wiring.Component):
    """Takes mean and ISD of rows as they are computed, and sends them when the rows leave.

    Members
    -------
    w_valid, mean, isd : of a row that was computed, in order
    ends : a row's last beat is sent into the lanes; with it row, prediction_row (its numbers in the stores), computed, predicted, void, id,
        token. room : it may be
    number_row, number : the store of predicted ISDs
    o_valid, o_ready, o_data, o_id, o_token : the stream
    """

    def __init__(self, configuration: Configuration) -> None:
        self.what = what = configuration.what
        self.depth = depth = row_depth(configuration)
        super().__init__(
            {
                "w_valid": In(1),
                "mean": In(FP32.width),
                "isd": In(FP32.width),
                "ends": In(1),
                "row": In(clog2(depth)),
                "prediction_row": In(clog2(depth) + 1),
                "computed": In(1),
                "predicted": In(1),
                "void": In(1),
                "id": In(what.id_bits),
                "token": In(what.token_bits),
                "room": Out(1),
                "number_row": Out(clog2(depth) + 1),
                "number": In(FP32.width),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o_data": Out(2 * FP32.width),
                "o_id": Out(what.id_bits),
                "o_token": Out(what.token_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.store = store = ResultStore(NUMBERS_LAYOUT.size, self.depth)
        p = Pipe(m, frozenset({"wait"}), valid=self.ends)
        names = ("row", "prediction_row", "computed", "predicted", "void", "id", "token")
        row = {name: p.let(f"ended_{name}", getattr(self, name)) for name in names}
        for _ in range(STATISTICS_STREAM_LATENCY - STORE_LATENCY):
            p.cut("wait")
        m.d.comb += [
            store.w_valid.eq(self.w_valid),
            store.w_data.eq(Cat(self.mean, self.isd)),
            store.r_row.eq(p(row["row"])),
            self.number_row.eq(p(row["prediction_row"])),
        ]
        for _ in range(STORE_LATENCY):
            p.cut("wait")
        numbers = data.View(NUMBERS_LAYOUT, store.r_data)
        mean = Mux(p(row["computed"]), numbers.mean, 0)
        isd = Mux(p(row["predicted"]), self.number, numbers.isd)
        both = Mux(p(row["void"]), Const(NAN << FP32.width | NAN, 64), Cat(mean, isd))
        entry = Cat(both, p(row["id"]), p(row["token"]))
        m.submodules.queue = queue = Queue(len(entry), STATISTICS_STREAM_DEPTH)
        leaves = queue.r_valid & self.o_ready
        under_way = Signal(range(STATISTICS_STREAM_DEPTH + 1))
        step(m, under_way, self.ends, leaves)
        # Told a cycle late, and therefore with a place in reserve.
        m.d.sync += self.room.eq(under_way < STATISTICS_STREAM_DEPTH - 1)
        m.d.comb += [
            queue.w_valid.eq(p.valid()),
            queue.w_data.eq(entry),
            queue.r_ready.eq(self.o_ready),
            self.o_valid.eq(queue.r_valid),
            Cat(self.o_data, self.o_id, self.o_token).eq(queue.r_data),
        ]
        return m
