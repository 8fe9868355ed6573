# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""How far a result can be from the exact one. `docs/accuracy.md` derives what is computed here."""

import math
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..config import Configuration, How
from ..formats import FP16, FP32, INT8
from ..layer import LayerSettings
from ..numerics import (
    D_BITS,
    DROPPED_SQUARE_BITS,
    INTEGER_PARAMETER_FRACTION,
    ISD_BITS,
    SCALED_ISD_EXPONENTS,
    SUBSAMPLED_LSB,
    VARIANCE_BITS,
    WINDOW_GUARD,
    X_FRACTION_BITS,
    Numerics,
)
from .inverse_sqrt import inverse_sqrt, root

_RESULT_BITS = 11
_ULPS = 2.0**_RESULT_BITS
"""A relative error is at most this many ulp of an FP16 result."""
_BLOCK = 1 << 16


class RootError(NamedTuple):
    """Worst relative errors of the inverse square root over all its arguments."""

    below: float
    """Most by which it is too small, before the rounding to the ISD's 17 bits."""
    above: float
    """Most by which it is too large, likewise."""
    rounded: float
    """Most by which it is off after that rounding."""


class Term(NamedTuple):
    """A summand of the bound, in ulp, for results whose magnitude is too large and too small."""

    above: float
    below: float


@cache
def root_error(how: How) -> RootError:
    """Exhaustive: all X from 2^20 to 2^22 − 1, two tenths of a second."""
    below = above = rounded = 0.0
    for low in range(1 << X_FRACTION_BITS, 1 << (X_FRACTION_BITS + 2), _BLOCK):
        x = np.arange(low, low + _BLOCK)
        scale = np.sqrt(x * 2.0**-X_FRACTION_BITS)
        y, fraction = root(x, how)
        error = y * 2.0**-fraction * scale - 1
        below, above = max(below, float(-error.min())), max(above, float(error.max()))
        im, ie = inverse_sqrt(x, np.zeros_like(x), how)
        rounded = max(rounded, float(np.abs(np.ldexp(im * scale, ie - 16) - 1).max()))
    return RootError(below, above, rounded)


def error_bound(
    configuration: Configuration,
    settings: LayerSettings | None = None,
    variance: float = math.inf,
) -> float:
    """Bound of `ulp_error`, in ulp, final rounding included; `absolute_error` comes on top.

    Parameters
    ----------
    settings : what the row asks for; None: whatever the build can do, but for `cast_before_gamma`
    variance : the least variance + eps of the rows. It matters to the `window` accumulator alone, whose squares lack up to 2^-20.
    """
    terms = error_terms(configuration, settings, variance).values()
    above, below = (math.fsum(side) for side in zip(*terms, strict=True))
    # What is more than an ulp too large may be rounded where FP16's numbers are twice as far apart.
    return max(above + (0.5 if above <= 1 else 1.0), below + 0.5)


def error_terms(
    configuration: Configuration,
    settings: LayerSettings | None = None,
    variance: float = math.inf,
) -> dict[str, Term]:
    """The summands of `error_bound` but for the final rounding's half ulp, by name. With INT8 output an ulp is one of gamma·x-hat."""
    what, how, numerics = configuration.what, configuration.how, Numerics(configuration)
    fp32 = what.parameter_format == "fp32"
    if settings is None:
        layernorm, gamma, beta, cast = what.layernorm, what.gamma, what.beta, False
    else:
        layernorm, cast = settings.mode == "layernorm", settings.cast_before_gamma
        gamma, beta = "gamma" in settings.affine, "beta" in settings.affine

    significands = _significands(layernorm, gamma, fp32, cast)
    int8_input = settings is not None and settings.int8_input
    terms = {"significands": Term(significands, significands), **_of_root(how, scaled=int8_input)}
    if how.accumulator == "window" and not int8_input:
        share = 2.0 ** (DROPPED_SQUARE_BITS - 48) / variance
        terms["squares"] = Term(_ULPS * _root_of(share), 0.0)
    if what.one_plus_gamma and gamma:
        terms["one plus gamma"] = Term(2.0**-24 * _ULPS, 2.0**-24 * _ULPS)
    terms["second order"] = _second_order(terms)
    if beta:
        lost = 2.0 ** (_RESULT_BITS - numerics.product_bits)
        terms["product"] = Term(2 * lost, lost)
        beta_off = 2.0 ** (_RESULT_BITS - numerics.beta_bits) if fp32 else 0.0
        terms["beta"] = Term(beta_off, beta_off)
    return terms


def _of_root(how: How, *, scaled: bool) -> dict[str, Term]:
    """What the ISD is off before it is rounded to 17 bits, and how; `scaled`: with INT8 input."""
    root_off = root_error(how)
    last = 2.0 ** -(VARIANCE_BITS - 1)
    terms = {
        "root": Term(root_off.above * _ULPS, root_off.below * _ULPS),
        "argument": Term(2.0 ** -(X_FRACTION_BITS + 1) * _ULPS, 0.0),
        "variance": Term(3.5 / 2 * last * _ULPS, 0.5 / 2 * last * _ULPS),
    }
    if scaled:
        # Two products with the square of the scale lose less than 2^-23 of the variance each; the ISD to 24 bits, that of itself.
        terms["scale"] = Term(2 / 2 * last * _ULPS, last * _ULPS)
    return terms


def _root_of(share: float) -> float:
    """Relative error of 1/√v where this share of v is missing."""
    return 1 / math.sqrt(1 - share) - 1 if share < 1 else math.inf


def _second_order(terms: dict[str, Term]) -> Term:
    """Errors multiply: at most e^2R times what they sum to, where R is the sum of both sides as a relative error."""
    above, below = (math.fsum(side) for side in zip(*terms.values(), strict=True))
    exponent = 2 * (above + below) / (_ULPS / 2)
    growth = math.expm1(exponent) if exponent < 700 else math.inf
    return Term(above * growth, below * growth)


def _significands(layernorm: bool, gamma: bool, fp32: bool, cast: bool) -> float:
    """Worst sum, in ulp of the product, of the roundings to nearest of d, isd, x-hat and gamma.

    It is a convex function of the logarithms of the significands, so it is worst in a corner, where each of them is 1 or 2.
    """
    of_d = 2.0**-D_BITS if layernorm else 0.0
    of_isd = 2.0**-ISD_BITS
    of_xhat = 2.0 ** -(_RESULT_BITS if cast else D_BITS)
    of_gamma = 2.0**-17 if fp32 and gamma else 0.0
    worst = 0.0
    for d, isd, g in product((1, 2), (1, 2), (1, 2) if gamma else (1,)):
        for xhat, y in ((d * isd / a, d * isd * g / a / b) for a in (1, 2) for b in (1, 2)):
            if 1 <= xhat <= 2 and 1 <= y <= 2:
                worst = max(worst, y * (of_d / d + of_isd / isd + of_xhat / xhat + of_gamma / g))
    return worst * _ULPS / 2


def absolute_error(
    configuration: Configuration,
    settings: LayerSettings,
    gamma: NDArray[Any] | float,
    isd: NDArray[Any] | float,
) -> NDArray[np.float64]:
    """Bound of the part of the error that does not shrink with |z − mean|: the window's last place, and FP16's in `cast_before_gamma`.

    gamma: factor of each element (one added where it is an offset); isd: of each row, with INT8 input times the scale; they broadcast.
    Units of the result.
    """
    xhat = np.zeros_like(np.asarray(isd, dtype=np.float64))
    if settings.int8_input:
        # The mean is cut; and x-hat is 0 where it is next to nothing.
        if settings.mode == "layernorm":
            xhat += 2.0 ** Numerics(configuration).integer_lsb * np.asarray(isd)
        xhat += 2.0 ** (SCALED_ISD_EXPONENTS[0] + INT8.magnitude_bits)
    elif settings.mode == "layernorm":
        xhat += 2.0 ** (1 - WINDOW_GUARD)
        lowest = 1 + Numerics(configuration).lowest_lsb
        if settings.samples < settings.n:
            # As low as that z is whole, and the mean alone is cut.
            lowest = SUBSAMPLED_LSB
        xhat = np.maximum(xhat, 2.0**lowest * np.asarray(isd))
    if settings.cast_before_gamma:
        xhat += 2.0**-25
    # What rounds afterwards adds less than a thousandth of it.
    result: NDArray[np.float64] = np.abs(gamma) * xhat * 1.001
    return result


def integer_error(
    configuration: Configuration,
    settings: LayerSettings,
    gamma_xhat: NDArray[Any],
    beta: NDArray[Any] | float,
    absolute: NDArray[Any] | float = 0.0,
) -> NDArray[np.float64]:
    """Bound of the error of INT8 results before they are rounded, in LSB: where it is below 1, a result is at most 1 off from the exact one
    rounded. Where gamma divided by y_scale is 0 or a normal number of the parameter format. Builds with INT8 alone: `fixed_error`.

    gamma_xhat, beta : exact, divided by y_scale: the roundings of both to the parameter format are part of the bound
    absolute : `absolute_error`
    """
    parameters = configuration.what.parameters
    terms = error_terms(configuration, settings)
    # An error of an ulp of gamma·x-hat is at most 2^-10 of it.
    of_product = math.fsum(max(term) for name, term in terms.items() if name != "beta") * 2 / _ULPS
    written = 2.0**-parameters.significand_bits
    stored = 2.0 ** -Numerics(configuration).beta_bits if parameters.width == FP32.width else 0.0
    error = np.abs(gamma_xhat) * (of_product + written) + absolute
    if "beta" in settings.affine:
        # A small beta is off by half of what it is a multiple of: FP16's smallest, or 2^-35.
        error = error + np.abs(beta) * (written + stored) + 2.0 ** (FP16.lsb_exponent - 1)
    # Errors of errors.
    result: NDArray[np.float64] = error * 1.001
    return result


def isd_error(configuration: Configuration) -> float:
    """Bound of the relative error of an INT8 row's ISD times its scale, as 17 bits."""
    rounding = 2.0**-ISD_BITS * _ULPS
    terms = _of_root(configuration.how, scaled=True) | {"rounding": Term(rounding, rounding)}
    terms["second order"] = _second_order(terms)
    return max(math.fsum(side) for side in zip(*terms.values(), strict=True)) / _ULPS


def fixed_error(
    configuration: Configuration,
    settings: LayerSettings,
    gamma: NDArray[Any] | float,
    xhat: NDArray[Any] | float,
    beta: NDArray[Any] | float,
    isd: NDArray[Any] | float,
) -> NDArray[np.float64]:
    """`integer_error` of builds with INT8 alone: bound of the error of results before they are rounded, in LSB. For rows with statistics over
    all elements, and gamma and beta within ±511.

    gamma, beta : exact, divided by y_scale; xhat : exact; isd : of each row, times the scale. They broadcast.
    """
    what, numerics = configuration.what, Numerics(configuration)
    gamma, xhat, beta, isd = (
        np.abs(np.asarray(value, dtype=np.float64)) for value in (gamma, xhat, beta, isd)
    )
    # |q − mean|: what the rounding of the ISD to fixed point is multiplied by.
    distance = np.divide(xhat, isd, out=np.zeros(np.broadcast(xhat, isd).shape), where=isd > 0)
    relative = isd_error(configuration)
    last = 2.0**-numerics.x_fraction
    xhat_off = xhat * relative + distance * last / 2
    if settings.mode == "layernorm":
        # The mean is cut, and its product with the ISD rounded. That of equal elements is exact.
        cut = 2.0**-numerics.mean_fraction * (isd * (1 + relative) + last / 2) + last / 2
        xhat_off = np.where(xhat > 0, xhat_off + cut, 0.0)
    written = 2.0**-what.parameters.significand_bits
    # A small FP16 number is off by half of the smallest one; what is stored, by half of its last place.
    stored = 2.0 ** (FP16.lsb_exponent - 1) + 2.0 ** -(INTEGER_PARAMETER_FRACTION + 1)
    gamma_off = gamma * written + stored
    error = (gamma + gamma_off) * xhat_off + xhat * gamma_off
    if "beta" in settings.affine:
        error = error + beta * written + stored
    # Of the float64 numbers themselves.
    result: NDArray[np.float64] = error * (1 + 1e-9)
    return result
