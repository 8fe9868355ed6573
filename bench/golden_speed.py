# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Speed of the golden model, as elements a second and as a ratio to a float32 layer norm in NumPy of the same array.

`python bench/golden_speed.py` measures both alternately in one run and prints medians; `--json` prints them for programs.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from haan.golden import normalize

CASES: dict[str, dict[str, Any]] = {
    "layernorm, gamma+beta": {"mode": "layernorm", "affine": True},
    "layernorm": {"mode": "layernorm", "affine": False},
    "rmsnorm, gamma+beta": {"mode": "rmsnorm", "affine": True},
    "rmsnorm": {"mode": "rmsnorm", "affine": False},
}


def float32_norm(
    x: NDArray[np.float16],
    gamma: NDArray[np.float32] | None,
    beta: NDArray[np.float32] | None,
    mode: str,
) -> NDArray[np.float16]:
    """The usual norm in float32, results rounded to float16."""
    z = x.astype(np.float32)
    if mode == "layernorm":
        z -= z.mean(axis=1, keepdims=True)
    z /= np.sqrt(np.square(z).mean(axis=1, keepdims=True) + np.float32(1e-5))
    if gamma is not None:
        z *= gamma
    if beta is not None:
        z += beta
    return z.astype(np.float16)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(
    mode: Literal["layernorm", "rmsnorm"], affine: bool, rows: int, n: int, repeats: int
) -> dict[str, float]:
    """Medians over `repeats` runs of either, in turns."""
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, n)).astype(np.float16)
    gamma, beta = random.uniform(0.5, 2, (2, n)).astype(np.float16) if affine else (None, None)
    wide_gamma, wide_beta = (
        None if array is None else array.astype(np.float32) for array in (gamma, beta)
    )

    def golden() -> object:
        return normalize(x, gamma, beta, mode=mode)

    def plain() -> object:
        return float32_norm(x, wide_gamma, wide_beta, mode)

    golden(), plain()
    pairs = [(seconds(golden), seconds(plain)) for _ in range(repeats)]
    return {
        "million_elements_per_second": x.size / statistics.median(g for g, _ in pairs) / 1e6,
        "float32_million_elements_per_second": x.size
        / statistics.median(p for _, p in pairs)
        / 1e6,
        "ratio": statistics.median(g / p for g, p in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--n", type=int, default=768, help="elements in a row")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    results = {
        name: measure(**case, rows=given.rows, n=given.n, repeats=given.repeats)
        for name, case in CASES.items()
    }
    if given.json:
        print(json.dumps({"rows": given.rows, "n": given.n, "results": results}, indent=2))
        return
    print(f"{given.rows} rows of {given.n}, medians of {given.repeats}")
    print(f"{'norm':24}{'golden':>12}{'float32':>12}{'time ratio':>12}")
    for name, result in results.items():
        golden, plain, ratio = result.values()
        print(f"{name:24}{golden:8.1f} M/s{plain:8.1f} M/s{ratio:12.2f}")


if __name__ == "__main__":
    main()
