# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What is kept in memories: the fields of every entry with their widths in bits, and the memories of a build.

The hardware makes its structures of the same fields, in this order from the low end.
"""

from dataclasses import dataclass

from .config import Configuration, What
from .flags import COMMON_BITS, RowFlag
from .formats import FP32
from .latency import (
    STATISTICS_STREAM_DEPTH,
    buffer_depth,
    feeds_wait,
    isd_entries,
    order_depth,
    output_depth,
    row_depth,
)
from .layer import record_layout
from .numerics import (
    INTEGER_ISD_BITS,
    INTEGER_PARAMETER_BITS,
    ISD_BITS,
    KEPT_EXPONENT_BITS,
    PREDICTED_EXPONENT_BITS,
    SCALE_EXPONENT_BITS,
    Numerics,
    clog2,
)

Fields = dict[str, int]

SIGNED = {"shift", "exponent"}
"""Fields that are signed numbers."""


MARKED = ("anchor", "ratio", "guard_low", "guard_high", "guard_exact")
"""Settings of skipped rows."""


def row_settings(configuration: Configuration) -> Fields:
    """The settings of a row that a build uses: a part of the record of layer settings."""
    what = configuration.what
    names = ["valid", "rmsnorm"] if what.rmsnorm and what.layernorm else ["valid"]
    names += ["n", "n_sub", "first", "stride_log2"] if what.subsampling else ["n"]
    names += ["reciprocal", "reciprocal_shift"] * what.layernorm
    names += ["inverse_square", "inverse_square_exponent", "eps"]
    names += ["gamma"] * what.gamma + ["beta"] * what.beta
    names += ["cast_before_gamma"] * what.cast_before_gamma + ["slot"] * what.gamma
    names += [*MARKED, "keep_isd", "skip"] * what.skipping
    names += ["input_format", "output_format", "x_scale"] * what.int8
    widths = record_layout(configuration)
    return {name: widths[name] for name in names}


def statistics_settings(configuration: Configuration) -> Fields:
    """The settings that wait for the sums of a row; `n` is that of the samples."""
    later = {"valid", "n_sub", "first", "stride_log2", "gamma", "beta", "cast_before_gamma", "slot"}
    later |= {*MARKED, "keep_isd", "skip", "input_format", "output_format"}
    fields = {
        name: width for name, width in row_settings(configuration).items() if name not in later
    }
    fields |= {"subsampled": 1} if configuration.what.subsampling else {}
    fields |= {"int8": 1} if configuration.what.mixed else {}
    return fields | ({"predicted": 1} if configuration.what.skipping else {})


def stored_bits(what: What) -> int:
    """An element in the row buffer. INT8 has no NaN to tell a missing one by."""
    return what.element.width + (what.integer and what.starts_early)


def feed_beat(configuration: Configuration) -> Fields:
    """A beat for the statistics unit: `chunk` to `chunk_end` are the cycles in which it is fed."""
    p_n, p_d = configuration.how.p_n, configuration.how.p_d
    lane_bits, chunk_bits = clog2(p_n), clog2(p_n // p_d)
    fields = {"data": configuration.what.element.width * p_n, "present": p_n, "fault": 1}
    fields |= {"chunk": max(1, chunk_bits), "chunk_end": max(1, chunk_bits)}
    fields |= {"holds_first": 1, "holds_last": 1}
    if configuration.what.subsampling:
        fields |= {"low": lane_bits + 1, "high": lane_bits + 1}
        fields |= {"first_sample": Numerics(configuration).n_bits, "stride": 5, "complete": 1}
    return fields


def order(configuration: Configuration) -> Fields:
    """What is known of a row when it begins: `beats` less one, whether it is a `single` one, `tail` elements in the last one (0: all)."""
    what = configuration.what
    fields = {
        "null": 1,
        "beats": max(1, clog2(Numerics(configuration).row_beats)),
        "single": 1,
        "tail": max(1, clog2(configuration.how.p_n)),
        "id": what.id_bits,
        "token": what.token_bits,
    }
    fields |= {"gamma": 1, "slot": what.slot_bits} if what.gamma else {}
    fields |= {"beta": 1} if what.beta else {}
    if what.skipping:
        fields |= {"rmsnorm": 1, "early": 1, "waits": 1, **CHOICE}
    fields |= {"int8": 1} if what.mixed else {}
    return fields | ({"cast": 1} if what.cast_before_gamma else {})


def window(configuration: Configuration) -> Fields:
    """What is known of a row when its window is."""
    what = configuration.what
    fields = {"nan": 1, "nonfinite": 1, "zero_variance": 1}
    shifts = what.layernorm and not what.integer
    return fields | ({"shift": SCALE_EXPONENT_BITS} if shifts else {})


NUMBERS: Fields = {"mean": FP32.width, "isd": FP32.width}
"""Mean and ISD of a row, as they leave on their stream."""
CHOICE: Fields = {"predicted": 1, "guard": 1, "no_anchor": 1}
"""What became of a skipped row."""
PREDICTION: Fields = {"isd": ISD_BITS, "exponent": PREDICTED_EXPONENT_BITS}
"""A predicted ISD."""


def kept_isd(configuration: Configuration) -> Fields:
    """An entry of the ISD memory; the ISD's significand without its leading one."""
    return {
        "valid": 1,
        "layer": configuration.what.id_bits,
        "fraction": ISD_BITS - 1,
        "exponent": KEPT_EXPONENT_BITS,
    }


def marked(configuration: Configuration) -> Fields:
    """The settings that a skipped row needs when it has waited for its anchor."""
    widths = record_layout(configuration)
    names = MARKED + ("input_format", "x_scale") * configuration.what.int8
    return {name: widths[name] for name in names}


def mark(configuration: Configuration) -> Fields:
    """What the predictor needs of a row when its ISD is there."""
    what = configuration.what
    own = {"waits": 1, "keeps": 1, "id": what.id_bits, "token": what.token_bits}
    return own | marked(configuration)


def scale(configuration: Configuration) -> Fields:
    """The ISD of a row, as its lanes take it."""
    if configuration.what.integer:
        return {"isd": INTEGER_ISD_BITS}
    return {"isd": ISD_BITS, "exponent": SCALE_EXPONENT_BITS}


def meta(configuration: Configuration) -> Fields:
    """What goes out beside a beat: `flags` are valid in the last one; `parameters` says whether the row uses those of `slot`."""
    what = configuration.what
    fields = {
        "id": what.id_bits,
        "token": what.token_bits,
        "tail": max(1, clog2(configuration.how.p_n)),
        "null": 1,
        "last": 1,
        "flags": flag_bits(what),
    }
    fields |= {"int8": 1} if what.mixed else {}
    return fields | ({"parameters": 1, "slot": what.slot_bits} if what.gamma else {})


def flag_bits(what: What) -> int:
    """Flags that rows of a build may have."""
    return len(RowFlag) if what.skipping else COMMON_BITS


def stored_gamma(what: What) -> Fields:
    """Gamma as it is stored."""
    if what.integer:
        return {"value": INTEGER_PARAMETER_BITS}
    wide = what.parameters is FP32
    return {"fraction": 16 if wide else 10, "exponent": 8 if wide else 6, "sign": 1}


def stored_beta(what: What) -> Fields:
    """Beta as it is stored."""
    if what.integer:
        return {"value": INTEGER_PARAMETER_BITS}
    wide = what.parameters is FP32
    return {"mantissa": 22 if wide else 11, "code": 8 if wide else 5, "sign": 1}


def bank_depth(configuration: Configuration) -> int:
    """Words of one lane's gamma or beta memory: each slot takes a power of two of them."""
    return configuration.what.slots << clog2(Numerics(configuration).row_beats)


def row_number_bits(configuration: Configuration) -> int:
    """Numbers of rows: as many as every place between input and output can hold, and more."""
    return clog2(2 * row_depth(configuration) + output_depth(configuration))


@dataclass(frozen=True)
class Memory:
    """A kind of memory with one write port."""

    name: str
    width: int
    depth: int
    count: int = 1
    """How many there are."""
    immediate: bool = False
    """Read in the same cycle: block RAM can't."""

    @property
    def bits(self) -> int:
        return self.width * self.depth * self.count


def memories(configuration: Configuration) -> list[Memory]:
    """The memories of a build, control plane included. Tables of constants and registers are none."""
    what, p_n = configuration.what, configuration.how.p_n
    rows, out = row_depth(configuration), output_depth(configuration)
    beats = buffer_depth(configuration)
    beat = what.element.width * p_n
    stored = stored_bits(what) * p_n

    def size(fields: Fields) -> int:
        return sum(fields.values())

    found = [Memory("row buffer", stored, beats)]
    if feeds_wait(configuration):
        found.append(Memory("feed queue", size(feed_beat(configuration)), beats))
    found += [
        Memory("settings queue", size(statistics_settings(configuration)), rows),
        Memory("order queue", size(order(configuration)), order_depth(configuration)),
        Memory("end queue", COMMON_BITS, rows),
        Memory("window queue", size(window(configuration)), rows),
        Memory("ISD store", size(scale(configuration)), rows),
    ]
    if what.layernorm:
        numerics = Numerics(configuration)
        width = numerics.integer_mean_bits if what.integer else numerics.window
        found.append(Memory("mean store", width, rows))
    if what.statistics_stream:
        found.append(Memory("statistics store", size(NUMBERS), rows))
        if what.skipping:
            found.append(Memory("predicted ISD store", FP32.width, 2 * rows))
        entry = size(NUMBERS) + what.id_bits + what.token_bits
        found.append(Memory("statistics queue", entry, STATISTICS_STREAM_DEPTH))
    if what.skipping:
        found += [
            Memory("ISD memory", size(kept_isd(configuration)), isd_entries(what)),
            Memory("anchors found", size(kept_isd(configuration)) + 2, 4, immediate=True),
            Memory("mark queue", size(mark(configuration)), rows),
            Memory("choice queue", size(CHOICE), rows),
            Memory("prediction store", size(PREDICTION), 2 * rows),
        ]
    found.append(Memory("result queue", beat + 1, out))
    found.append(Memory("meta queue", size(meta(configuration)), out))
    words = bank_depth(configuration)
    if what.gamma:
        found.append(Memory("gamma", size(stored_gamma(what)), words, p_n))
    if what.beta:
        found.append(Memory("beta", size(stored_beta(what)), words, p_n))
    table = size(record_layout(configuration))
    found.append(Memory("layer table", table, 1 << what.id_bits, immediate=True))
    if what.gamma:
        users = row_number_bits(configuration)
        found.append(Memory("slot users", users, 1 << what.slot_bits, immediate=True))
    return found
