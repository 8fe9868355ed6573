# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Finds the segmented tables of `haan/seeds.py` again: for each segment the constant and slope with the least worst relative
error after one exact Newton step, over every argument. `python bench/seed_search.py` prints and compares them (half a minute)."""

import sys

import numpy as np

from haan.seeds import SEGMENTS, SLOPES


def best_segment(
    segments: int, odd: int, index: int, slopes: tuple[int, ...]
) -> tuple[float, int, int]:
    """(worst relative error, constant, slope) of one segment; see docs/numerics.md, section 5."""
    width = 20 - ((segments // 2).bit_length() - 1)
    rest = np.arange(1 << width)
    x = ((1 << 20) + (index << width) + rest) * (1 << odd) / 2**20
    target = 1 / np.sqrt(x)
    best = (np.inf, 0, 0)
    for slope in slopes:
        drop = (slope * rest) >> 11
        wanted = target * 2**13 + drop
        for constant in range(int(np.floor(wanted.min())) - 1, int(np.ceil(wanted.max())) + 2):
            y = np.minimum(constant - drop, 2**13 - 1) / 2**13
            error = float(np.abs(y * (1.5 - 0.5 * x * y * y) / target - 1).max())
            if error < best[0]:
                best = (error, constant, slope)
    return best


def search(segments: int, slopes: tuple[int, ...]) -> list[tuple[float, int, int]]:
    """All segments, from x = 1 to 4."""
    return [best_segment(segments, odd, i, slopes) for odd in (0, 1) for i in range(segments // 2)]


def main() -> int:
    same = True
    for (segments, sloped), table in SEGMENTS.items():
        found = search(segments, SLOPES if sloped else (4,))
        equal = tuple((constant, slope) for _, constant, slope in found) == table
        same &= equal
        worst = max(error for error, _, _ in found)
        print(
            f"{segments} segments, slopes {sloped}: worst {worst:.3e}, table {'equal' if equal else 'DIFFERS'}"
        )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
