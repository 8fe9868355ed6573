# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Writes the 61 norms of SmolLM2-135M, on 8 tokens, in the form that `haan simulate --layers` reads. From norm 2 on the attention's norm
of each block is computed, and that of its MLP predicted from it: 29 of 61.

    python examples/smollm2_stack.py build/demo
    haan simulate examples/smollm2_stack.toml --layers build/demo/smollm2_layers.toml --input build/demo/smollm2_stack.npz

Ratio and guard come from calibration tokens (tests/data/README.md): the ratio is the median of that of the two ISDs. The guard is the
median of the anchor's ISD times or over exp(max(3·d, 0.5)), d the 99th percentile of a token's distance from that median, in logarithms: a
token outside of it is none of those that were calibrated. That is the case of each text's first token, the attention's sink.
"""

import sys
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "tests" / "data" / "smollm2_rmsnorm_stack.npz"
FIRST_ANCHOR = 2


def layers_toml() -> str:
    """The layer table."""
    lines = ["schema = 1", ""]
    with np.load(DATA) as data:
        count, n = data["gamma"].shape
        median, spread = data["log_isd_median"], data["log_isd_p99_deviation"]
        ratio = np.exp(data["log_isd_ratio_median"].astype(np.float64))
        eps = float(str(data["eps"]))
    reach = np.maximum(3.0 * spread.astype(np.float64), 0.5)
    low, high = np.exp(median - reach), np.exp(median + reach)
    for norm in range(count):
        place = (
            "final" if norm == count - 1 else f"block {norm // 2} {('attention', 'mlp')[norm % 2]}"
        )
        lines += [
            "[[layer]]",
            f'name = "{place}"',
            'mode = "rmsnorm"',
            f"n = {n}",
            f"eps = {eps!r}",
        ]
        lines += ['affine = "gamma"', f"slot = {norm}"]
        anchor = norm - 1
        if norm % 2 and anchor >= FIRST_ANCHOR:
            lines += ["skip = true", f"anchor = {anchor}", f"ratio = {ratio[anchor]:.6g}"]
            lines += [f"guard_low = {low[anchor]:.6g}", f"guard_high = {high[anchor]:.6g}"]
        lines.append("")
    return "\n".join(lines)


def main(folder: Path) -> None:
    """Writes both files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "smollm2_layers.toml").write_text(layers_toml(), encoding="utf-8")
    with np.load(DATA) as data:
        np.savez(folder / "smollm2_stack.npz", x=data["x"], gamma=data["gamma"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
