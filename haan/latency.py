# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Latencies, in cycles, as functions of the configuration."""

from collections.abc import Iterable
from dataclasses import dataclass

from .config import Configuration, How, What
from .numerics import (
    FACTOR_FRACTION_BITS,
    INTEGER_ISD_BITS,
    RESIDUAL_FRACTION_BITS,
    T_FRACTION_BITS,
    VARIANCE_BITS,
    X_FRACTION_BITS,
    Y_FRACTION_BITS,
    Numerics,
    clog2,
)
from .pipeline import lane_cuts
from .seeds import ESTIMATE_BITS


def _registers(configuration: Configuration, cuts: Iterable[str]) -> int:
    return sum(cut in configuration.how.cuts for cut in cuts)


def _product(configuration: Configuration, a_bits: int, b_bits: int) -> int:
    """Latency of `hdl.arithmetic.multiply`."""
    products = configuration.how.products
    if products.is_serial(a_bits, b_bits):
        return products.serial_latency(a_bits, b_bits)
    spread = ["spread_products"] * products.is_summed(a_bits, b_bits)
    return _registers(configuration, ["products", *spread])


def _lane(configuration: Configuration) -> tuple[str, ...]:
    what = configuration.what
    return lane_cuts(
        layernorm=what.layernorm,
        gamma=what.gamma,
        beta=what.beta,
        int8=what.int8,
        integer=what.integer,
    )


def _whole_product(configuration: Configuration, a_bits: int, b_bits: int) -> int:
    """Latency of `hdl.arithmetic.product`."""
    summed = configuration.how.products.is_summed(a_bits, b_bits)
    total = _registers(configuration, ["total"] * summed)
    return _product(configuration, a_bits, b_bits) + total


def lane_latency(configuration: Configuration) -> int:
    """From an element to its result in a normalization lane."""
    return _registers(configuration, _lane(configuration))


OPERANDS = {
    "shift": "shift_amount",
    "mean": "subtract",
    "scale_exponent": "scale",
    "isd": "round_d",
    "cast": "round_x",
    "gamma": "gamma",
    "beta": "odd",
    "nan": "pack",
    "int8": "denormalize",
}
"""The cut before which a lane's operand is used."""
INTEGER_OPERANDS = {
    "isd": "operands",
    "mean": "center",
    "gamma": "gamma",
    "beta": "add_beta",
    "nan": "pack",
}
"""The same in builds with INT8 alone."""


def operand_time(configuration: Configuration, operand: str) -> int:
    """When a lane needs an operand, from the element's arrival."""
    cuts = _lane(configuration)
    operands = INTEGER_OPERANDS if configuration.what.integer else OPERANDS
    return _registers(configuration, cuts[: cuts.index(operands[operand])])


def statistics_latency(configuration: Configuration) -> int:
    """From a row's last beat at the statistics unit to its sums."""
    tree = ["tree"] * clog2(configuration.how.p_d)
    return 1 + _registers(
        configuration, ("decode", "square", "align_square", *tree, "resolve_sums")
    )


@dataclass(frozen=True)
class NewtonStep:
    """Widths of the operands of a Newton step's products."""

    square: tuple[int, int]
    """y·y"""
    correction: tuple[int, int]
    """x·t"""
    tuned: tuple[int, int] | None
    """c1·r, where c1 is no power of two"""
    scaling: tuple[int, int]
    """factor·y"""

    @property
    def products(self) -> list[tuple[int, int]]:
        tuned = [] if self.tuned is None else [self.tuned]
        return [self.square, self.correction, *tuned, self.scaling]


def newton_steps(how: How) -> list[NewtonStep]:
    steps = []
    for step in range(how.newton_steps):
        y_fraction = Y_FRACTION_BITS if step else ESTIMATE_BITS[how.seed]
        y_bits = y_fraction + (2 if step else how.seed != "segmented")
        t_bits = 2 * y_bits - (2 * y_fraction - T_FRACTION_BITS)
        tuned = how.seed == "tuned" and step == 0
        steps.append(
            NewtonStep(
                square=(y_bits, y_bits),
                correction=(X_FRACTION_BITS + 2, t_bits),
                tuned=(RESIDUAL_FRACTION_BITS + 2, FACTOR_FRACTION_BITS) if tuned else None,
                scaling=(FACTOR_FRACTION_BITS + 2, y_bits),
            )
        )
    return steps


def inverse_sqrt_latency(configuration: Configuration) -> int:
    """From x to the ISD's significand."""
    cycles = _registers(configuration, ("segment", "seed", "round_isd"))
    for step in newton_steps(configuration.how):
        cycles += _whole_product(configuration, *step.square)
        cycles += _product(configuration, *step.correction)
        cycles += _registers(configuration, ["total", "residual"])
        if step.tuned:
            cycles += _product(configuration, *step.tuned)
            cycles += _registers(configuration, ["total", "residual"])
        cycles += _product(configuration, *step.scaling) + _registers(configuration, ["total"])
    return cycles


def row_products(configuration: Configuration) -> list[tuple[int, int]]:
    """Widths of the operands of every wide product from the sums of a row to its ISD and mean."""
    numerics = Numerics(configuration)
    products = [(numerics.s2_bits, numerics.n_bits), (VARIANCE_BITS, VARIANCE_BITS)]
    if configuration.what.layernorm:
        size = numerics.s1_bits - 1
        products += [
            (size, size),
            (numerics.biased_sum_bits, numerics.reciprocal_precision + 1),
        ]
    if configuration.what.int8:
        products += [(VARIANCE_BITS, VARIANCE_BITS)] * 3
    if configuration.what.integer and configuration.what.layernorm:
        products.append(mean_product(configuration))
    return products + [pair for step in newton_steps(configuration.how) for pair in step.products]


def mean_product(configuration: Configuration) -> tuple[int, int]:
    """Widths of mean and ISD, which are multiplied in builds with INT8 alone."""
    numerics = Numerics(configuration)
    return numerics.z_bits + 1 + numerics.mean_fraction, INTEGER_ISD_BITS


def scaling_latency(configuration: Configuration) -> int:
    """From the ISD to that times the scale of the row."""
    if not configuration.what.int8:
        return 0
    product = _whole_product(configuration, VARIANCE_BITS, VARIANCE_BITS)
    fixed = ["fix_isd"] * configuration.what.integer
    return product + _registers(configuration, ["scale_isd", *fixed])


def prediction_delay(configuration: Configuration) -> int:
    """By how much a predicted ISD would come too late for a row that starts at once."""
    if not configuration.what.skipping:
        return 0
    return max(0, scaling_latency(configuration) - operand_time(configuration, "isd"))


class RowTimes:
    """When the results of a row are there, from the row's sums: `window`, `mean` and `isd`, in cycles."""

    def __init__(self, configuration: Configuration) -> None:
        numerics = Numerics(configuration)
        sums = ["total"] if not configuration.what.layernorm else ["carry_save", "total"]
        n_product = _product(configuration, numerics.s2_bits, numerics.n_bits)
        start, v = 0, n_product
        if configuration.what.layernorm:
            start = _registers(configuration, ["absolute_sum"])
            size = numerics.s1_bits - 1
            v = start + max(n_product, _product(configuration, size, size))
        v += _registers(configuration, sums)
        variance = v + _registers(configuration, ["coarse_variance", "count_variance"])
        if configuration.what.int8:
            squares = 2 * _whole_product(configuration, VARIANCE_BITS, VARIANCE_BITS)
            variance = max(variance, squares)
        variance += _registers(configuration, ["normalize_variance"])
        variance += _whole_product(configuration, VARIANCE_BITS, VARIANCE_BITS)
        variance += _registers(configuration, ["variance", "compare_eps", "align_eps", "add_eps"])
        self.isd = variance + inverse_sqrt_latency(configuration)
        """The ISD."""
        self.scale = self.isd + scaling_latency(configuration)
        """What the lanes multiply by."""
        self.numbers = self.isd
        """Mean and ISD as FP32 numbers."""
        self.window = variance
        """Window and zero_variance."""
        self.mean = variance
        """Mean in the window."""
        if configuration.what.integer:
            if configuration.what.layernorm:
                product = _product(configuration, *mean_product(configuration))
                cuts = ["carry_save", "total", "window_mean"]
                self.mean = self.scale + product + _registers(configuration, cuts)
        elif configuration.what.layernorm:
            self.window = variance + _registers(configuration, ["locate_window"])
            mean = start + _registers(configuration, ["carry_save", "total", "align_mean"])
            mean += _product(
                configuration, numerics.biased_sum_bits, numerics.reciprocal_precision + 1
            )
            self.numbers = max(self.isd, mean + mean_number_latency(configuration))
            self.mean = max(self.window, mean) + _registers(configuration, ["window_mean"])


BUFFER_LATENCY = 2
"""From the reading of a beat to the lanes: the memory, and its output register."""
QUEUE_LATENCY = 3
"""From the writing of an entry of a queue to its departure."""
STORE_LATENCY = 2
"""From a row's number to its result: the memory, and its output register."""
CHOICE_LATENCY = 3
"""From the ISD of a skipped row that had to wait for its anchor to the writing of its choice."""
STATISTICS_STREAM_LATENCY = 8
"""From the sending of a row's last beat into the lanes to the writing of its mean and ISD into their queue."""
STATISTICS_STREAM_DEPTH = 16
"""Rows whose mean and ISD may be under way to their stream's sink."""
INPUT_LATENCY = 3
"""From a beat's transfer to its framed form: register slice, inspection, framing."""


def normalization_latency(configuration: Configuration) -> int:
    """From the reading of a beat to its results."""
    return BUFFER_LATENCY + lane_latency(configuration)


def window_push_time(configuration: Configuration) -> int:
    """When a row may be given to the normalization unit, from its sums: as soon as its window is known, but not so early that mean
    or ISD would come too late for the lanes."""
    times = RowTimes(configuration)
    head_start = QUEUE_LATENCY + BUFFER_LATENCY - STORE_LATENCY - 1
    latest = times.scale - operand_time(configuration, "isd") - head_start
    if configuration.what.layernorm:
        latest = max(latest, times.mean - operand_time(configuration, "mean") - head_start)
    return max(times.window, latest)


def feeds_wait(configuration: Configuration) -> bool:
    """Whether beats with samples wait in a queue for the statistics unit: where beats without any may overtake them."""
    return configuration.what.starts_early and configuration.how.p_d < configuration.how.p_n


def clear_cycles(configuration: Configuration) -> int:
    """From the end of a reset until no ISD is kept, and rows may come."""
    what = configuration.what
    return isd_entries(what) if what.skipping else 0


def isd_entries(what: What) -> int:
    """Entries of the ISD memory."""
    return what.anchors << what.token_bits


def fill_latency(configuration: Configuration) -> int:
    """From the transfer of a row's last sampled element to the reading of its first beat."""
    sums = INPUT_LATENCY + QUEUE_LATENCY * feeds_wait(configuration)
    sums += statistics_latency(configuration) + window_push_time(configuration)
    return sums + QUEUE_LATENCY


def core_latency(configuration: Configuration) -> int:
    """From the transfer of a row's last sampled element to that of its first result, when nothing waits."""
    return fill_latency(configuration) + normalization_latency(configuration) + QUEUE_LATENCY


def mean_number_latency(configuration: Configuration) -> int:
    """From the exact mean to that in FP32, in real units."""
    scaled = _whole_product(configuration, VARIANCE_BITS, VARIANCE_BITS)
    scaled += _registers(configuration, ["scale_mean"])
    cuts = ["mean_magnitude", "count_mean", "normalize_mean", "round_mean"]
    return _registers(configuration, cuts) + scaled * configuration.what.int8


def skipped_latency(configuration: Configuration) -> int:
    """From the transfer of a row's first beat to that of its first result, if its ISD is predicted from one that is known by then, it takes
    no statistics (RMSNorm), and nothing waits; its other beats follow at once. Builds with skipping."""
    known = INPUT_LATENCY + prediction_delay(configuration) + QUEUE_LATENCY
    return known + normalization_latency(configuration) + QUEUE_LATENCY


def _places(configuration: Configuration, row_beats: int) -> int:
    """Beats that are between framing and the lanes when rows of this many follow each other, rounded up to a power of two."""
    chunks = configuration.how.p_n // configuration.how.p_d
    return 1 << clog2(row_beats + fill_latency(configuration) + chunks + 4)


def buffer_depth(configuration: Configuration) -> int:
    """Beats of the row buffer: enough for the longest rows without a bubble."""
    return _places(configuration, Numerics(configuration).row_beats)


def row_depth(configuration: Configuration) -> int:
    """Rows that may be between framing and the lanes, and places of all that is kept of each: enough for rows of one beat without a bubble."""
    return _places(configuration, 1)


OUTSIDE_MEMORY = 3
"""Entries that have left a `late` queue's memory, but not the queue."""


def order_depth(configuration: Configuration) -> int:
    """Places of the queue of orders in memory. With those outside of it they are as many as rows may be inside: no other queue or store
    can overflow."""
    return row_depth(configuration) - OUTSIDE_MEMORY


def output_depth(configuration: Configuration) -> int:
    """Beats of the output queue: enough for the lanes to run on while its first one leaves."""
    return 1 << clog2(normalization_latency(configuration) + QUEUE_LATENCY + 4)
