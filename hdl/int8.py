# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""INT8 beside FP16: elements become FP16 numbers on the way in, and beats of two by p_n elements are taken apart and put together.

`docs/numerics.md`, section 12.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import FORMATS, Configuration, What
from ..formats import FP16, FP32, INT8
from ..numerics import EXPONENT_BITS, ISD_BITS, SCALED_ISD_EXPONENTS, VARIANCE_BITS
from .arithmetic import leading_zeros, product, top_bits
from .pipe import Pipe, Staged, signed_shape

FP32_ONE = FP32.bias << FP32.fraction_bits
INT8_NUMBER = FORMATS.index(INT8.name)
"""INT8 in a layer record."""


def formats_work(settings: Value, what: What) -> Value:
    """Whether formats and scale are such that a row can be computed."""
    scale = settings.x_scale
    field = scale[FP32.fraction_bits : -1]
    normal = ~scale[-1] & field.any() & ~field.all()
    works = (settings.input_format != INT8_NUMBER) | normal | (scale == 0)
    for number in (settings.input_format, settings.output_format):
        works &= number == INT8_NUMBER if what.integer else number <= INT8_NUMBER
    fields = settings.shape().members
    plain = settings.gamma if "gamma" in fields else Const(0, 1)
    if "cast_before_gamma" in fields:
        plain = plain & ~settings.cast_before_gamma
    return works & ((settings.output_format != INT8_NUMBER) | plain)


def norm24(p: Pipe, name: str, a: Staged, b: Staged) -> tuple[Staged, Staged]:
    """The leading 24 bits of the product of two significands of 24 bits, truncated, and whether it is 2 or more."""
    total = product(p, name, a, b)
    high = p(total)[-1]
    return p.let(f"{name}_top", Mux(high, p(total)[24:], p(total)[23:-1])), p.let(
        f"{name}_high", high
    )


def round_scaled(
    m: Module, name: str, total: Value, exponent: Value, int8: Value
) -> tuple[Value, Value, Value]:
    """The ISD times the scale from the product of their significands: significand, exponent, whether it counts as 0."""
    high = total[-1]
    guard = 2 * VARIANCE_BITS - ISD_BITS - 1
    rounded = Signal(ISD_BITS + 1, name=f"{name}_rounded")
    m.d.comb += rounded.eq(
        Mux(high, total[guard + 0 :], total[guard - 1 :])[1:]
        + Mux(high, total[guard], total[guard - 1])
    )
    power = Signal(signed_shape(EXPONENT_BITS), name=f"{name}_exponent")
    m.d.comb += power.eq(exponent + (high + rounded[-1]))
    largest = SCALED_ISD_EXPONENTS[-1]
    over = int8 & (power > largest)
    significand = Mux(over, 0, rounded[: ISD_BITS - 1])
    return (
        Cat(significand, Const(1, 1)),
        Mux(over, largest, power),
        int8 & (power < SCALED_ISD_EXPONENTS[0]),
    )


def as_fp16(m: Module, name: str, value: Value) -> Value:
    """An INT8 number as an FP16 one."""
    negative = value[-1]
    magnitude = Signal(INT8.width, name=f"{name}_magnitude")
    m.d.comb += magnitude.eq((value ^ negative.replicate(INT8.width)) + negative)
    zeros = leading_zeros(m, f"{name}_zeros", magnitude)
    top = top_bits(m, f"{name}_top", magnitude, zeros[:3], INT8.width)
    exponent = Signal(5, name=f"{name}_exponent")
    m.d.comb += exponent.eq(Mux(zeros[-1], 0, FP16.bias + INT8.width - 1 - zeros[:3]))
    fraction = Cat(Const(0, FP16.fraction_bits - INT8.width + 1), top[:-1])
    return Cat(fraction, exponent, negative)


class Unpacker(wiring.Component):
    """Beats of the bus to beats of p_n elements: one of INT8 elements becomes two. No register of its own, and no cycle lost.

    Members
    -------
    i_valid, i_ready, i : beats of the bus (`hdl.framer.beat_layout`)
    o_valid, o_ready, o : beats of p_n FP16 elements
    """

    def __init__(self, configuration: Configuration, shape: data.StructLayout) -> None:
        self.p_n = configuration.how.p_n
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1),
                "i": In(shape),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o": Out(shape),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p_n, beat = self.p_n, self.i
        inside, row_int8, upper = Signal(), Signal(reset_less=True), Signal()
        int8, final, keep = Signal(), Signal(), Signal(p_n)
        elements: Any = Signal(INT8.width * p_n)
        settings = beat.settings
        m.d.comb += [
            int8.eq(Mux(inside, row_int8, settings.valid & (settings.input_format == INT8_NUMBER))),
            final.eq(~int8 | upper | (beat.last & ~beat.keep[p_n:].any())),
            keep.eq(Mux(upper, beat.keep[p_n:], beat.keep[:p_n])),
            elements.eq(Mux(upper, beat.data[INT8.width * p_n :], beat.data[: INT8.width * p_n])),
            self.o_valid.eq(self.i_valid),
            self.i_ready.eq(self.o_ready & final),
            self.o.eq(beat),
            self.o.last.eq(beat.last & final),
        ]
        numbers = Cat(
            as_fp16(m, f"element{i}", elements[INT8.width * i : INT8.width * (i + 1)])
            for i in range(p_n)
        )
        with m.If(int8):
            m.d.comb += [
                self.o.data.eq(numbers),
                self.o.keep.eq(Cat(bit.replicate(2) for bit in keep)),
            ]
        with m.If(self.i_valid & self.o_ready):
            m.d.sync += [
                upper.eq(~final),
                row_int8.eq(int8),
                inside.eq(~final | ~beat.last),
            ]
        return m


class Packer(wiring.Component):
    """Beats of p_n results to beats of the bus: two of INT8 results become one. No register in the way of the others.

    Members
    -------
    i_valid, i_ready : a beat of results; data : p_n times 16 bits; keep : whether each is there
    int8 : they are INT8, in the low bytes; last : of the row
    o_valid, o_ready, o_data, o_keep : a beat of the bus
    """

    def __init__(self, configuration: Configuration) -> None:
        self.p_n = p_n = configuration.how.p_n
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1),
                "data": In(FP16.width * p_n),
                "keep": In(p_n),
                "int8": In(1),
                "last": In(1),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o_data": Out(FP16.width * p_n),
                "o_keep": Out(2 * p_n),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p_n = self.p_n
        lower, held = Signal(), Signal(INT8.width * p_n, reset_less=True)
        packed = Signal(INT8.width * p_n)
        waits = self.int8 & ~self.last & ~lower
        m.d.comb += [
            packed.eq(Cat(self.data[16 * i : 16 * i + INT8.width] for i in range(p_n))),
            self.o_valid.eq(self.i_valid & ~waits),
            self.i_ready.eq(waits | self.o_ready),
            self.o_data.eq(self.data),
            self.o_keep.eq(Cat(bit.replicate(2) for bit in self.keep)),
        ]
        with m.If(self.int8):
            m.d.comb += [
                self.o_data.eq(Mux(lower, Cat(held, packed), packed)),
                self.o_keep.eq(Mux(lower, Cat(Const(-1, p_n), self.keep), self.keep)),
            ]
        with m.If(self.i_valid & self.i_ready):
            m.d.sync += lower.eq(waits)
        with m.If(self.i_valid & waits):
            m.d.sync += held.eq(packed)
        return m
