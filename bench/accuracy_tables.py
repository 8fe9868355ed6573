# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of docs/accuracy.md: `python bench/accuracy_tables.py` (ten seconds)."""

import math
from typing import Any

import numpy as np

from haan.config import Configuration
from haan.golden.bounds import error_bound, error_terms, fixed_error, integer_error, root_error
from haan.layer import LayerSettings

SEEDS: dict[str, dict[str, Any]] = {
    "classic": {"seed": "classic"},
    "tuned": {"seed": "tuned"},
} | {
    f"{segments} segments{', slopes' if slopes else ''}": {
        "seed": "segmented",
        "segments": segments,
        "segment_slopes": slopes,
    }
    for segments in (16, 32, 64)
    for slopes in (False, True)
}

BUILDS = tuple(Configuration().with_(parameter_format=fmt) for fmt in ("fp16", "fp32"))


def up(value: float, digits: int) -> str:
    """Rounded up: a bound stays one."""
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f}"


def seed_rows() -> list[tuple[str, ...]]:
    """Per seed and number of steps: the root's errors, and the bound with FP16 and with FP32 parameters."""
    rows = []
    for name, seed in SEEDS.items():
        for steps in range(4):
            builds = [build.with_(newton_steps=steps, **seed) for build in BUILDS]
            error = root_error(builds[0].how)
            bounds = [up(error_bound(build), 4) for build in builds]
            rows.append((name, str(steps), *(f"{part:.3e}" for part in error), *bounds))
    return rows


def term_rows() -> list[tuple[str, ...]]:
    """The summands of the default configuration's bound, too large and too small, with FP16 and with FP32 parameters."""
    fp16, fp32 = (error_terms(build) for build in BUILDS)
    return [(name, *(up(part, 5) for part in (*fp16[name], *fp32[name]))) for name in fp16]


def norm_rows() -> list[tuple[str, ...]]:
    """The default configuration's bound by what a row asks for."""
    rows = []
    for mode in ("layernorm", "rmsnorm"):
        for affine in ("none", "gamma", "beta", "gamma+beta"):
            settings = LayerSettings.from_dict({"mode": mode, "n": 1, "affine": affine})
            rows.append((mode, affine, *(up(error_bound(b, settings), 4) for b in BUILDS)))
    return rows


def integer_rows() -> list[tuple[str, ...]]:
    """The bounds with INT8: of FP16 results, and of INT8 ones of 127 LSB before they are rounded."""
    rows = []
    for x, y in (("int8", "fp16"), ("int8", "int8"), ("fp16", "int8")):
        layer = {"n": 1, "affine": "gamma+beta", "input_format": x, "output_format": y}
        settings = LayerSettings.from_dict(layer)
        if y == "fp16":
            bounds = [error_bound(build, settings) for build in BUILDS]
        else:
            most = np.array(127.0)
            bounds = [float(integer_error(build, settings, most, 127.0)) for build in BUILDS]
        name = {"fp16": "fp16, in ulp", "int8": "int8, in LSB before rounding"}[y]
        rows.append((x, name, *(up(bound, 4) for bound in bounds)))
    return rows


def fixed_rows() -> list[tuple[str, ...]]:
    """The bounds with INT8 alone, before results are rounded: of 127 LSB with an x-hat of 3, and of any that aren't saturated."""
    rows = []
    gamma = np.linspace(0.1, 511, 5001)
    for max_n in (768, 4096, 65536):
        most = np.minimum(math.sqrt(max_n), 641 / gamma)
        for mode, distance in (("layernorm", 255), ("rmsnorm", 128)):
            layer = {"n": 1, "mode": mode, "affine": "gamma+beta"}
            settings = LayerSettings.from_dict(
                layer | {"input_format": "int8", "output_format": "int8"}
            )
            builds = [build.with_(formats=["int8"], max_n=max_n) for build in BUILDS]
            bounds = [
                *(fixed_error(b, settings, 127 / 3, 3.0, 127.0, 3 / distance) for b in builds),
                *(fixed_error(b, settings, gamma, most, 511.0, most / distance) for b in builds),
            ]
            rows.append((str(max_n), mode, *(up(float(bound.max()), 4) for bound in bounds)))
    return rows


def main() -> None:
    for rows in (seed_rows(), term_rows(), norm_rows(), integer_rows(), fixed_rows()):
        for row in rows:
            print("| " + " | ".join(row) + " |")
        print()


if __name__ == "__main__":
    main()
