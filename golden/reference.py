# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The judge: normalization in float64, and the error of a result in units of the last place of FP16 or INT8."""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..formats import INT8

Float = NDArray[np.float64]

_LARGEST = 2.0**16
"""Stands for results beyond FP16: infinity counts as the number after the largest finite one."""


class Reference(NamedTuple):
    """Normalized rows in float64, good to 1e-12 relative."""

    y: Float
    """Shape of x; not rounded."""
    gamma_xhat: Float
    """y without beta."""
    mean: Float
    """(rows,)"""
    isd: Float
    """(rows,): 0 in rows without variance."""


def reference(
    x: NDArray[np.float16] | NDArray[np.int8],
    gamma: NDArray[Any] | None = None,
    beta: NDArray[Any] | None = None,
    mode: Literal["layernorm", "rmsnorm"] = "layernorm",
    eps: float = 1e-5,
    n_sub: int | None = None,
    first: int = 0,
    stride: int = 1,
    one_plus_gamma: bool = False,
    x_scale: ArrayLike = 1.0,
    y_scale: float = 1.0,
) -> Reference:
    """Normalizes rows of finite numbers as `haan.golden.normalize` does, but in float64; eps is rounded to FP32 as in the hardware.

    x: (rows, N) or (N,), float16 or int8; gamma and beta: (N,), any floating type. x_scale: a number or (rows,), rounded to FP32, what x
    is multiplied by. y_scale: what y is divided by. N·z − Σz is formed in integers, so that a mean far larger than the spread costs no digits.
    """
    integers = np.ldexp(np.atleast_2d(x).astype(np.float64), 24).astype(np.int64)
    count = integers.shape[1] if n_sub is None else n_sub
    sampled = slice(first, first + stride * (count - 1) + 1, stride)
    total = integers[:, sampled].sum(axis=1, keepdims=True)
    if mode == "rmsnorm":
        total = np.zeros_like(total)
    centred = np.ldexp((count * integers - total).astype(np.float64) / count, -24)
    factor = np.asarray(x_scale, dtype=np.float32).astype(np.float64).reshape(-1, 1)
    centred = centred * factor
    variance = np.square(centred[:, sampled]).mean(axis=1, keepdims=True)
    spread = np.sqrt(variance + float(np.float32(eps)))
    isd = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    scale = np.float64(1) if gamma is None else np.asarray(gamma, dtype=np.float64)
    if one_plus_gamma:
        scale = scale + 1
    gamma_xhat = (centred * isd * (scale / y_scale)).reshape(np.shape(x))
    y = gamma_xhat if beta is None else gamma_xhat + np.asarray(beta, dtype=np.float64) / y_scale
    mean = np.ldexp(total / count, -24) * factor
    return Reference(y, gamma_xhat, mean[:, 0], isd[:, 0])


def ulp(value: Float) -> Float:
    """FP16's unit in the last place at a number's magnitude: 2^-24 at least, 32 at most."""
    exponent = np.frexp(np.maximum(np.abs(value), 2.0**-14))[1] - 1
    unit: Float = np.ldexp(1.0, np.minimum(exponent, 15) - 10)
    return unit


def ulp_error(y: NDArray[np.float16], y64: Float, gamma_xhat64: Float) -> Float:
    """|y − y64| in ulp of the larger of |y64| and |gamma·x-hat|: where beta cancels, the terms' last place counts, not the result's.

    Elementwise. Numbers beyond ±65536 count as ±65536, which is what an infinite y stands for.
    """
    result = np.clip(y.astype(np.float64), -_LARGEST, _LARGEST)
    exact = np.clip(y64, -_LARGEST, _LARGEST)
    return np.abs(result - exact) / ulp(np.maximum(np.abs(y64), np.abs(gamma_xhat64)))


def lsb_error(y: NDArray[np.int8], y64: Float) -> Float:
    """|y − what y64 is as INT8|: rounded to the nearest integer, ties to even, and saturated. Elementwise."""
    exact = np.clip(np.rint(y64), INT8.least, INT8.largest)
    error: Float = np.abs(y.astype(np.float64) - exact)
    return error
