# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""How wide products are cut into digits, and how long they take."""

DIGIT = 17
"""Digit of wide products: with it an unsigned product fits DSP48E2's signed 27 x 18 bits and ECP5's 18 x 18."""
WIDE_DIGIT = 18
"""Digit of the other operand, where all partial products are made at once."""


def digit_counts(a_bits: int, b_bits: int, interval: int) -> tuple[int, int]:
    """Digits of the two operands of a wide product."""
    return -(-a_bits // (WIDE_DIGIT if interval == 1 else DIGIT)), -(-b_bits // DIGIT)


def serial_split(a_digits: int, b_digits: int, interval: int) -> list[range]:
    """Digits of b that each shared multiplier takes, so that it finishes within the interval."""
    each = min(b_digits, max(1, interval // a_digits))
    return [range(low, min(low + each, b_digits)) for low in range(0, b_digits, each)]


def is_serial(a_bits: int, b_bits: int, interval: int) -> bool:
    """Whether a product goes digit by digit through shared multipliers."""
    a_digits, b_digits = digit_counts(a_bits, b_bits, interval)
    return interval > 1 and a_digits * b_digits > 1


def serial_latency(a_bits: int, b_bits: int, interval: int) -> int:
    """Cycles of a shared wide product: the steps of its busiest multiplier, and its registers."""
    a_digits, b_digits = digit_counts(a_bits, b_bits, interval)
    return a_digits * len(serial_split(a_digits, b_digits, interval)[0]) + 2


def multipliers(a_bits: int, b_bits: int, interval: int) -> int:
    """Multipliers of a wide product."""
    a_digits, b_digits = digit_counts(a_bits, b_bits, interval)
    if is_serial(a_bits, b_bits, interval):
        return len(serial_split(a_digits, b_digits, interval))
    return a_digits * b_digits


def operand_widths(a_bits: int, b_bits: int, interval: int) -> list[tuple[int, int]]:
    """Widths of the two operands of each multiplier of a wide product."""
    a_digits, b_digits = digit_counts(a_bits, b_bits, interval)
    if is_serial(a_bits, b_bits, interval):
        first = a_bits if a_digits == 1 else DIGIT
        groups = serial_split(a_digits, b_digits, interval)
        last = b_bits - DIGIT * (b_digits - 1)
        return [(first, last if list(group) == [b_digits - 1] else DIGIT) for group in groups]
    return [
        (min(WIDE_DIGIT, a_bits - low_a), min(DIGIT, b_bits - low_b))
        for low_a in range(0, a_bits, WIDE_DIGIT)
        for low_b in range(0, b_bits, DIGIT)
    ]


def is_summed(a_bits: int, b_bits: int, interval: int) -> bool:
    """Whether a product comes as more than one row, which have to be added."""
    if is_serial(a_bits, b_bits, interval):
        return multipliers(a_bits, b_bits, interval) > 1
    a_digits, b_digits = digit_counts(a_bits, b_bits, interval)
    return a_digits * b_digits > 1
