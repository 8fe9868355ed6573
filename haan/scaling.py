# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Parameters of rows with INT8 output: the scale of the output is put into gamma and beta, by software."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .config import Configuration, ConfigurationError

Array = NDArray[Any]


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

    Raises ConfigurationError where a finite number becomes infinite.
    """
    factor = np.ones(n) if gamma is None else np.asarray(gamma, dtype=np.float64)
    if one_plus_gamma and gamma is not None:
        factor = factor + 1
    return (
        _divided("gamma", factor, y_scale, configuration),
        None if beta is None else _divided("beta", np.asarray(beta), y_scale, configuration),
    )


def _divided(name: str, values: Array, y_scale: float, configuration: Configuration) -> Array:
    fmt = configuration.what.parameter_format
    with np.errstate(all="ignore"):
        exact = values.astype(np.float64) / y_scale
        stored: Array = exact.astype(np.float32 if fmt == "fp32" else np.float16)
    beyond = np.isfinite(values) & ~np.isfinite(stored)
    if beyond.any():
        raise ConfigurationError(
            f"{name} has {values[beyond][0]}, which divided by y_scale = {y_scale} is beyond the build's parameter_format = {fmt!r}"
        )
    return stored
