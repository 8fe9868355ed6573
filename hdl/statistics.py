# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The statistics unit: exact ΣZ and ΣZ² of the sampled elements of a row, in segments that never wait for each other's carries."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Configuration
from ..formats import FP16
from ..numerics import Numerics
from .arithmetic import named, shift_left, wide_add
from .emit import Shared
from .integer import IntegerStatisticsLane
from .pipe import Pipe, Staged

SQUARE_SEGMENT = 28
"""Bits of a square that one segment of the accumulator takes; the `window` accumulator leaves out the lowest segment."""
SUM_SEGMENT = 36
"""Bits of an element that the lower segment of its accumulator takes; the upper one is signed."""


class StatisticsLane(wiring.Component):
    """Z and Z² of one element, cut into segments.

    Latency: the cuts `decode`, `square`, `align_square`. Throughput: one element a cycle.

    Members
    -------
    z : FP16 bits; sampled : 0 makes the element count as zero
    fixed : Z in units of 2^-24, signed
    square_0 .. square_2 : Z² = Σ square_i · 2^(28·i) in units of 2^-48 (without `square_0` for the `window` accumulator)
    nonfinite : the element is sampled, and infinite or NaN
    """

    def __init__(self, configuration: Configuration) -> None:
        self.cuts = configuration.how.cuts
        self.numerics = Numerics(configuration)
        self.segments = square_segments(self.numerics)
        members: dict[str, wiring.Member] = {"z": In(FP16.width), "sampled": In(1)}
        members |= {"fixed": Out(self.numerics.z_bits + 1), "nonfinite": Out(1)}
        members |= {f"square_{i}": Out(width) for i, (_, width) in self.segments.items()}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = Pipe(m, self.cuts)
        field = self.z[10:15]
        subnormal = field == 0
        nonfinite = p.let("nonfinite_", field.all() & self.sampled)
        counts = self.sampled & ~field.all()
        significand = Cat(self.z[:10], ~subnormal)
        # max(E, 1), which is one more than the place: what is shifted by it is halved again.
        place = Cat(field[0] | subnormal, field[1:])
        # The first places are shifted before the multiplication, for the element and its square at once.
        near = shift_left(m, "near_shifted", significand, place[:2], 14)
        # As multiplexers with 0, which become resets of the registers behind them.
        near = p.let("near", Mux(counts, near, 0))
        negative = p.let("negative", Mux(counts, self.z[15], 0))
        far = p.let("far", place[2:])
        p.cut("decode")
        square = p.let("square", p(near) * p(near))
        twos = Cat(p(near) ^ p(negative).replicate(14), p(negative)) + p(negative)
        twos = p.let("twos", twos[:15].as_signed())
        p.cut("square")
        bits = self.numerics.z_bits
        aligned = shift_left(m, "z_aligned", p(twos), p(far), bits + 2, unit=4)
        even = shift_left(m, "square_aligned", p(square), p(far), 2 * bits + 2, unit=8)
        z, squares = p.let("z_fixed", aligned[1:]), p.let("square_fixed", even[2:])
        p.cut("align_square")
        m.d.comb += self.fixed.eq(p(z))
        m.d.comb += self.nonfinite.eq(p(nonfinite))
        for index, (low, width) in self.segments.items():
            m.d.comb += getattr(self, f"square_{index}").eq(p(squares)[low : low + width])
        return m


def square_segments(numerics: Numerics) -> dict[int, tuple[int, int]]:
    """Segment -> (lowest bit, width) of a square."""
    bits = 2 * numerics.z_bits
    lows = range(numerics.dropped_square_bits, bits, SQUARE_SEGMENT)
    return {low // SQUARE_SEGMENT: (low, min(SQUARE_SEGMENT, bits - low)) for low in lows}


class StatisticsUnit(wiring.Component):
    """Sums of a row: p_d elements a cycle, one row after the other without a bubble.

    Latency: `haan.latency.statistics_latency` from the row's last beat to `o_valid`.

    Members
    -------
    i_valid : a beat of p_d elements; first, last : of the row
    z : p_d elements; sampled : p_d bits, which of them count
    o_valid : a row's sums are there, for one cycle
    s1 : ΣZ in units of 2^-24 (INT8 alone: 1), two's complement
    s2 : ΣZ² in units of 2^-48 (INT8 alone: 1)
    nonfinite : a sampled element was infinite or NaN
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.numerics = numerics = Numerics(configuration)
        self.p_d = configuration.how.p_d
        super().__init__(
            {
                "i_valid": In(1),
                "first": In(1),
                "last": In(1),
                "z": In(configuration.what.element.width * self.p_d),
                "sampled": In(self.p_d),
                "fault": In(1),
                "o_valid": Out(1),
                "o_fault": Out(1),
                "s1": Out(numerics.s1_bits),
                "s2": Out(numerics.s2_bits),
                "nonfinite": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        p = Pipe(m, self.configuration.how.cuts, valid=self.i_valid)
        first, last, fault = p.input(self.first), p.input(self.last), p.input(self.fault)
        lanes = []
        integer = self.configuration.what.integer
        width = self.configuration.what.element.width
        for index in range(self.p_d):
            lane = Shared(IntegerStatisticsLane if integer else StatisticsLane, self.configuration)
            m.submodules[f"lane{index}"] = lane
            m.d.comb += lane.z.eq(self.z[width * index : width * (index + 1)])
            m.d.comb += lane.sampled.eq(self.sampled[index])
            lanes.append(lane)
        for cut in ("decode", "square", "align_square"):
            p.cut(cut)
        segments = square_segments(self.numerics)
        terms = {"fixed": [lane.fixed for lane in lanes]}
        terms |= {f"square{i}": [getattr(lane, f"square_{i}") for lane in lanes] for i in segments}
        bits = self.numerics.z_bits + 1
        # Short ones have no upper segment.
        widths = {"low": min(bits, SUM_SEGMENT), "high": bits - SUM_SEGMENT}
        widths |= {f"square{i}": width for i, (_, width) in segments.items()}
        bad = p.let("any_nonfinite", Cat(lane.nonfinite for lane in lanes).any())
        start, sums = p.now, {}
        for name, values in terms.items():
            p.now = start
            sums[name] = self._tree(p, name, values, signed=name == "fixed")
        fixed = sums.pop("fixed")
        if bits <= SUM_SEGMENT:
            sums["low"] = fixed
        else:
            sums["low"] = p.let("low", p(fixed)[:SUM_SEGMENT])
            sums["high"] = p.let("high", p(fixed)[SUM_SEGMENT:].as_signed())
        totals = {
            name: self._accumulate(m, p, name, term, widths[name] + self.numerics.growth, first)
            for name, term in sums.items()
        }
        flag = Signal(name="nonfinite_total", reset_less=True)
        sofar = (flag & ~p(first)) | p(bad)
        with m.If(p.valid()):
            m.d.sync += flag.eq(sofar)
        done = p.let("done", p.valid() & p(last), control=True)
        p.now += 1
        nonfinite = p.input(flag)
        joined = p(totals["low"])
        if "high" in totals:
            joined = self._join_sum(m, joined, p(totals["high"]))
        s1 = p.let("s1_joined", joined)
        squares = {i: p(totals[f"square{i}"]) for i in segments}
        s2 = p.let("s2_joined", self._join_squares(m, squares))
        p.cut("resolve_sums")
        m.d.comb += [
            self.s1.eq(p(s1)),
            self.s2.eq(p(s2)),
            self.nonfinite.eq(p(nonfinite)),
            self.o_valid.eq(p(done)),
            self.o_fault.eq(p(fault)),
        ]
        return m

    def _tree(self, p: Pipe, name: str, lanes: list[Signal], signed: bool) -> Staged:
        """Sum of the lanes by a tree of adders; each level is a bit wider, and a cycle later."""
        terms = [p.input(lane.as_signed() if signed else lane, f"{name}_lane") for lane in lanes]
        level = 0
        while len(terms) > 1:
            pairs = list(zip(terms[::2], terms[1::2], strict=True))
            terms = [p.let(f"{name}_{level}_{i}", p(a) + p(b)) for i, (a, b) in enumerate(pairs)]
            p.cut("tree")
            level += 1
        return terms[0]

    def _accumulate(
        self, m: Module, p: Pipe, name: str, term: Staged, width: int, first: Staged
    ) -> Staged:
        """The running sum of a row, as it stands after the beat; its carries stay inside the segment."""
        total = Signal(width, name=f"{name}_total", reset_less=True)
        sofar = Mux(p(first), 0, total) + p(term)
        with m.If(p.valid()):
            m.d.sync += total.eq(sofar)
        return Staged(total, p.now + 1)

    def _join_sum(self, m: Module, low: Value, high: Value) -> Value:
        rest = self.numerics.s1_bits - SUM_SEGMENT
        return Cat(low[:SUM_SEGMENT], wide_add(m, "s1", low[SUM_SEGMENT:], high.as_signed(), rest))

    def _join_squares(self, m: Module, segments: dict[int, Value]) -> Value:
        """Segments two apart don't overlap, so one addition joins them all, above what the lowest has for itself; above the middle one
        there is only its carry to add."""
        if len(segments) == 1:
            return segments[0]
        lowest = segments.get(0, Const(0, SQUARE_SEGMENT))
        grown = lowest[SQUARE_SEGMENT:]
        outer = Cat(grown, Const(0, SQUARE_SEGMENT - len(grown)), segments[2])
        size = len(segments[1])
        total = named(m, "s2_middle", outer[:size] + segments[1])
        above = named(m, "s2_above", outer[size:] + total[size])
        return Cat(lowest[:SQUARE_SEGMENT], total[:size], above)[: self.numerics.s2_bits]
