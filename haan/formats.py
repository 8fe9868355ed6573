# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Number formats as data: the only place where a field width of a format is written."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FloatFormat:
    """An IEEE 754-style binary format: sign, biased exponent, fraction, from the top bit down."""

    name: str
    exponent_bits: int
    fraction_bits: int

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def max_exponent_field(self) -> int:
        """The exponent field of infinities and NaNs."""
        return (1 << self.exponent_bits) - 1

    @property
    def significand_bits(self) -> int:
        return self.fraction_bits + 1

    @property
    def quiet_nan(self) -> int:
        """Bits of the one NaN that the hardware produces."""
        return self.max_exponent_field << self.fraction_bits | 1 << (self.fraction_bits - 1)

    @property
    def lsb_exponent(self) -> int:
        """Exponent of the smallest subnormal: every finite value is a multiple of 2^lsb_exponent."""
        return 1 - self.bias - self.fraction_bits

    @property
    def magnitude_bits(self) -> int:
        """Bits of the largest finite magnitude in units of 2^lsb_exponent."""
        return self.max_exponent_field - 2 + self.significand_bits


@dataclass(frozen=True)
class IntegerFormat:
    """A two's complement integer, which a scale makes a number."""

    name: str
    width: int

    @property
    def least(self) -> int:
        return -1 << (self.width - 1)

    @property
    def largest(self) -> int:
        return (1 << (self.width - 1)) - 1

    @property
    def magnitude_bits(self) -> int:
        """Any difference of two of them, or of one and a mean, is smaller than 2^magnitude_bits."""
        return self.width


FP16 = FloatFormat("fp16", 5, 10)
BF16 = FloatFormat("bf16", 8, 7)
FP32 = FloatFormat("fp32", 8, 23)
INT8 = IntegerFormat("int8", 8)

FLOAT_FORMATS = {fmt.name: fmt for fmt in (FP16, BF16, FP32)}
