# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Writes inputs of two norms of real models in the form that `haan simulate` reads.

    python examples/real_rows.py build/demo

gives smollm2_rmsnorm.npz (12 rows of 576) and minilm_layernorm.npz (6 rows of 384).
"""

import sys
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "tests" / "data"


def main(folder: Path) -> None:
    """Writes both files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with np.load(DATA / "smollm2_rmsnorm_selected.npz") as smollm2:
        np.savez(
            folder / "smollm2_rmsnorm.npz",
            x=smollm2["n30_x"],
            gamma=smollm2["n30_gamma"],
            eps=smollm2["eps"],
            mode="rmsnorm",
        )
    with np.load(DATA / "minilm_layernorm.npz") as minilm:
        np.savez(
            folder / "minilm_layernorm.npz",
            x=minilm["n6_x"],
            gamma=minilm["n6_gamma"],
            beta=minilm["n6_beta"],
            eps=minilm["n6_eps"],
            mode="layernorm",
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
