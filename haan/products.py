# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""How wide products are cut into digits, and how long they take."""

from dataclasses import dataclass

DIGIT = 17
"""Digit of wide products: with it an unsigned product fits DSP48E2's signed 27 x 18 bits and ECP5's 18 x 18."""
WIDE_DIGIT = 18
"""Digit of the other operand, where all partial products are made at once."""


@dataclass(frozen=True)
class Products:
    """The wide products of a pipeline. Operands a and b are unsigned, of so many bits."""

    interval: int = 1
    """Cycles between two of them."""
    multipliers: bool = True
    """False: each is added up, a few bits of the narrower operand a cycle."""

    def digit_bits(self, a_bits: int, b_bits: int) -> tuple[int, int]:
        """Width of a digit of either operand."""
        if not self.multipliers:
            least = -(-min(a_bits, b_bits) // self.interval)
            return (a_bits, least) if b_bits <= a_bits else (least, b_bits)
        return WIDE_DIGIT if self.interval == 1 else DIGIT, DIGIT

    def digits(self, a_bits: int, b_bits: int) -> tuple[int, int]:
        """Digits of the two operands."""
        a_digit, b_digit = self.digit_bits(a_bits, b_bits)
        return -(-a_bits // a_digit), -(-b_bits // b_digit)

    def is_serial(self, a_bits: int, b_bits: int) -> bool:
        """Whether a product goes digit by digit through what it shares."""
        a_digits, b_digits = self.digits(a_bits, b_bits)
        return self.interval > 1 and a_digits * b_digits > 1

    def groups(self, a_bits: int, b_bits: int) -> list[range]:
        """Digits of b that each shared multiplier takes, so that it finishes within the interval."""
        a_digits, b_digits = self.digits(a_bits, b_bits)
        if not self.multipliers:
            return [range(b_digits)]
        each = min(b_digits, max(1, self.interval // a_digits))
        return [range(low, min(low + each, b_digits)) for low in range(0, b_digits, each)]

    def serial_latency(self, a_bits: int, b_bits: int) -> int:
        """Cycles of a serial product: the steps of its busiest multiplier, and its registers."""
        a_digits, _ = self.digits(a_bits, b_bits)
        return a_digits * len(self.groups(a_bits, b_bits)[0]) + 2

    def operand_widths(self, a_bits: int, b_bits: int) -> list[tuple[int, int]]:
        """Widths of the two operands of each multiplier."""
        a_digits, b_digits = self.digits(a_bits, b_bits)
        if self.is_serial(a_bits, b_bits):
            if not self.multipliers:
                return []
            first = a_bits if a_digits == 1 else DIGIT
            last = b_bits - DIGIT * (b_digits - 1)
            return [
                (first, last if list(group) == [b_digits - 1] else DIGIT)
                for group in self.groups(a_bits, b_bits)
            ]
        return [
            (min(WIDE_DIGIT, a_bits - low_a), min(DIGIT, b_bits - low_b))
            for low_a in range(0, a_bits, WIDE_DIGIT)
            for low_b in range(0, b_bits, DIGIT)
        ]

    def is_summed(self, a_bits: int, b_bits: int) -> bool:
        """Whether a product comes as more than one row, which have to be added."""
        if self.is_serial(a_bits, b_bits):
            return len(self.groups(a_bits, b_bits)) > 1
        a_digits, b_digits = self.digits(a_bits, b_bits)
        return a_digits * b_digits > 1
