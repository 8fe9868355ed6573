# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The mean's window and the lanes: from an element to its result. Sections 6 to 8 and 12 of `docs/numerics.md`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..config import Configuration
from ..formats import FP16
from ..layer import LayerSettings
from ..numerics import D_BITS, SUBSAMPLED_LSB, WINDOW_GUARD, Numerics
from .fp16 import (
    MAGNITUDES,
    NAN,
    SIGN_BIT,
    Bits,
    Mask,
    nonfinite,
    ordinal,
    ordinal_value,
    round_fp16,
)
from .int8 import round_int8
from .significand import FRACTION, Float, Int, add, half_toward_infinity, half_up, odd
from .statistics import Integers

_LSB = FP16.lsb_exponent
_UNSIGNED_MAGNITUDES = MAGNITUDES.astype(np.uint64)
_MIN_BETA_EXPONENT = -14
"""An FP32 beta has its last bit at 2^-35 at least."""


@dataclass(frozen=True, eq=False)
class RowConstants:
    """What a lane needs of a row; arrays of shape (rows,)."""

    lsb: Int
    """λ: exponent of the window's least significant bit."""
    mean: Int
    """mw: the mean in units of 2^λ, modulo 2^W."""
    isd: Int
    """im: 17 bits; 0 stands for a row without variance, whose x-hat is 0."""
    isd_exponent: Int
    """ie."""

    def part(self, rows: slice) -> "RowConstants":
        """Those of some rows."""
        return RowConstants(
            self.lsb[rows], self.mean[rows], self.isd[rows], self.isd_exponent[rows]
        )


@dataclass(frozen=True, eq=False)
class Affine:
    """Gamma and beta as the hardware multiplies and adds them; None where a row has none."""

    gamma: Float | None = None
    """(N,)"""
    beta: Float | None = None
    """(N,)"""
    nonfinite: Mask | None = None
    """(N,): gamma or beta is infinite or NaN (and is 0 here); None: nowhere."""

    @classmethod
    def stored(
        cls,
        gamma: NDArray[np.floating] | None,
        beta: NDArray[np.floating] | None,
        configuration: Configuration,
        one_plus_gamma: bool = False,
    ) -> "Affine":
        """Gamma and beta as they are stored; both float16 or float32 as `parameter_format` says."""
        if one_plus_gamma and gamma is not None:
            gamma = np.float32(1) + gamma.astype(np.float32)
        given = [array for array in (gamma, beta) if array is not None]
        bad = np.any([~np.isfinite(array) for array in given], axis=0) if given else None
        return cls(
            None if gamma is None else _stored_gamma(_finite(gamma), Numerics(configuration)),
            None if beta is None else _stored_beta(_finite(beta), Numerics(configuration)),
            bad if bad is not None and bad.any() else None,
        )


def _finite(parameter: NDArray[np.floating]) -> Float:
    """In float64, with 0 for what isn't finite, and for FP32's subnormals."""
    smallest = np.finfo(np.float32).tiny if parameter.dtype == np.float32 else 0.0
    used = np.isfinite(parameter) & (np.abs(parameter) >= smallest)
    return np.where(used, parameter, parameter.dtype.type(0)).astype(np.float64)


def _stored_gamma(gamma: Float, numerics: Numerics) -> Float:
    return half_up(gamma, numerics.gamma_bits)


def _stored_beta(beta: Float, numerics: Numerics) -> Float:
    if numerics.configuration.what.parameter_format == "fp32":
        exponent = np.maximum(np.frexp(beta)[1] - 1, _MIN_BETA_EXPONENT)
        unit = np.ldexp(1.0, exponent - (numerics.beta_bits - 1))
        beta = np.copysign(np.floor(np.abs(beta) / unit + 0.5) * unit, beta)
    # A zero is +0, as an exact zero result is.
    return beta + 0.0


def window_lsb(k: Int, settings: LayerSettings, configuration: Configuration) -> Int:
    """λ of rows whose standard deviation is in [2^k, 2^(k+1)); (rows,)."""
    numerics = Numerics(configuration)
    if settings.mode == "rmsnorm":
        return np.full_like(k, _LSB)
    if settings.int8_input:
        return np.full_like(k, numerics.integer_lsb)
    if settings.samples < settings.n:
        return np.maximum(k - WINDOW_GUARD, SUBSAMPLED_LSB)
    return np.maximum(k - WINDOW_GUARD, numerics.lowest_lsb)


def window_mean(s1: Integers, n: int, lsb: Int) -> list[int]:
    """⌊S1/N · 2^-24 / 2^λ⌋ of each row, exact and not yet modulo 2^W."""
    return [
        (total << shift) // n if shift >= 0 else total // (n << -shift)
        for total, shift in zip(s1.tolist(), (_LSB - lsb).tolist(), strict=True)
    ]


def centred(bits: Bits, row: RowConstants, configuration: Configuration) -> Float:
    """d = z − mean, rounded to 18 bits, in units of 2^λ; (rows, N)."""
    width = Numerics(configuration).window
    left = np.maximum(_LSB - row.lsb, 0).astype(np.uint64)[:, None]
    right = np.clip(row.lsb - _LSB, 0, 63).astype(np.uint64)[:, None]
    mean = row.mean.astype(np.uint64)[:, None]
    # Unsigned: modulo 2^64, of which 2^W is a divisor.
    delta = _UNSIGNED_MAGNITUDES[bits] << left
    delta >>= right
    delta += np.where(bits >= SIGN_BIT, mean, -mean)
    delta <<= np.uint64(64 - width)
    difference = delta.view(np.int64)
    difference >>= 64 - width
    if width > FRACTION:
        # Bits that the rounding ignores must not make the conversion round.
        difference &= np.where(np.abs(difference) >> FRACTION, -1 << (width - FRACTION), -1)
    d = half_toward_infinity(difference.astype(np.float64), D_BITS)
    raw = d.view(np.int64)
    raw ^= (bits & SIGN_BIT).astype(np.int64) << (64 - FP16.width)
    return d


def normalized(
    bits: Bits, row: RowConstants, configuration: Configuration, cast_before_gamma: bool
) -> Float:
    """x-hat, rounded to 18 bits or (`cast_before_gamma`) to FP16; (rows, N)."""
    # Window units and the ISD's fraction bits in one factor: all powers of two.
    isd = np.ldexp(row.isd.astype(np.float64), row.isd_exponent - 16 + row.lsb)
    product = centred(bits, row, configuration) * isd[:, None]
    if cast_before_gamma:
        xhat: Float = np.copysign(ordinal_value(ordinal(np.abs(product))), product)
        return xhat
    return half_up(product, D_BITS)


def nothing(int8_output: bool) -> np.uint16:
    """What stands for a result that there is not: NaN, in INT8 0."""
    return np.uint16(0) if int8_output else NAN


def lane(
    bits: Bits,
    row: RowConstants,
    affine: Affine,
    configuration: Configuration,
    cast_before_gamma: bool = False,
    int8_output: bool = False,
) -> tuple[Bits | NDArray[np.uint8], Mask]:
    """Results of the elements of rows.

    Parameters
    ----------
    bits : (rows, N), FP16 bit patterns
    row : constants of each row
    affine : gamma and beta, (N,) or anything that broadcasts to (rows, N)

    Returns (rows, N): FP16 bits, NaN for elements that are infinite or NaN themselves or meet such a parameter; and where a finite
    result became infinite. Or INT8 bits, 0 in the place of NaN; and where a result was saturated.
    """
    value = normalized(bits, row, configuration, cast_before_gamma)
    if affine.gamma is not None:
        value *= affine.gamma
    if affine.beta is None:
        value += 0.0  # -0 becomes +0
    else:
        value = add(odd(value, Numerics(configuration).product_bits), affine.beta)
    y, overflow = round_int8(value) if int8_output else round_fp16(value)
    bad = nonfinite(bits)
    if affine.nonfinite is not None:
        bad |= affine.nonfinite
    if bad.any():
        y[bad] = nothing(int8_output)
        overflow &= ~bad
    return y, overflow
