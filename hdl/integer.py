# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""INT8 alone: lanes in fixed point, and what they need of the row's path. `docs/numerics.md`, section 14."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Configuration
from ..formats import INT8
from ..layout import stored_bits
from ..numerics import (
    INTEGER_ISD_BITS,
    INTEGER_PARAMETER_BITS,
    INTEGER_PARAMETER_FRACTION,
    INTEGER_PARAMETER_LIMIT,
    ISD_BITS,
    Numerics,
)
from ..pipeline import lane_cuts
from .arithmetic import add_rows, multiply, named, shift_right_jam
from .pipe import Pipe, Staged, signed_shape

HALF = 1 << (INTEGER_PARAMETER_FRACTION - 1)
"""What a result is rounded with; it is stored with beta."""


class IntegerStatisticsLane(wiring.Component):
    """q and q² of one element. Members and latency are those of `StatisticsLane`."""

    def __init__(self, configuration: Configuration) -> None:
        self.cuts = configuration.how.cuts
        super().__init__(
            {
                "z": In(INT8.width),
                "sampled": In(1),
                "fixed": Out(INT8.width),
                "square_0": Out(2 * INT8.width - 1),
                "nonfinite": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = Pipe(m, self.cuts)
        q = p.let("q", Mux(self.sampled, self.z, 0).as_signed())
        p.cut("decode")
        square = p.let("square", (p(q) * p(q))[: 2 * INT8.width - 1])
        p.cut("square")
        p.cut("align_square")
        m.d.comb += [self.fixed.eq(p(q)), self.square_0.eq(p(square))]
        return m


class IntegerLane(wiring.Component):
    """Normalizes one element a cycle. It takes its operands as `Lane` does.

    Members
    -------
    z : the element, at time 0; in builds whose rows may start early a bit above says that it is missing
    isd : I, unsigned, at `operands`
    mean : M, signed (builds with LayerNorm), at `center`
    gamma : in units of 2^-8, at `gamma`
    beta : that and a half, at `add_beta`
    nan : all of the row is 0, at `pack`
    y : the result; overflow : it was saturated
    """

    def __init__(self, configuration: Configuration) -> None:
        self.what = configuration.what
        self.cuts = configuration.how.cuts
        self.numerics = Numerics(configuration)
        members: dict[str, wiring.Member] = {
            "z": In(stored_bits(self.what)),
            "isd": In(INTEGER_ISD_BITS),
            "gamma": In(signed_shape(INTEGER_PARAMETER_BITS)),
        }
        if self.what.layernorm:
            members["mean"] = In(signed_shape(self.numerics.integer_mean_bits))
        if self.what.beta:
            members["beta"] = In(signed_shape(INTEGER_PARAMETER_BITS))
        members |= {"nan": In(1), "y": Out(INT8.width), "overflow": Out(1)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = Pipe(m, self.cuts)
        what, fraction = self.what, self.numerics.x_fraction
        q = p.let("q", self.z[: INT8.width].as_signed())
        missing = p.let("missing", self.z[INT8.width :].any())
        # Registers of the lane's own, beside its multiplier.
        isd = p.input(self.isd)
        p.cut("operands")
        product = p.let("q_isd", p(q) * p(isd))
        p.cut("scale")
        centered = p.let("centered", p(product) - self.mean) if what.layernorm else product
        p.cut("center")
        x = p.let("x", _clamped(p(centered)))
        p.cut("clamp")
        product = p.let("x_gamma", p(x) * self.gamma)
        p.cut("gamma")
        added = self.beta if what.beta else Const(HALF, INTEGER_PARAMETER_BITS)
        total = p.let("total", (p(product) >> fraction) + added)
        sticky = p.let("sticky", p(product)[:fraction].any())
        p.cut("add_beta")
        above = p(total) >> INTEGER_PARAMETER_FRACTION
        tie = ~(p(total)[:INTEGER_PARAMETER_FRACTION].any() | p(sticky))
        outside = named(
            m, "outside", above[INT8.width - 1 :].any() & ~above[INT8.width - 1 :].all()
        )
        negative = p(total)[-1]
        nearest = Cat(above[0] & ~tie, above[1 : INT8.width - 1])
        limit = (~negative).replicate(INT8.width - 1)
        none = self.nan | p(missing)
        result = Cat(Mux(outside, limit, nearest), negative)
        y = p.let("y_", Mux(none, 0, result))
        overflow = p.let("overflow_", outside & ~none)
        p.cut("pack")
        m.d.comb += [self.y.eq(p(y)), self.overflow.eq(p(overflow))]
        assert tuple(p.passed) == lane_cuts(
            layernorm=what.layernorm, gamma=True, beta=what.beta, int8=True, integer=True
        ), p.passed
        return m


def _clamped(value: Value) -> Value:
    """A signed value where it is in −2^25 to 2^25 − 1, else the nearest of ±2^25."""
    bits = INTEGER_ISD_BITS
    negative, top = value[-1], value[bits:]
    beyond = top.any() & ~top.all()
    # A multiplexer with a constant, which becomes a reset of the register behind it.
    low = Mux(beyond, 0, value[:bits])
    return Cat(low, beyond | negative, negative).as_signed()


def fixed_isd(m: Module, significand: Value, exponent: Value, fraction: int) -> Value:
    """im·2^(ie − 16) in units of 2^-fraction, rounded half up, saturated."""
    bits = INTEGER_ISD_BITS
    away = Signal(signed_shape(len(exponent) + 2), name="isd_away")
    m.d.comb += away.eq(bits - 1 - fraction - exponent)
    amount = Mux(away[5:-1].any(), 31, away[:5])
    full = Cat(Const(0, bits - ISD_BITS + 1), significand)
    shifted = named(m, "isd_shifted", full >> amount)
    rounded = named(m, "isd_fixed", shifted[1:] + shifted[0])
    return Mux(away[-1] & significand[-1], (1 << bits) - 1, rounded[:bits])


def mean_in_isds(
    p: Pipe, biased: Staged, isd: Staged, rmsnorm: Staged, numerics: Numerics
) -> Staged:
    """M: the mean times the ISD, signed. `biased`: the mean and 2^z_bits, with its fraction bits."""
    fraction = numerics.mean_fraction
    width = len(biased.signal) + len(isd.signal) + 1
    p.wait(biased, isd)
    rows = multiply(p, "mean_isd", biased, isd)
    bias = p.let("mean_bias", Cat(Const(0, numerics.z_bits + fraction), p(isd)))
    total = add_rows(
        p, "mean_isd_total", rows, [bias], width, constant=1 << (fraction - 1), deep=True
    )
    product = p(total)[fraction : fraction + numerics.integer_mean_bits]
    return p.let("mean_", Mux(p(rmsnorm), 0, product))


class IntegerEncoder(wiring.Component):
    """Converts written parameters to fixed point; one a cycle. Members as those of `ParameterEncoder`."""

    latency = 2

    def __init__(self, configuration: Configuration) -> None:
        self.format = configuration.what.parameters
        super().__init__(
            {
                "data": In(self.format.width),
                "one_plus": In(1),
                "gamma": Out(INTEGER_PARAMETER_BITS),
                "beta": Out(INTEGER_PARAMETER_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = Pipe(m, frozenset({"prepare", "encode"}))
        fmt = self.format
        # The binade that ends beyond the limit: its numbers have 17 bits before the point.
        whole = INTEGER_PARAMETER_BITS - 1
        binade = fmt.bias + whole - 1 - INTEGER_PARAMETER_FRACTION
        fraction = self.data[: fmt.fraction_bits]
        field = self.data[fmt.fraction_bits : fmt.width - 1]
        subnormal = field == 0
        sign = p.let("sign", self.data[-1])
        nan = p.let("nan", field.all() & fraction.any())
        large = p.let("large", field > binade)
        away = (binade - Mux(subnormal, 1, field))[: len(field)]
        amount = p.let("amount", Mux(away[5:].any(), 31, away[:5]))
        size = max(whole, fmt.significand_bits) + 2
        significand = Cat(fraction, ~subnormal)
        significand = Cat(Const(0, size - len(significand)), significand)
        significand = p.let("significand", significand)
        p.cut("prepare")
        shifted = shift_right_jam(m, "shifted", p(significand), p(amount))
        below = size - whole
        kept, guard, rest = shifted[below:], shifted[below - 1], shifted[: below - 1]
        rounded = Signal(whole + 1, name="rounded")
        m.d.comb += rounded.eq(kept + (guard & (rest.any() | kept[0])))
        limit = INTEGER_PARAMETER_LIMIT << INTEGER_PARAMETER_FRACTION
        magnitude = Mux(p(large) | (rounded > limit), limit, rounded)[:whole]
        magnitude = named(m, "magnitude", Mux(p(nan), 0, magnitude))
        value = named(m, "value", Mux(p(sign), -magnitude, magnitude))
        gamma = p.let("gamma_stored", value[:INTEGER_PARAMETER_BITS])
        beta = p.let("beta_stored", (value + HALF)[:INTEGER_PARAMETER_BITS])
        p.cut("encode")
        m.d.comb += [self.gamma.eq(p(gamma)), self.beta.eq(p(beta))]
        return m
