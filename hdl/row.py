# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""From the sums of a row to what its elements need: the window, the mean in it, and the ISD."""

from collections.abc import Callable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Configuration
from ..formats import FP16, FP32
from ..latency import RowTimes
from ..numerics import (
    EXPONENT_BITS,
    INTEGER_ISD_BITS,
    ISD_BITS,
    SCALE_EXPONENT_BITS,
    SUBSAMPLED_LSB,
    VARIANCE_BITS,
    WINDOW_GUARD,
    X_FRACTION_BITS,
    Numerics,
)
from .arithmetic import (
    add_rows,
    leading_zeros,
    low_bits,
    multiply,
    named,
    product,
    top_bits,
    wide_add,
)
from .int8 import norm24, round_scaled
from .integer import fixed_isd, mean_in_isds
from .inverse_sqrt import InverseSqrtUnit
from .pipe import Pipe, Staged, signed_shape
from .statistics_stream import isd_number, mean_number


class RowUnit(wiring.Component):
    """Variance, + eps, inverse square root; mean; window. One row every `isd_interval` cycles.

    `docs/numerics.md`, sections 4 to 6. Latencies: `haan.latency.RowTimes`.

    Members
    -------
    i_valid : a row's sums and settings are there
    s1, s2 : from the statistics unit
    rmsnorm, n, inverse_square, inverse_square_exponent, eps : settings (N of the statistics)
    reciprocal, reciprocal_shift : settings for the mean (builds with LayerNorm)
    subsampled : N_sub < N (builds with subsampling)
    shift : for the lanes; with zero_variance, at `RowTimes.window`
    mean : for the lanes, at `RowTimes.mean`
    isd, exponent : the ISD, at `RowTimes.isd`; the exponent in builds with skipping alone
    scale, scale_exponent : for the lanes, at `RowTimes.scale`; with INT8 alone in fixed point, without an exponent
    int8 : the elements are INT8 (builds with both formats); x_scale : their scale, or 1 (builds with INT8)
    mean_number, isd_number : in FP32, at `RowTimes.numbers` (builds with statistics_stream)
    predicted : another ISD takes its place (builds with skipping); roots : an inverse square root begins
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.what, self.how = configuration.what, configuration.how
        self.numerics = numerics = Numerics(configuration)
        members: dict[str, wiring.Member] = {
            "i_valid": In(1),
            "s2": In(numerics.s2_bits),
            "rmsnorm": In(1),
            "n": In(numerics.n_bits),
            "inverse_square": In(VARIANCE_BITS),
            "inverse_square_exponent": In(6),
            "eps": In(32),
            "zero_variance": Out(1),
            "roots": Out(1),
            "isd": Out(ISD_BITS),
            "scale": Out(ISD_BITS),
            "scale_exponent": Out(signed_shape(SCALE_EXPONENT_BITS)),
        }
        if self.what.layernorm:
            members |= {
                "s1": In(signed_shape(numerics.s1_bits)),
                "reciprocal": In(numerics.reciprocal_precision + 1),
                "reciprocal_shift": In(5),
            }
        if self.what.integer:
            members["scale"] = Out(INTEGER_ISD_BITS)
            del members["scale_exponent"]
            if self.what.layernorm:
                members["mean"] = Out(signed_shape(numerics.integer_mean_bits))
        elif self.what.layernorm:
            members |= {
                "shift": Out(signed_shape(SCALE_EXPONENT_BITS)),
                "mean": Out(numerics.window),
            }
        if self.what.subsampling:
            members["subsampled"] = In(1)
        if self.what.skipping:
            members |= {"predicted": In(1), "exponent": Out(signed_shape(EXPONENT_BITS))}
        if self.what.int8:
            members["x_scale"] = In(32)
        if self.what.mixed:
            members["int8"] = In(1)
        if self.what.statistics_stream:
            members |= {"mean_number": Out(32), "isd_number": Out(32)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = Pipe(m, self.how.cuts, products=self.how.products, valid=self.i_valid)
        times = RowTimes(self.configuration)
        inverse = (p.input(self.inverse_square), p.input(self.inverse_square_exponent))
        if self.what.int8:
            self.no_scale = p.let("no_scale", ~self.x_scale.any())
            self.integer = p.input(self.int8 if self.what.mixed else Const(1, 1))
            self.scale_field = p.let("scale_significand", Cat(self.x_scale[:23], Const(1, 1)))
            self.scale_power = p.let("scale_power", self.x_scale[23:31] - FP32.bias)
            inverse = self._scale_square(p, *inverse)
            p.now = 0
        eps, rmsnorm = p.input(self.eps), p.input(self.rmsnorm)
        subsampled = p.input(self.subsampled) if self.what.subsampling else None
        predicted = p.input(self.predicted) if self.what.skipping else rmsnorm
        v, mean = self._spread(m, p)
        total, exponent, zero = self._add_eps(m, p, v, inverse, eps)
        k = p.let("k", (p(exponent) >> 1)[: EXPONENT_BITS - 1].as_signed())
        x = p.let("x", Mux(p(exponent)[0], p(total)[2:], p(total)[3:])[: X_FRACTION_BITS + 2])
        sums = p.now
        m.d.comb += self.zero_variance.eq(p.at(zero, times.window))
        if self.what.integer:
            lsb = None
        elif mean is None:
            lsb = p.let("lsb", Const(FP16.lsb_exponent, signed_shape(SCALE_EXPONENT_BITS)))
            assert p.now == times.window, (p.now, times.window)
        else:
            lsb = self._window(m, p, k, rmsnorm, subsampled, mean)
            assert p.now == times.mean, (p.now, times.mean)
        m.submodules.root = root = InverseSqrtUnit(self.configuration)
        needed = p.valid(sums)
        if self.what.skipping:
            needed = needed & ~p.at(predicted, sums)
        m.d.comb += [self.roots.eq(needed), root.i_valid.eq(needed), root.x.eq(p.at(x, sums))]
        p.now = times.isd
        m.d.comb += self.isd.eq(root.isd)
        if self.what.skipping:
            m.d.comb += self.exponent.eq(root.exponent - p(k))
        if self.what.statistics_stream:
            self._tell(m, p, root, k, zero, rmsnorm, mean)
            p.now = times.isd
        if self.what.int8:
            scale, exponent, zero = self._scale_isd(m, p, root, k, zero)
        else:
            scale, exponent = p.input(root.isd), p.input(root.exponent - p(k), "isd_exponent")
        if lsb is None:
            self._fix(m, p, scale, exponent, zero, rmsnorm, mean)
            return m
        assert p.now == times.scale, (p.now, times.scale)
        m.d.comb += [
            self.scale.eq(Mux(p(zero), 0, p(scale))),
            self.scale_exponent.eq(p(lsb) + FP16.bias + p(exponent)),
        ]
        return m

    def _fix(
        self,
        m: Module,
        p: Pipe,
        scale: Staged,
        exponent: Staged,
        zero: Staged,
        rmsnorm: Staged,
        mean: Staged | None,
    ) -> None:
        """ISD and mean in fixed point, for the lanes of builds with INT8 alone."""
        times = RowTimes(self.configuration)
        significand = p(scale) & (~p(zero)).replicate(ISD_BITS)
        fixed = fixed_isd(m, significand, p(exponent), self.numerics.x_fraction)
        isd = p.let("isd_fixed_", fixed)
        p.cut("fix_isd")
        assert p.now == times.scale, (p.now, times.scale)
        m.d.comb += self.scale.eq(p(isd))
        if mean is not None:
            biased = p.let("mean_biased", Cat(p(mean)[:-1], ~p(mean)[-1]))
            result = mean_in_isds(p, biased, isd, rmsnorm, self.numerics)
            p.cut("window_mean")
            assert p.now == times.mean, (p.now, times.mean)
            m.d.comb += self.mean.eq(p(result))

    def _tell(
        self,
        m: Module,
        p: Pipe,
        root: InverseSqrtUnit,
        k: Staged,
        zero: Staged,
        rmsnorm: Staged,
        mean: Staged | None,
    ) -> None:
        """Mean and ISD in FP32, at `RowTimes.numbers`."""
        times = RowTimes(self.configuration)
        isd = isd_number(root.isd, root.exponent - p(k))
        isd = p.let("isd_number_", Mux(p(zero), 0, isd))
        m.d.comb += self.isd_number.eq(p.at(isd, times.numbers))
        if mean is not None:
            scale = None
            if self.what.int8:
                scale = (self.scale_field, self.scale_power, self.no_scale)
            p.now = mean.born
            lsb = FP16.lsb_exponent - self.numerics.mean_fraction
            number = mean_number(m, p, mean, lsb, scale)
            assert max(p.now, times.isd) == times.numbers, (p.now, times.numbers)
            none = p.at(rmsnorm, times.numbers)
            m.d.comb += self.mean_number.eq(Mux(none, 0, p.at(number, times.numbers)))

    def _scale_square(self, p: Pipe, square: Staged, exponent: Staged) -> tuple[Staged, Staged]:
        """1/N² times the square of the scale: significand, and the exponent, negative as in the settings."""
        squared, high = norm24(p, "scale_squared", self.scale_field, self.scale_field)
        scaled, carry = norm24(p, "scaled_square", square, squared)
        places = p(exponent) - (p(self.scale_power) << 1) - p(high) - p(carry)
        return scaled, p.let("scaled_exponent", self._exponent(places))

    def _scale_isd(
        self, m: Module, p: Pipe, root: InverseSqrtUnit, k: Staged, zero: Staged
    ) -> tuple[Staged, Staged, Staged]:
        """The ISD times the scale: significand, exponent, whether it is 0."""
        exponent = p.let("wide_power", root.wide_exponent - p(k))
        total = product(p, "scaled_isd", p.input(root.wide), self.scale_field)
        power = p(exponent) + p(self.scale_power)
        scaled, power, none = round_scaled(m, "scaled", p(total), power, p(self.integer))
        significand, power = p.let("scaled_", scaled), p.let("scaled_power", power)
        zero = p.let("scaled_zero", p(zero) | none | p(self.no_scale))
        p.cut("scale_isd")
        return significand, power, zero

    def _spread(self, m: Module, p: Pipe) -> tuple[Staged, Staged | None]:
        """V = N·S2 − S1² (RMSNorm: N·S2), and the mean."""
        numerics = self.numerics
        n, s2 = p.input(self.n), p.input(self.s2)
        if not self.what.layernorm:
            return add_rows(p, "v", multiply(p, "ns2", s2, n), [], numerics.v_bits), None
        negative = self.s1[-1]
        size = numerics.s1_bits - 1
        inverted = self.s1[:size] ^ negative.replicate(size)
        magnitude = wide_add(m, "s1_absolute", inverted, Const(0, size), size, negative)
        magnitude = p.let("s1_magnitude", Mux(self.rmsnorm, 0, magnitude))
        raised = self.s1[numerics.z_bits :].as_signed() + self.n
        biased = Cat(self.s1[: numerics.z_bits], raised[: numerics.growth + 1])
        biased = p.let("s1_biased", biased)
        reciprocal, places = p.input(self.reciprocal), p.input(self.reciprocal_shift)
        p.cut("absolute_sum")
        start = p.now
        mean = self._divide(m, p, biased, reciprocal, places)
        p.now = start
        squares = multiply(p, "s1_squared", magnitude, magnitude)
        end, p.now = p.now, start
        scaled = multiply(p, "ns2", s2, n)
        p.now = max(p.now, end)
        v = add_rows(p, "v_signed", scaled, squares, numerics.v_bits + 1, deep=True)
        if numerics.dropped_square_bits:
            # What the squares lost may put the difference below zero.
            return p.let("v", p(v)[:-1] & (~p(v)[-1]).replicate(numerics.v_bits)), mean
        return p.let("v", p(v)[:-1]), mean

    def _divide(
        self, m: Module, p: Pipe, biased: Staged, reciprocal: Staged, places: Staged
    ) -> Staged:
        """floor(S1·2^F/N) as a signed number: exact by the choice of the reciprocal, its bias a single bit."""
        numerics = self.numerics
        rows = multiply(p, "mean_product", biased, reciprocal)
        width = numerics.biased_sum_bits + numerics.reciprocal_precision + 1
        total = add_rows(p, "mean_total", rows, [], width, deep=True)
        drop = numerics.reciprocal_precision - numerics.mean_fraction
        kept = numerics.z_bits + 1 + numerics.mean_fraction
        mean = low_bits(m, "mean_quotient", p(total)[drop:], p(places), kept)
        mean = p.let("mean_exact", Cat(mean[:-1], ~mean[-1]))
        p.cut("align_mean")
        return mean

    def _add_eps(
        self, m: Module, p: Pipe, v: Staged, inverse: tuple[Staged, Staged], eps: Staged
    ) -> tuple[Staged, Staged, Staged]:
        """(24-bit significand, exponent, zero) of V/N² + eps."""
        width = self.numerics.v_bits
        # Leading zeros in two steps: first whole groups of sixteen.
        groups = [p(v)[max(high - 16, 0) : high].any() for high in range(width, 0, -16)]
        coarse = p.let("v_groups", leading_zeros(m, "v_groups", Cat(*reversed(groups))))
        p.cut("coarse_variance")
        near = top_bits(m, "v_near", p(v), Cat(Const(0, 4), p(coarse)), VARIANCE_BITS + 15)
        near = p.let("v_near", near)
        p.cut("count_variance")
        p.wait(*inverse)
        fine = leading_zeros(m, "v_fine", p(near)[-16:])
        significand = p.let("v_top", top_bits(m, "v_top", p(near), fine[:4], VARIANCE_BITS))
        zeros = Cat(fine[:4], p(coarse))
        nothing = ~p(near).any()
        if self.what.int8:
            nothing = nothing | p(self.no_scale)
        v_zero = p.let("v_zero", nothing)
        field = p(eps)[23:31]
        base = p.let(
            "v_base",
            self._exponent(width + 2 * self.numerics.lsb_exponent - 1 - zeros - p(inverse[1])),
        )
        eps_exponent = p.let("eps_exponent", self._exponent(field - 127))
        eps_zero = p.let("eps_zero", field == 0)
        p.cut("normalize_variance")
        distance = p.let("base_distance", self._exponent(p(base) - p(eps_exponent)))
        scaled = product(p, "variance_product", significand, inverse[0])
        high = p(scaled)[-1]
        variance = p.let("variance", Mux(high, p(scaled)[24:], p(scaled)[23:-1]))
        exponent = p.let("variance_exponent", self._exponent(p(base) + high))
        distance = p.let("distance", self._exponent(p(distance) + high))
        p.cut("variance")
        leads = named(m, "leads", ~p(v_zero) & (p(eps_zero) | ~p(distance)[-1]))
        eps_significand = Cat(p(eps)[:23], Const(1, 1)) & (~p(eps_zero)).replicate(24)
        v_significand = p(variance) & (~p(v_zero)).replicate(24)
        away = p(distance) ^ p(distance)[-1].replicate(EXPONENT_BITS)
        away = Mux(p(distance)[-1], away + 1, away)
        away = p.let("away", Mux(away[5:EXPONENT_BITS].any(), 31, away[:5]))
        lesser = p.let("lesser", Mux(leads, eps_significand, v_significand))
        leading = p.let("leading", Mux(leads, v_significand, eps_significand))
        exponent = p.let("leading_exponent", Mux(leads, p(exponent), p(eps_exponent)))
        zero = p.let("sum_zero", p(v_zero) & p(eps_zero))
        p.cut("compare_eps")
        trailing = p.let("trailing", p(lesser) >> p(away))
        p.cut("align_eps")
        total = Signal(VARIANCE_BITS + 1, name="eps_total")
        m.d.comb += total.eq(p(leading) + p(trailing))
        carry = total[-1]
        significand = p.let("sum", Mux(carry, total[1:], total[:-1]))
        exponent = p.let("sum_exponent", self._exponent(p(exponent) + carry))
        p.cut("add_eps")
        return significand, exponent, zero

    def _exponent(self, value: Value) -> Value:
        return Cat(value, value[-1].replicate(EXPONENT_BITS))[:EXPONENT_BITS].as_signed()

    def _window(
        self,
        m: Module,
        p: Pipe,
        k: Staged,
        rmsnorm: Staged,
        subsampled: Staged | None,
        mean: Staged,
    ) -> Staged:
        """Places the window, and the mean in it."""
        numerics = self.numerics
        lowest = FP16.lsb_exponent - numerics.mean_fraction

        def floor(of: Callable[[int], int]) -> Value:
            value = Const(of(numerics.lowest_lsb), signed_shape(8))
            if subsampled is None:
                return value
            return Mux(p(subsampled), Const(of(SUBSAMPLED_LSB), signed_shape(8)), value)

        above = p(k) > floor(lambda lsb: lsb + WINDOW_GUARD)

        def chosen(fine: Value, of: Callable[[int], int]) -> Value:
            """A number that depends on the LSB of the window; `fine`: it, if k decides. Each is chosen by itself, not computed from the chosen LSB."""
            value = Mux(above, fine, floor(of))
            if self.what.int8:
                value = Mux(p(self.integer), of(numerics.integer_lsb), value)
            return Mux(p(rmsnorm), of(FP16.lsb_exponent), value)

        lsb = chosen(p(k) - WINDOW_GUARD, lambda lsb: lsb)
        lsb = p.let("lsb", lsb[:SCALE_EXPONENT_BITS].as_signed())
        shift = p.let("shift_", chosen(WINDOW_GUARD - 15 - p(k), lambda lsb: -15 - lsb))
        amount = chosen(p(k) - (WINDOW_GUARD + lowest), lambda lsb: lsb - lowest)
        amount = p.let("mean_shift", amount[:7])
        p.cut("locate_window")
        m.d.comb += self.shift.eq(p(shift))
        p.wait(mean)
        window = low_bits(m, "mean_window", p(mean), p(amount), numerics.window, p(mean)[-1])
        window = p.let("mean_", window & (~p(rmsnorm)).replicate(numerics.window))
        p.cut("window_mean")
        m.d.comb += self.mean.eq(p(window))
        return lsb
