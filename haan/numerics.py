# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Widths and constants that follow from a configuration; `docs/numerics.md` defines what they mean."""

from dataclasses import dataclass
from functools import cached_property

from .config import Configuration
from .formats import FP16, INT8

VARIANCE_BITS = 24
"""Significand of the variance, of 1/N² and of var + eps."""
X_FRACTION_BITS = 20
"""Fraction bits of the argument of the inverse square root, in [1, 4)."""
T_FRACTION_BITS = 26
"""Fraction bits of y² in a Newton step."""
RESIDUAL_FRACTION_BITS = 24
"""Fraction bits of 1 − x·y² in a Newton step."""
FACTOR_FRACTION_BITS = 25
"""Fraction bits of the factor that a Newton step multiplies y with."""
Y_FRACTION_BITS = 22
"""Fraction bits of y between Newton steps."""
ISD_BITS = 17
"""Significand of the ISD: the widest that DSP48E2's 18-bit signed port takes."""
KEPT_EXPONENT_BITS = 6
"""Signed width of the exponent of an ISD that is kept."""
PREDICTED_EXPONENT_BITS = 8
"""Signed width of the exponent of a predicted ISD."""
EXPONENT_BITS = 10
"""Signed width of the exponents of variance, eps and ISD, and of the ISD times a scale."""
D_BITS = 18
"""Significand of z − mean and of x-hat: the widest unsigned operand of ECP5's MULT18X18D."""
SCALE_EXPONENT_BITS = 8
"""Signed width of the exponent that a row adds to those of its elements."""
WINDOW_GUARD = 32
"""G: the window's least significant bit is 2^-G of the standard deviation."""
SUBSAMPLED_LSB = -40
"""Smallest exponent of the window's least significant bit in a subsampled row."""
SCALED_ISD_EXPONENTS = range(-56, 64)
"""Exponents of the ISD times the scale of an INT8 row: below them x-hat is 0, above them the largest stands."""
INTEGER_MEAN_FRACTION = 20
"""Fraction bits of the mean in builds with INT8 alone."""
INTEGER_ISD_BITS = 25
"""The ISD in fixed point there, and the magnitude of x-hat: what DSP48E2's signed 27 bits take, with a place for -2^25."""
INTEGER_PARAMETER_BITS = 18
"""Gamma and beta in fixed point there, signed."""
INTEGER_PARAMETER_FRACTION = 8
"""Their fraction bits."""
INTEGER_PARAMETER_LIMIT = 511
"""Their largest magnitude; the half that rounds a result is added to beta as well."""
DROPPED_SQUARE_BITS = 28
"""Low bits that a square loses with the `window` accumulator."""


def clog2(value: int) -> int:
    """Smallest k with 2^k ≥ value, for value ≥ 1."""
    return (value - 1).bit_length()


@dataclass(frozen=True)
class Numerics:
    """Derived widths of one build, in bits."""

    configuration: Configuration

    @property
    def growth(self) -> int:
        """g: growth of a sum over a row."""
        return clog2(self.configuration.what.max_n)

    @property
    def n_bits(self) -> int:
        """Width of a count of 0..max_n."""
        return self.configuration.what.max_n.bit_length()

    @property
    def lsb_exponent(self) -> int:
        """Every element is a multiple of 2^lsb_exponent; INT8 ones of their scale times that."""
        return 0 if self.configuration.what.integer else FP16.lsb_exponent

    @property
    def z_bits(self) -> int:
        """Magnitude of an element in units of 2^lsb_exponent: smaller than 2^z_bits."""
        return self.configuration.what.element.magnitude_bits

    @property
    def s1_bits(self) -> int:
        """Sum of the elements, signed."""
        return self.z_bits + self.growth + 1

    @property
    def s2_bits(self) -> int:
        """Sum of the squares, unsigned."""
        return 2 * self.z_bits + self.growth

    @property
    def dropped_square_bits(self) -> int:
        return DROPPED_SQUARE_BITS if self._lossy else 0

    @property
    def v_bits(self) -> int:
        """N·S2 − S1², unsigned."""
        return self.s2_bits + self.growth

    @property
    def mean_fraction(self) -> int:
        """F: fraction bits of the mean below the input's least significant bit."""
        if self.configuration.what.integer:
            return INTEGER_MEAN_FRACTION
        return WINDOW_GUARD + (self.growth + 1) // 2 + 2

    @cached_property
    def window(self) -> int:
        """W: bits of the window in which z − mean is computed."""
        if self.configuration.what.subsampling:
            return FP16.magnitude_bits + FP16.lsb_exponent - SUBSAMPLED_LSB + 2
        spread = (self.growth + 1) // 2 + 2 + self._lossy
        return max(WINDOW_GUARD + spread, FP16.magnitude_bits + 1)

    @property
    def lowest_lsb(self) -> int:
        """Smallest exponent of the window's least significant bit in a row with full statistics.

        The exact accumulator needs none below the mean's. With lossy squares the true standard deviation may exceed the computed
        one, by 2^-10 at most: the window of a row with a smaller one holds √N times that.
        """
        exact = FP16.lsb_exponent - self.mean_fraction
        lossy = (self.growth + 1) // 2 - 8 - self.window
        return max(exact, lossy) if self._lossy else exact

    @property
    def integer_lsb(self) -> int:
        """Exponent of the window's least significant bit in a LayerNorm row with INT8 input: q − mean fits whatever they are."""
        return INT8.magnitude_bits + 1 - self.window

    @property
    def _lossy(self) -> bool:
        return self.configuration.how.accumulator == "window"

    @property
    def biased_sum_bits(self) -> int:
        """S1 + N·2^z_bits, unsigned."""
        return self.z_bits + 1 + self.growth

    @property
    def reciprocal_precision(self) -> int:
        """L: 1/N is held as ⌈2^(L + clog2(N))/N⌉."""
        return self.biased_sum_bits + self.mean_fraction

    @property
    def x_fraction(self) -> int:
        """Fraction bits of x-hat, and of the ISD, in builds with INT8 alone: no ISD of a row is larger than N/√(N − 1)."""
        return INTEGER_ISD_BITS - 1 - (self.growth + 1) // 2

    @property
    def integer_mean_bits(self) -> int:
        """The mean times the ISD there, signed."""
        return INTEGER_ISD_BITS + INT8.width + 1

    @property
    def gamma_bits(self) -> int:
        """wg: significand of a stored gamma."""
        return 17 if self.configuration.what.parameter_format == "fp32" else 11

    @property
    def beta_bits(self) -> int:
        """wb: significand of a stored beta."""
        return 22 if self.configuration.what.parameter_format == "fp32" else 11

    @property
    def product_bits(self) -> int:
        """wp: bits of the product that beta is added to, the last one sticky (rounded to odd)."""
        return 21 if self.configuration.what.parameter_format == "fp32" else 18

    @property
    def row_beats(self) -> int:
        """Beats of a row of max_n elements."""
        return -(-self.configuration.what.max_n // self.configuration.how.p_n)
