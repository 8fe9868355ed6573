# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Scales of INT8 rows: that of the output is put into gamma and beta, by software; numbers become INT8 rows."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .config import Configuration, ConfigurationError
from .formats import INT8
from .numerics import INTEGER_PARAMETER_FRACTION, INTEGER_PARAMETER_LIMIT

Array = NDArray[Any]
Parameter = Literal["gamma", "beta"]

_LIMIT = INTEGER_PARAMETER_LIMIT << INTEGER_PARAMETER_FRACTION


def divided(
    gamma: Array | None,
    beta: Array | None,
    n: int,
    y_scale: float,
    configuration: Configuration,
    one_plus_gamma: bool = False,
) -> tuple[Array, Array | None]:
    """Gamma and beta as they are written to the slot of a layer with INT8 output: divided by y_scale in float64, then rounded to the
    build's parameter format.

    gamma, beta : (n,), any floating type, or None: a layer without gamma is written ones
    one_plus_gamma : gamma is an offset from one; it is added here, and what is returned is to be written without that bit

    Raises ConfigurationError where a finite number becomes one that the build doesn't hold.
    """
    factor = np.ones(n) if gamma is None else np.asarray(gamma, dtype=np.float64)
    if one_plus_gamma and gamma is not None:
        factor = factor + 1
    return (
        _divided("gamma", factor, y_scale, configuration),
        None if beta is None else _divided("beta", np.asarray(beta), y_scale, configuration),
    )


def written(
    gamma: Array | None,
    beta: Array | None,
    n: int,
    y_scale: float | None,
    configuration: Configuration,
    one_plus_gamma: bool,
) -> dict[Parameter, tuple[Array, bool]]:
    """What is written to a slot, and whether it is an offset from one; y_scale: of INT8 results (`divided`), None: results are FP16."""
    vectors, offset = (gamma, beta), one_plus_gamma
    if y_scale is not None:
        vectors = divided(gamma, beta, n, y_scale, configuration, one_plus_gamma)
        offset = False
    found: dict[Parameter, tuple[Array, bool]] = {}
    if vectors[0] is not None:
        found["gamma"] = vectors[0], offset
    if vectors[1] is not None:
        found["beta"] = vectors[1], False
    return found


def _divided(name: str, values: Array, y_scale: float, configuration: Configuration) -> Array:
    what = configuration.what
    fmt = what.parameter_format
    with np.errstate(all="ignore"):
        exact = values.astype(np.float64) / y_scale
        stored: Array = exact.astype(np.float32 if fmt == "fp32" else np.float16)
    beyond = np.isfinite(values) & ~np.isfinite(stored)
    if beyond.any():
        raise ConfigurationError(
            f"{name} has {values[beyond][0]}, which divided by y_scale = {y_scale} is beyond the build's parameter_format = {fmt!r}"
        )
    if what.integer:
        units = np.rint(stored.astype(np.float64) * (1 << INTEGER_PARAMETER_FRACTION))
        beyond = np.isfinite(values) & (np.abs(units) > _LIMIT)
        if beyond.any():
            raise ConfigurationError(
                f"{name} has {values[beyond][0]}, which divided by y_scale = {y_scale} is beyond ±{INTEGER_PARAMETER_LIMIT}, what a build with "
                "INT8 alone holds"
            )
    return stored


def quantized(
    x: Array, x_scale: float | None = None
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """INT8 rows, and what the elements of each are to be multiplied by: x_scale, beyond which they saturate; or, if it is None, what makes
    the largest magnitude of a row 127.

    x : (rows, N), finite numbers of any floating type
    """
    numbers = np.asarray(x, dtype=np.float64)
    if x_scale is None:
        largest = np.abs(numbers).max(axis=1)
        least = np.maximum(largest / INT8.largest, 2.0**-126)
        scale = np.where(largest, least, 1).astype(np.float32)
    else:
        scale = np.full(len(numbers), x_scale, np.float32)
    elements = np.rint(numbers / scale[:, None].astype(np.float64))
    return np.clip(elements, -128, 127).astype(np.int8), scale


def result_scale(y: Array, gamma: Array | None, beta: Array | None) -> float:
    """A y_scale with which the largest of the results y becomes 127; or, where that is greater, one by which gamma (one where there is none)
    and beta can be divided in a build with INT8 alone. What is not finite is no matter."""
    least = max(
        _largest(y) / INT8.largest,
        (1.0 if gamma is None else _largest(gamma)) / INTEGER_PARAMETER_LIMIT,
        (0.0 if beta is None else _largest(beta)) / INTEGER_PARAMETER_LIMIT,
    )
    return float(np.clip(np.float32(least), 2.0**-126, np.finfo(np.float32).max))


def _largest(values: Array) -> float:
    """Magnitude of the finite ones."""
    numbers = np.abs(np.asarray(values, dtype=np.float64))
    return float(np.max(numbers, initial=0.0, where=np.isfinite(numbers)))
