# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Rows that normalization hardware is known to get wrong: kinds of stimulus for the tests of this build, and of yours."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint16]
Random = np.random.Generator

LARGEST = 65504.0
SMALLEST = 2.0**-24


def _alternating(low: float, high: float) -> Callable[[int, Random], NDArray[Any]]:
    return lambda n, random: np.where(np.arange(n) % 2, high, low)


def _constant(n: int, random: Random) -> NDArray[Any]:
    return np.full(n, random.choice([3.0, -0.1, 1234.0, 2.0**-24, 65504.0, 6.1e-5]))


def _one_huge(n: int, random: Random) -> NDArray[Any]:
    row = random.normal(0.0, 1e-3, n)
    row[random.integers(n)] = random.choice([-LARGEST, LARGEST])
    return row


def _lonely(n: int, random: Random) -> NDArray[Any]:
    row = np.full(n, 4096.0)
    row[-1] = 4100.0
    return row


def _outlier_channels(n: int, random: Random) -> NDArray[Any]:
    row = random.normal(0.0, 0.5, n)
    row[:: max(1, n // 3)] *= 600.0
    return row


KINDS: dict[str, Callable[[int, Random], NDArray[Any]]] = {
    "normal": lambda n, random: random.normal(0.0, 1.0, n),
    "zeros": lambda n, random: np.zeros(n),
    "negative zeros": lambda n, random: -np.zeros(n),
    "constant": _constant,
    "one huge": _one_huge,
    "largest": lambda n, random: random.choice([-LARGEST, LARGEST], n),
    "all largest": lambda n, random: np.full(n, LARGEST),
    "subnormals": lambda n, random: random.integers(-1023, 1024, n) * SMALLEST,
    "smallest": lambda n, random: random.choice([-SMALLEST, 0.0, SMALLEST], n),
    "mean 2049": _alternating(2048.0, 2050.0),
    "mean 60016": _alternating(60000.0, 60032.0),
    "lonely": _lonely,
    "wide": lambda n, random: random.normal(0.0, 1.0, n) * 2.0 ** random.integers(-20, 14, n),
    "offset": lambda n, random: random.normal(-300.0, 0.1, n),
    "outlier channels": _outlier_channels,
    "squares overflow": lambda n, random: random.choice([256.0, -256.0, 496.5], n),
}
"""Kind -> maker of a row of n numbers that FP16 holds after rounding."""


def row(kind: str, n: int, random: Random) -> Bits:
    """FP16 bits of a row of one of `KINDS`, or of `"any bits"`: all finite patterns alike."""
    if kind == "any bits":
        return finite(random, n)
    values = np.clip(KINDS[kind](n, random), -LARGEST, LARGEST)
    bits: Bits = values.astype(np.float16).view(np.uint16)
    return bits


INTEGER_KINDS: dict[str, Callable[[int, Random], NDArray[Any]]] = {
    "any": lambda n, random: random.integers(-128, 128, n),
    "normal": lambda n, random: np.clip(np.rint(random.normal(0.0, 40.0, n)), -128, 127),
    "zeros": lambda n, random: np.zeros(n),
    "constant": lambda n, random: np.full(n, random.choice([-128, -1, 1, 100, 127])),
    "small": lambda n, random: random.choice([-1, 0, 1], n),
    "largest": lambda n, random: random.choice([-128, 127], n),
    "lonely": lambda n, random: np.where(np.arange(n) == random.integers(n), -128, 0),
    "offset": lambda n, random: 100 + random.choice([-1, 0, 1, 27], n),
}
"""Kind -> maker of a row of n INT8 numbers."""


def integers(kind: str, n: int, random: Random) -> NDArray[np.int8]:
    """A row of one of `INTEGER_KINDS`."""
    return INTEGER_KINDS[kind](n, random).astype(np.int8)


def finite(random: Random, n: int) -> Bits:
    """n finite FP16 patterns, all alike probable."""
    magnitude = random.integers(0, 0x7C00, n)
    sign = random.integers(0, 2, n) << 15
    return (magnitude | sign).astype(np.uint16)


def parameters(kind: str, n: int, width: int, random: Random) -> NDArray[Any]:
    """Gamma or beta as bits of 16 or 32 bits: `"plain"` numbers about one, `"wide"` ones with zeros and subnormals, `"special"` with
    infinities and NaN among them."""
    if width not in (16, 32):
        raise ValueError(f"width = {width}: allowed are 16 and 32")
    float_type, bits_type = (np.float16, np.uint16) if width == 16 else (np.float32, np.uint32)
    if kind == "plain":
        return random.normal(1.0, 0.5, n).astype(float_type).view(bits_type)
    spread = (-24, 15) if width == 16 else (-45, 17)
    values = random.normal(0.0, 1.0, n) * 2.0 ** random.integers(*spread, n)
    values[random.random(n) < 0.05] = 0.0
    if kind == "special":
        chosen = random.random(n) < 0.1
        values[chosen] = random.choice([np.inf, -np.inf, np.nan], int(chosen.sum()))
    limit = LARGEST if width == 16 else np.inf
    values = np.where(np.isfinite(values), np.clip(values, -limit, limit), values)
    return values.astype(float_type).view(bits_type)
