# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""One lane of the normalization unit: y = (z − mean)·isd·gamma + beta, one element a cycle, one final rounding."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Configuration
from ..formats import FP16, FP32, INT8
from ..numerics import D_BITS, ISD_BITS, SCALE_EXPONENT_BITS, Numerics, clog2
from ..pipeline import lane_cuts
from .arithmetic import add_carry, leading_zeros, named, shift_left, shift_right_jam, top_bits
from .parameters import BetaLayout, GammaLayout
from .pipe import Pipe, Staged, signed_shape

INTEGER_FIELD = FP16.bias + FP16.fraction_bits
"""Exponent field of numbers whose last bit is 1."""
_BELOW = 10
"""Places below the window that an element's significand can reach into it from."""


class Lane(wiring.Component):
    """Normalizes one element a cycle; `docs/numerics.md`, sections 6 to 8, is what it computes.

    Latency: `haan.latency.lane_latency`. Each operand arrives when the element needs it (`haan.latency.operand_time`), so that
    constants of a row and memory reads are delayed once, outside, and not in every lane. Throughput: one element a cycle.

    Members
    -------
    z : FP16 bits of the element, at time 0
    shift : 10 − 25 − λ, signed (LayerNorm builds), at `shift_amount`
    mean : mean in the window, W bits (LayerNorm builds), at `subtract`
    scale_exponent : λ + ie + 15, signed, at `scale`: exponents carry FP16's bias from here on
    isd : significand of the ISD, 17 bits, 0 for `zero_variance`, at `round_d`
    cast : round x-hat to FP16 first (builds with cast_before_gamma), at `round_x`
    gamma : stored gamma, at `gamma`
    beta : stored beta, at `odd`
    int8 : the result is INT8 (builds with INT8), at `denormalize`
    nan : the whole row is NaN, at `pack`
    y : FP16 bits of the result, or INT8 in the low byte
    overflow : a finite result became infinite, or was saturated
    """

    def __init__(self, configuration: Configuration) -> None:
        self.what = configuration.what
        self.cuts = configuration.how.cuts
        self.numerics = Numerics(configuration)
        members: dict[str, wiring.Member] = {"z": In(FP16.width)}
        if self.what.layernorm:
            members["shift"] = In(signed_shape(SCALE_EXPONENT_BITS))
            members["mean"] = In(self.numerics.window)
        members["scale_exponent"] = In(signed_shape(SCALE_EXPONENT_BITS))
        members["isd"] = In(ISD_BITS)
        if self.what.cast_before_gamma:
            members["cast"] = In(1)
        if self.what.gamma:
            self.gamma_layout = GammaLayout(self.what)
            members["gamma"] = In(self.gamma_layout.width)
        if self.what.beta:
            self.beta_layout = BetaLayout(self.what)
            members["beta"] = In(self.beta_layout.width)
        if self.what.int8:
            members["int8"] = In(1)
        members |= {"nan": In(1), "y": Out(FP16.width), "overflow": Out(1)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = Pipe(m, self.cuts)
        sign, significand, bit_length, carry, nan = self._centre(m, p)
        # A register of the lane's own: from one for all lanes the way to the multipliers is long.
        isd = p.input(self.isd)
        p.cut("round_d")
        exponent = add_carry(p(bit_length), self.scale_exponent, p(carry), 10)
        exponent = p.let("d_exponent", self._exponent(exponent))
        product = p.let("d_isd", p(significand) * p(isd))
        small = self._subnormal_mask(p, exponent) if self.what.cast_before_gamma else None
        p.cut("scale")
        xhat, exponent, carry, zero = self._round_xhat(m, p, product, exponent, small)
        p.cut("round_x")
        if self.what.gamma:
            product, exponent, sign, zero, nan = self._gamma(
                p, xhat, exponent, carry, sign, zero, nan
            )
            p.cut("gamma")
        else:
            product = p.let(
                "x_wide", Cat(Const(0, self.numerics.gamma_bits - 1), p(xhat), Const(0, 1))
            )
            exponent = p.let("product_exponent", self._exponent(p(exponent) + p(carry)))
        if self.what.beta:
            self._add_beta(m, p, product, exponent, sign, zero, nan)
        else:
            self._round(m, p, product, exponent, sign, zero, nan)
        p.cut("pack")
        m.d.comb += [self.y.eq(p(self._result)), self.overflow.eq(p(self._infinite))]
        what = self.what
        assert tuple(p.passed) == lane_cuts(
            layernorm=what.layernorm,
            gamma=what.gamma,
            beta=what.beta,
            int8=what.int8,
            integer=False,
        ), p.passed
        return m

    def _exponent(self, value: Value) -> Value:
        """An exponent cut to the bits that it can need: 8 with FP16 parameters, 9 with FP32's wider exponents."""
        return value[: 9 if self.what.parameters is FP32 else 8].as_signed()

    def _element(self, p: Pipe) -> tuple[Staged, Staged, Staged, Staged]:
        """Sign, 11-bit significand, max(E, 1) and non-finite of z."""
        field = self.z[10:15]
        subnormal = field == 0
        return (
            p.let("z_sign", self.z[15]),
            p.let("z_significand", Cat(self.z[:10], ~subnormal)),
            p.let("z_exponent", Cat(field[0] | subnormal, field[1:])),
            p.let("z_nonfinite", field.all() if self.what.starts_early else Const(0, 1)),
        )

    def _centre(self, m: Module, p: Pipe) -> tuple[Staged, Staged, Staged, Staged, Staged]:
        """(sign, 18-bit significand, n − 1 in two parts, non-finite) of d. What a rounding carries into an exponent is added with the
        next exponent: one carry chain doesn't wait for the other."""
        z_sign, z_significand, z_exponent, nonfinite = self._element(p)
        if not self.what.layernorm:
            zeros = leading_zeros(m, "z_zeros", p(z_significand))
            top = top_bits(m, "z_top", p(z_significand), zeros[:4], 11)
            significand = p.let("d_significand", Cat(Const(0, D_BITS - 11), top))
            length = p.let("d_length", p(z_exponent) + 9 - zeros)
            return z_sign, significand, length, p.let("d_carry", Const(0, 1)), nonfinite
        width = self.numerics.window
        amount_bits = clog2(width + _BELOW + 1)
        amount = Signal(signed_shape(SCALE_EXPONENT_BITS + 1), name="z_amount")
        m.d.comb += amount.eq(p(z_exponent) + self.shift)
        inside = p.let("z_inside", ~amount[amount_bits:].any())
        amount = p.let("z_shift", amount[:amount_bits])
        p.cut("shift_amount")
        gated = p.let("z_gated", Mux(p(inside), p(z_significand), 0))
        aligned = shift_left(m, "z_aligned", p(gated), p(amount), width + _BELOW)
        window = p.let("z_window", aligned[_BELOW:])
        p.cut("align")
        minus = ~p(z_sign)
        delta = p.let(
            "delta", add_carry(p(window), self.mean ^ minus.replicate(width), minus, width)
        )
        p.cut("subtract")
        negative = p.let("delta_negative", p(delta)[-1])
        zeros = p.let(
            "d_zeros",
            leading_zeros(m, "d_zeros", p(delta)[:-1] ^ p(negative).replicate(width - 1)),
        )
        p.cut("count")
        inverted = p(delta)[:-1] ^ p(negative).replicate(width - 1)
        top = top_bits(m, "d_top", inverted, p(zeros), D_BITS + 1, fill=p(negative))
        top = p.let("d_top", top)
        p.cut("normalize")
        rounded = Signal(D_BITS + 1, name="d_rounded")
        m.d.comb += rounded.eq(p(top)[1:] + p(top)[0])
        significand = Cat(rounded[: D_BITS - 1], rounded[D_BITS - 1] | rounded[D_BITS])
        length = p.let("d_length", width - 2 - p(zeros))
        carry = p.let("d_carry", rounded[D_BITS])
        sign = p.let("d_sign", p(z_sign) ^ p(negative))
        return sign, p.let("d_significand", significand), length, carry, nonfinite

    def _subnormal_mask(self, p: Pipe, exponent: Staged) -> Staged:
        """Thermometer of the places that x-hat loses below FP16's smallest subnormal, for a product below 2^34; 13 places."""
        loss = 1 - p(exponent)
        mask = Cat(*[loss > place for place in range(13)])
        return p.let("x_loss", mask)

    def _round_xhat(
        self, m: Module, p: Pipe, product: Staged, exponent: Staged, loss: Staged | None
    ) -> tuple[Staged, Staged, Staged, Staged]:
        """(x-hat, 18 bits; its exponent in two parts; zero) from d·isd."""
        wide = p(product)
        high = wide[-1]
        normal = Mux(high, wide, wide << 1)[: len(wide)]
        rounded = Signal(D_BITS + 1, name="x_rounded")
        m.d.comb += rounded.eq(normal[17:] + normal[16])
        zero = ~(wide[-1] | wide[-2])
        if loss is not None:
            mask = Mux(high, p(loss)[1:], p(loss)[:12])
            kept = normal[24:]
            guards = Cat(normal[23], kept)
            ladder = Cat(Const(1, 1), mask[:11])
            guard = (guards & (ladder & ~mask)).any()
            below = normal[:23].any() | (guards & mask).any()
            odd = (kept & (ladder[:11] & ~mask[:11])).any()
            up = guard & (below | odd)
            cast = Signal(12, name="x_cast")
            m.d.comb += cast.eq((kept | mask[:11]) + up)
            grid = Cat(Const(0, D_BITS - 11), cast[:11] & ~mask[:11], cast[11])
            rounded = Mux(self.cast, grid, rounded)
            vanished = mask[11] | (mask[10] & ~cast[11])
            zero = zero | (self.cast & vanished)
        xhat = p.let("x", Cat(rounded[: D_BITS - 1], rounded[D_BITS - 1] | rounded[D_BITS]))
        exponent = p.let("x_exponent", self._exponent(p(exponent) + high))
        return xhat, exponent, p.let("x_carry", rounded[D_BITS]), p.let("x_zero", zero)

    def _gamma(
        self,
        p: Pipe,
        xhat: Staged,
        exponent: Staged,
        carry: Staged,
        sign: Staged,
        zero: Staged,
        nan: Staged,
    ) -> tuple[Staged, Staged, Staged, Staged, Staged]:
        """The exact product with gamma."""
        gamma = self.gamma_layout.unpack(self.gamma)
        # A gamma of zero is told beside the product: nothing stands between its register and the multiplier.
        product = p.let("x_gamma", p(xhat) * Cat(gamma.fraction, Const(1, 1)))
        power = self._exponent(add_carry(p(exponent), gamma.exponent, p(carry), 10))
        return (
            product,
            p.let("product_exponent", power),
            p.let("product_sign", p(sign) ^ gamma.sign),
            p.let("product_zero", p(zero) | gamma.zero),
            p.let("product_nan", p(nan) | gamma.poison),
        )

    def _round(
        self,
        m: Module,
        p: Pipe,
        product: Staged,
        exponent: Staged,
        sign: Staged,
        zero: Staged,
        nan: Staged,
    ) -> None:
        """One rounding of the product to FP16, subnormals included."""
        wide = p(product)
        high = wide[-1]
        kept = Mux(high, wide[-12:], wide[-13:-1]) & (~p(zero)).replicate(12)
        sticky = (wide[:-13].any() | (high & wide[-13])) & ~p(zero)
        scale = p.let("scale", p(exponent) + high)
        int8 = p.input(self.int8) if self.what.int8 else None
        loss = (1 if int8 is None else Mux(p(int8), INTEGER_FIELD, 1)) - p(scale)
        subnormal = loss > 0
        amount = Mux(loss[4:].any() | loss[:4].all(), 15, loss[:4])
        amount = Mux(subnormal, amount, 0)[:4]
        shifted = shift_right_jam(m, "y_shifted", Cat(sticky, kept), amount)
        significand = p.let("y_significand", shifted)
        field = p.let("y_field", Mux(p(zero) | subnormal, 0, p(scale)))
        sign = p.let("y_sign", p(sign) & ~p(zero))
        p.cut("denormalize")
        kept, guard, sticky = p(significand)[2:], p(significand)[1], p(significand)[0]
        up = guard & (sticky | kept[0])
        self._pack(m, p, sign, field, kept, up, nan, int8)

    def _add_beta(
        self,
        m: Module,
        p: Pipe,
        product: Staged,
        exponent: Staged,
        sign: Staged,
        zero: Staged,
        nan: Staged,
    ) -> None:
        """product + beta with one rounding to FP16. The sum is kept as its one's complement where it is negative: the rounding
        sees an endless row of ones below, so no carry is spent on the absolute value."""
        bits, beta_bits = self.numerics.product_bits, self.numerics.beta_bits
        frame = max(bits, beta_bits) + 1
        beta = self.beta_layout.unpack(self.beta)
        wide = p(product)
        high = wide[-1]
        kept = Mux(high, wide[-bits:], wide[-bits - 1 : -1])
        lost = wide[: -bits - 1].any() | (high & wide[-bits - 1])
        term = p.let("term", Mux(p(zero), 0, Cat(kept[0] | lost, kept[1:])))
        # The exponent fields' difference; beta's is one more than its code.
        size = len(p(exponent)) + 1
        distance = add_carry(p(exponent), (~Cat(beta.code, Const(0, 1))).as_signed(), high, size)
        distance = p.let("distance", distance.as_signed())
        product_leads = p.let("product_leads", ~p(distance)[-1] & ~p(zero))
        field = p.let("product_field", self._exponent(p(exponent) + high))
        mantissa, code = p.let("beta_mantissa", beta.mantissa), p.let("beta_code", beta.code)
        subtract = p.let("subtract", p(sign) ^ beta.sign)
        leading_sign = p.let("leading_sign", Mux(p(product_leads), p(sign), beta.sign))
        nan = p.let("sum_nan", p(nan) | beta.poison)
        p.cut("odd")
        beta_frame = Cat(Const(0, frame - beta_bits), p(mantissa))
        # A trailing product starts one place down, so that its distance is the inverted one without a carry.
        leading = Mux(p(product_leads), Cat(Const(0, frame - bits), p(term)), beta_frame)
        trailing = Mux(
            p(product_leads), beta_frame, Cat(Const(0, frame - bits - 1), p(term), Const(0, 1))
        )
        away = p(distance).as_unsigned() ^ (~p(product_leads)).replicate(len(p(distance)))
        far = away[5:].any()
        shifted = shift_right_jam(m, "trailing_shifted", trailing, away[:5] | far.replicate(5))
        leading, trailing = p.let("leading", leading), p.let("trailing", shifted)
        limit = p.let(
            "limit", Mux(p(product_leads), p(field), Cat(p(code), Const(0, 1)).as_signed() + 1)
        )
        p.cut("align_beta")
        total = Signal(frame + 2, name="total")
        inverted = Cat(p(trailing), Const(0, 2)) ^ p(subtract).replicate(frame + 2)
        m.d.comb += total.eq(add_carry(p(leading), inverted, p(subtract), frame + 2))
        negative = p.let("negative", total[-1])
        magnitude = p.let("magnitude", total[:-1] ^ total[-1].replicate(frame + 1))
        p.cut("add_beta")
        zeros = p.let("sum_zeros", leading_zeros(m, "sum_zeros", p(magnitude)))
        p.cut("count_sum")
        normal = p(limit) >= p(zeros)
        amount = p.let("sum_shift", Mux(normal, p(zeros), p(limit)[: len(p(zeros))]))
        zero = p.let("sum_zero", (p(zeros) == frame + 1) & ~p(negative))
        field = self._exponent(p(limit) + 1 - p(zeros))
        field = p.let("sum_field", Mux(normal & ~p(zero), field, 0))
        p.cut("limit_sum")
        top = top_bits(m, "sum_top", p(magnitude), p(amount), frame + 1, fill=p(negative))
        sign = p.let("y_sign", (p(leading_sign) ^ p(negative)) & ~p(zero))
        field = p.let("y_field", p(field))
        kept, guard, rest = top[-11:], top[-12], top[:-12]
        if not self.what.int8:
            tie_or_more = Mux(
                p(negative), guard | (rest.all() & kept[0]), guard & (rest.any() | kept[0])
            )
            y_kept, y_up = p.let("y_kept", kept), p.let("y_up", tie_or_more)
            p.cut("normalize_sum")
            self._pack(m, p, sign, field, p(y_kept), p(y_up), nan, None)
            return
        body = p.let("y_body", Cat(guard, kept))
        # What is lost counts where it differs from the endless row behind it.
        lost = p.let("y_lost", (rest ^ p(negative).replicate(len(rest))).any())
        p.cut("normalize_sum")
        int8 = p.input(self.int8)
        loss = Mux(p(int8), INTEGER_FIELD - p(field), 0).as_signed()
        amount = Mux(loss[-1], 0, Mux(loss[4:].any(), 15, loss[:4]))[:4]
        shifted = p.let("y_shifted", p(body) >> amount)
        below = Cat(amount > place for place in range(len(body.signal)))
        differs = ((p(body) ^ p(negative).replicate(len(body.signal))) & below).any()
        sticky = p.let("y_sticky", p(lost) | differs)
        integer = p.let("y_integer", p(int8) & ~loss[-1] & loss.any())
        p.cut("denormalize")
        kept, guard = p(shifted)[1:], p(shifted)[0]
        above = Mux(p(negative), guard | (~p(sticky) & kept[0]), guard & (p(sticky) | kept[0]))
        field = p.let("integer_field", Mux(p(integer), 0, p(field)))
        self._pack(m, p, sign, field, kept, above, nan, int8)

    def _pack(
        self,
        m: Module,
        p: Pipe,
        sign: Staged,
        field: Staged,
        kept: Value,
        up: Value,
        nan: Staged,
        int8: Staged | None,
    ) -> None:
        """Joins the fields; the carry of the rounding runs into the exponent, up to infinity. An INT8 result stands where FP16's
        smallest numbers do."""
        code, minus = p(field), p(sign)
        body = Cat(kept[:10], code[:5]) + up
        # The carry may run through an exponent field that is all ones already.
        infinite = (~code[-1] & code[5:].any()) | body[10:15].all() | body[15]
        none = p(nan) | self.nan
        bits = Mux(infinite, FP16.max_exponent_field << FP16.fraction_bits, body[:15])[:15]
        result, beyond = Mux(none, FP16.quiet_nan, Cat(bits, minus)), infinite
        if int8 is not None:
            magnitude = named(m, "y_magnitude", bits)
            large = magnitude[INT8.width - 1 :].any()
            number = Mux(large, INT8.largest, magnitude[: INT8.width - 1])
            number = (number ^ minus.replicate(INT8.width)) + (minus & ~large)
            saturates = large & ~(minus & (magnitude == -INT8.least))
            result = Mux(p(int8), Mux(none, 0, number[: INT8.width]), result)
            beyond = Mux(p(int8), saturates, infinite)
        self._result = p.let("result", result)
        self._infinite = p.let("infinite", beyond & ~none)
