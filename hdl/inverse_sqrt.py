# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The inverse square root: a first estimate without multiplications, then Newton steps."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Configuration
from ..latency import inverse_sqrt_latency
from ..numerics import (
    FACTOR_FRACTION_BITS,
    ISD_BITS,
    RESIDUAL_FRACTION_BITS,
    T_FRACTION_BITS,
    VARIANCE_BITS,
    X_FRACTION_BITS,
    Y_FRACTION_BITS,
)
from ..seeds import CLASSIC_MAGIC, ESTIMATE_BITS, SEGMENTS, TUNED_A, TUNED_B, TUNED_MAGIC
from .arithmetic import add_rows, multiply, product
from .pipe import Pipe, Staged, signed_shape

X_BITS = X_FRACTION_BITS + 2
FACTOR_BITS = FACTOR_FRACTION_BITS + 1
"""Width of a Newton step's factor, below 2."""


class InverseSqrtUnit(wiring.Component):
    """isd ≈ 1/√x for x in [1, 4); `docs/numerics.md`, section 5.

    Latency: `haan.latency.inverse_sqrt_latency`. Throughput: one x every `isd_interval` cycles.

    Members
    -------
    i_valid : x is there (used only where isd_interval > 1)
    x : 22 bits, 20 of them fraction
    isd : significand, 17 bits, leading bit set
    exponent : of that significand, signed: 1/√x ≈ isd/2^16 · 2^exponent, in −3..0
    wide, wide_exponent : 24 bits of it, truncated, for builds with INT8: wide/2^23 · 2^wide_exponent
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.how = configuration.how
        members = {
            "i_valid": In(1),
            "x": In(X_BITS),
            "isd": Out(ISD_BITS),
            "exponent": Out(signed_shape(3)),
        }
        if configuration.what.int8:
            members |= {"wide": Out(VARIANCE_BITS), "wide_exponent": Out(signed_shape(3))}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = Pipe(m, self.how.cuts, products=self.how.products, valid=self.i_valid)
        x = p.input(self.x)
        y = p.let("estimate", self._estimate(m, p))
        p.cut("seed")
        width = ESTIMATE_BITS[self.how.seed]
        refined = p.let("unrefined", Cat(Const(0, FACTOR_FRACTION_BITS), p(y)))
        for step in range(self.how.newton_steps):
            if step:
                low = width + FACTOR_FRACTION_BITS - Y_FRACTION_BITS
                y, width = p.let(f"y{step}", p(refined)[low:]), Y_FRACTION_BITS
            tuned = self.how.seed == "tuned" and step == 0
            refined = self._step(p, f"step{step}", x, y, width, tuned)
        self._round(m, p, refined, width + FACTOR_FRACTION_BITS)
        return m

    def _estimate(self, m: Module, p: Pipe) -> Value:
        odd = self.x[-1]
        fraction = Mux(odd, self.x[1:-1], self.x[:-2])
        if self.how.seed != "segmented":
            difference = p.let("magic_bits", self._magic(odd, fraction))
            p.cut("segment")
            return self._fixed_point(p(difference))
        table = SEGMENTS[self.how.segments, self.how.segment_slopes]
        bits = (self.how.segments // 2).bit_length() - 1
        index = Cat(fraction[X_FRACTION_BITS - bits :], odd)
        rest = p.let("segment_rest", fraction[: X_FRACTION_BITS - bits])
        constant = p.let("segment_constant", Array(Const(c, 14) for c, _ in table)[index])
        slope = p.let("segment_slope", Array(Const(q, 4) for _, q in table)[index])
        p.cut("segment")
        # Slopes of one or two bits: q·r is at most one addition, and q = 8, 4, 2 are shifts.
        slope, rest = p(slope), p(rest)
        base = Mux(slope[3], rest << 3, Mux(slope[2], rest << 2, rest << 1))
        extra = Mux(slope[1] & slope[2], rest << 1, Mux(slope[0], rest, 0))
        drop = Signal(len(rest) + 4, name="segment_drop")
        m.d.comb += drop.eq(base + extra)
        difference = Signal(14, name="segment_estimate")
        m.d.comb += difference.eq(p(constant) - drop[11:])
        return Mux(difference[13], (1 << 13) - 1, difference[:13])

    def _magic(self, odd: Value, fraction: Value) -> Value:
        """`magic − (i >> 1)` on FP32 bits."""
        magic = CLASSIC_MAGIC if self.how.seed == "classic" else TUNED_MAGIC
        bits = Cat(Const(0, 3), fraction, *[~odd] * 7, odd)
        return (magic - (bits >> 1))[:32]

    def _fixed_point(self, bits: Value) -> Value:
        """An FP32 number with exponent field 125 to 127, in [1/4, 2), as a fixed-point one with 16 fraction bits."""
        significand = Cat(bits[:23], Const(1, 1))
        below_one = Mux(bits[23], significand >> 9, significand >> 8)
        return Mux(bits[23:25] == 3, significand >> 7, below_one)[:17]

    def _step(self, p: Pipe, name: str, x: Staged, y: Staged, width: int, tuned: bool) -> Staged:
        """One Newton step; returns y·factor in units of 2^-(width + 25)."""
        square = product(p, f"{name}_square", y, y)
        low = max(0, 2 * width - T_FRACTION_BITS)
        t = p(square)[low:]
        t = p.let(f"{name}_t", Cat(Const(0, T_FRACTION_BITS - 2 * width), t) if not low else t)
        rows = multiply(p, f"{name}_xt", x, t)
        unit = X_FRACTION_BITS + T_FRACTION_BITS
        total = add_rows(p, f"{name}_residual", [], rows, unit + 3, constant=1 << unit)
        residual = p.let(f"{name}_r", p(total)[unit - RESIDUAL_FRACTION_BITS :].as_signed())
        if tuned:
            factor = self._tuned_factor(p, residual)
        else:
            one = 1 << FACTOR_FRACTION_BITS
            factor = p.let(f"{name}_factor", (p(residual) + one)[: FACTOR_BITS + 1])
        p.cut("residual")
        rows = multiply(p, f"{name}_y", factor, y)
        return add_rows(p, f"{name}_refined", rows, [], width + FACTOR_FRACTION_BITS + 2)

    def _tuned_factor(self, p: Pipe, residual: Staged) -> Staged:
        """c0 + ⌊c1·r/2^24⌋; r is made non-negative for the unsigned product by an offset that is taken out again."""
        c0 = round((TUNED_A - TUNED_B) * 2**FACTOR_FRACTION_BITS)
        c1 = round(TUNED_B * 2**FACTOR_FRACTION_BITS)
        offset = 1 << RESIDUAL_FRACTION_BITS
        shifted = p.let("tuned_r", (p(residual) + offset)[: RESIDUAL_FRACTION_BITS + 2])
        p.cut("residual")
        rows = multiply(
            p, "tuned_product", shifted, p.let("tuned_c1", Const(c1, FACTOR_FRACTION_BITS))
        )
        total = add_rows(
            p, "tuned_scaled", rows, [], RESIDUAL_FRACTION_BITS + FACTOR_FRACTION_BITS + 2
        )
        factor = p(total)[RESIDUAL_FRACTION_BITS:] + (c0 - c1)
        return p.let("tuned_factor", factor[: FACTOR_BITS + 1])

    def _round(self, m: Module, p: Pipe, refined: Staged, one: int) -> None:
        """Nearest 17 bits of y in units of 2^-one; y in [1/4, 2)."""
        value = p(refined)
        value = Cat(value, Const(0, one + 2 - len(value))) if len(value) < one + 2 else value
        high, middle = value[one], value[one - 1]
        step = one - ISD_BITS - 2
        windows = [value[low : low + ISD_BITS + 1] for low in (step, step + 1, step + 2)]
        kept = Mux(high, windows[2], Mux(middle, windows[1], windows[0]))
        rounded = Signal(ISD_BITS + 1, name="isd_rounded")
        m.d.comb += rounded.eq(kept[1:] + kept[0])
        carry = rounded[ISD_BITS]
        exponent = Mux(high, 0, Mux(middle, -1, -2)) + carry
        isd = p.let("isd_", Cat(rounded[: ISD_BITS - 1], rounded[ISD_BITS - 1] | carry))
        exponent = p.let("exponent_", exponent)
        if self.configuration.what.int8:
            lows = [one - VARIANCE_BITS + place for place in (-1, 0, 1)]
            parts = [value[low : low + VARIANCE_BITS] for low in lows]
            wide = p.let("wide_", Mux(high, parts[2], Mux(middle, parts[1], parts[0])))
            wide_exponent = p.let("wide_exponent_", Mux(high, 0, Mux(middle, -1, -2)))
        p.cut("round_isd")
        assert p.now == inverse_sqrt_latency(self.configuration), p.now
        m.d.comb += [self.isd.eq(p(isd)), self.exponent.eq(p(exponent))]
        if self.configuration.what.int8:
            m.d.comb += [self.wide.eq(p(wide)), self.wide_exponent.eq(p(wide_exponent))]
