# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Gamma and beta: the form in which they are stored, the conversion when they are written, and their memory."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import Configuration, What
from ..formats import FP16, FP32
from ..layout import bank_depth, stored_beta, stored_gamma
from ..numerics import Numerics, clog2
from .arithmetic import leading_zeros, named, shift_right_jam, top_bits
from .emit import Shared
from .pipe import Pipe, Staged

_EMIN = 1 - FP16.bias


@dataclass(frozen=True)
class GammaFields:
    """A stored gamma taken apart: (−1)^sign · 1.fraction · 2^exponent, or zero, or not a finite number."""

    sign: Value
    exponent: Value
    fraction: Value

    @property
    def zero(self) -> Value:
        return self.exponent == -(1 << (len(self.exponent) - 1))

    @property
    def poison(self) -> Value:
        return self.exponent == 1 - (1 << (len(self.exponent) - 1))


class GammaLayout:
    """Stored gamma: fraction, exponent, sign. All bits 0 mean 1.0, so a cleared register is «no gamma»; the two smallest exponents
    stand for zero and for a non-finite value."""

    def __init__(self, what: What) -> None:
        fields = stored_gamma(what)
        self.fraction_bits, self.exponent_bits = fields["fraction"], fields["exponent"]
        self.width = sum(fields.values())

    def unpack(self, value: Value) -> GammaFields:
        middle = self.fraction_bits + self.exponent_bits
        return GammaFields(
            sign=value[middle],
            exponent=value[self.fraction_bits : middle].as_signed(),
            fraction=value[: self.fraction_bits],
        )

    def pack(
        self, sign: Value, exponent: Value, fraction: Value, zero: Value, poison: Value
    ) -> Value:
        lowest = -(1 << (self.exponent_bits - 1))
        coded = Mux(poison, lowest + 1, Mux(zero, lowest, exponent))
        kept = fraction[: self.fraction_bits] & (~zero).replicate(self.fraction_bits)
        return Cat(kept, coded[: self.exponent_bits], sign)


@dataclass(frozen=True)
class BetaFields:
    """A stored beta taken apart: (−1)^sign · mantissa/2^(wb−1) · 2^(code − 14), or not a finite number."""

    sign: Value
    code: Value
    mantissa: Value

    @property
    def poison(self) -> Value:
        return self.code.all()


class BetaLayout:
    """Stored beta: mantissa with its leading bit explicit, exponent code, sign. All bits 0 mean 0.0."""

    def __init__(self, what: What) -> None:
        fields = stored_beta(what)
        self.mantissa_bits, self.code_bits = fields["mantissa"], fields["code"]
        self.width = sum(fields.values())

    def unpack(self, value: Value) -> BetaFields:
        middle = self.mantissa_bits + self.code_bits
        return BetaFields(
            sign=value[middle],
            code=value[self.mantissa_bits : middle],
            mantissa=value[: self.mantissa_bits],
        )

    def pack(self, sign: Value, code: Value, mantissa: Value, poison: Value) -> Value:
        coded = Mux(poison, (1 << self.code_bits) - 1, code)
        return Cat(mantissa[: self.mantissa_bits], coded[: self.code_bits], sign)


class ParameterEncoder(wiring.Component):
    """Converts written parameters to their stored form; one a cycle. `docs/numerics.md`, section 7, defines the rounding.

    Members
    -------
    data : FP16 or FP32 bits; one_plus : gamma is given as an offset from 1
    gamma, beta : the stored forms, `latency` cycles later
    """

    def __init__(self, configuration: Configuration) -> None:
        self.what = configuration.what
        self.gamma_layout = GammaLayout(self.what)
        self.beta_layout = BetaLayout(self.what)
        super().__init__(
            {
                "data": In(self.what.parameters.width),
                "one_plus": In(1),
                "gamma": Out(self.gamma_layout.width),
                "beta": Out(self.beta_layout.width),
            }
        )

    @property
    def latency(self) -> int:
        return 5 if self.what.one_plus_gamma else 2

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = Pipe(
            m, frozenset({"one_plus_align", "one_plus_add", "one_plus_round", "prepare", "encode"})
        )
        fmt = self.what.parameters
        fraction = self.data[: fmt.fraction_bits]
        field = self.data[fmt.fraction_bits : fmt.width - 1]
        sign, poison = p.let("sign", self.data[-1]), p.let("poison", field.all())
        if fmt is FP16:
            self._encode_fp16(m, p, p(sign), field, fraction, p(poison))
        else:
            beta = (p.let("beta_field", field), p.let("beta_fraction", fraction))
            gamma = (
                p.let("g_sign", p(sign)),
                p.let("g_field", field),
                p.let("g_fraction", fraction),
            )
            if self.what.one_plus_gamma:
                gamma = self._one_plus(m, p, *gamma, p.let("one", self.one_plus))
            self._encode_fp32(m, p, sign, beta, gamma, poison)
        return m

    def _encode_fp16(
        self, m: Module, p: Pipe, sign: Value, field: Value, fraction: Value, poison: Value
    ) -> None:
        subnormal = field == 0
        significand = Cat(fraction, ~subnormal)
        code = Mux(subnormal, 0, field - 1)[:5]
        zeros = leading_zeros(m, "zeros", significand)
        zeros, significand = p.let("gamma_zeros", zeros), p.let("significand", significand)
        code, sign, poison = p.let("code", code), p.let("p_sign", sign), p.let("p_poison", poison)
        p.cut("prepare")
        normal = top_bits(m, "gamma_top", p(significand), p(zeros), 11)
        gamma = self.gamma_layout.pack(
            p(sign), p(code) + _EMIN - p(zeros), normal, ~p(significand).any(), p(poison)
        )
        beta = self.beta_layout.pack(p(sign), p(code), p(significand), p(poison))
        gamma, beta = p.let("gamma_stored", gamma), p.let("beta_stored", beta)
        p.cut("encode")
        m.d.comb += [self.gamma.eq(p(gamma)), self.beta.eq(p(beta))]

    def _one_plus(
        self, m: Module, p: Pipe, sign: Staged, field: Staged, fraction: Staged, one: Staged
    ) -> tuple[Staged, Staged, Staged]:
        """1 + gamma in FP32, rounded to nearest even, where `one` is set. The sum is never negative in the frame of the larger
        operand: 1 leads where |gamma| < 1, and gamma where it doesn't."""
        leads = p.let("gamma_leads", p(field) >= FP32.bias)
        significand = Cat(Const(0, 3), p(fraction), p(field) != 0)
        unit = Const(1 << 26, 27)
        distance = Mux(p(leads), p(field) - FP32.bias, FP32.bias - p(field))[:8]
        away = Mux(distance[5:].any(), 31, distance[:5])[:5]
        trailing = shift_right_jam(m, "one_trailing", Mux(p(leads), unit, significand), away)
        trailing = p.let("one_trail", trailing)
        leading = p.let("one_lead", Mux(p(leads), significand, unit))
        base = p.let("one_field", Mux(p(leads), p(field), FP32.bias))
        p.cut("one_plus_align")
        total = p.let(
            "one_total", Mux(p(sign), p(leading) - p(trailing), p(leading) + p(trailing))[:28]
        )
        p.cut("one_plus_add")
        zeros = leading_zeros(m, "one_zeros", p(total))
        top = top_bits(m, "one_top", p(total), zeros, 28)
        kept = Cat(top[4:27] + (top[3] & (top[:3].any() | top[4])), Const(0, 1))[:24]
        zero = ~top[27]
        result_sign = Mux(p(one), p(sign) & p(leads), p(sign))
        result_field = Mux(zero, 0, p(base) + 1 - zeros + kept[23])[:8]
        out = (
            p.let("sum_sign", result_sign),
            p.let("sum_field", Mux(p(one), result_field, p(field))),
            p.let("sum_fraction", Mux(p(one), kept[:23], p(fraction))),
        )
        p.cut("one_plus_round")
        return out

    def _encode_fp32(
        self,
        m: Module,
        p: Pipe,
        sign: Staged,
        beta: tuple[Staged, Staged],
        gamma: tuple[Staged, Staged, Staged],
        poison: Staged,
    ) -> None:
        g_sign, g_field, g_fraction = gamma
        rounded = Signal(17, name="gamma_rounded")
        m.d.comb += rounded.eq(p(g_fraction)[7:] + p(g_fraction)[6])
        top = p(g_field) == FP32.max_exponent_field - 1
        stored = self.gamma_layout.pack(
            p(g_sign),
            p(g_field) - FP32.bias + (rounded[16] & ~top),
            rounded[:16] | (rounded[16] & top).replicate(16),
            p(g_field) == 0,
            p(poison) | (p(g_field) == FP32.max_exponent_field),
        )
        gamma_stored = p.let("gamma_stored", stored)
        field, fraction = p(beta[0]), p(beta[1])
        offset = FP32.bias + _EMIN
        above = field >= offset
        distance = Mux(above, 1, offset + 1 - field)[:8]
        away = p.let("beta_away", Mux(distance[5:].any(), 31, distance[:5])[:5])
        code = p.let("beta_code", Mux(above, field - offset, 0)[:8])
        significand = p.let("beta_significand", Cat(fraction, field != 0))
        p.cut("prepare")
        shifted = Signal(23, name="beta_shifted")
        m.d.comb += shifted.eq(((p(significand) >> p(away)) + 1) >> 1)
        beta_stored = self.beta_layout.pack(
            p(sign),
            p(code) + shifted[22],
            Cat(shifted[:21], shifted[21] | shifted[22]),
            p(poison),
        )
        beta_stored = p.let("beta_stored", beta_stored)
        p.cut("encode")
        m.d.comb += [self.gamma.eq(p(gamma_stored)), self.beta.eq(p(beta_stored))]


class ParameterBank(wiring.Component):
    """One lane's gamma or beta: a simple dual-port memory whose output register can be cleared to «no parameter», the word `cleared`.

    Latency: 2 cycles from `read_address` to `read_data`.

    Members
    -------
    write_enable, write_address, write_data : one word a cycle
    read_address : word to read
    enable : 0 clears `read_data` instead; at the same time as `read_data`'s input, one cycle after `read_address`
    """

    def __init__(self, width: int, depth: int, cleared: int) -> None:
        self.width, self.depth, self.cleared = width, depth, cleared
        address = max(1, clog2(depth))
        super().__init__(
            {
                "write_enable": In(1),
                "write_address": In(address),
                "write_data": In(width),
                "read_address": In(address),
                "enable": In(1),
                "read_data": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=self.width, depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port()
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            read.addr.eq(self.read_address),
            read.en.eq(1),
        ]
        data = Signal(self.width, reset_less=True)
        m.d.sync += data.eq(read.data)
        with m.If(~self.enable):
            m.d.sync += data.eq(self.cleared)
        m.d.comb += self.read_data.eq(data)
        return m


class ParameterMemory(wiring.Component):
    """Gamma or beta of all lanes and slots: a bank a lane, one beat of p_n parameters read a cycle.

    Latency: 2 cycles from `read_slot`, `read_beat` to `read_data`.

    Members
    -------
    write_enable, write_slot, write_index, write_data : one stored parameter a cycle; index is the element's
    read_slot, read_beat : what to read
    enable : 0 gives «no parameter» (1.0 or 0.0), the word `cleared`; together with `read_beat`
    read_data : p_n stored parameters, element 0 in the low bits
    """

    LATENCY = 2

    def __init__(self, configuration: Configuration, width: int, cleared: int) -> None:
        self.cleared = cleared
        what, self.p_n = configuration.what, configuration.how.p_n
        self.width, self.depth = width, bank_depth(configuration)
        self.beat_bits = clog2(Numerics(configuration).row_beats)
        super().__init__(
            {
                "write_enable": In(1),
                "write_slot": In(what.slot_bits),
                "write_index": In(max(1, clog2(what.max_n))),
                "write_data": In(width),
                "read_slot": In(what.slot_bits),
                "read_beat": In(max(1, self.beat_bits)),
                "enable": In(1),
                "read_data": Out(width * self.p_n),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lane_bits = clog2(self.p_n)
        write = self._address(self.write_index[lane_bits:], self.write_slot)
        read = self._address(self.read_beat, self.read_slot)
        write_address, read_address = named(m, "write_at", write), named(m, "read_at", read)
        enable = Signal()
        m.d.sync += enable.eq(self.enable)
        banks = [
            Shared(ParameterBank, self.width, self.depth, self.cleared) for _ in range(self.p_n)
        ]
        for lane, bank in enumerate(banks):
            m.submodules[f"bank{lane}"] = bank
            m.d.comb += [
                bank.write_enable.eq(self.write_enable & (self.write_index[:lane_bits] == lane)),
                bank.write_address.eq(write_address),
                bank.write_data.eq(self.write_data),
                bank.read_address.eq(read_address),
                bank.enable.eq(enable),
            ]
        m.d.comb += self.read_data.eq(Cat(bank.read_data for bank in banks))
        return m

    def _address(self, beat: Value, slot: Value) -> Value:
        """Row-major {slot, beat}."""
        padded = Cat(beat, Const(0, self.beat_bits))[: self.beat_bits]
        return Cat(padded, slot)
