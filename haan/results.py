# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What the results of rows are judged by, simulated or from a board."""

import numpy as np
from numpy.typing import NDArray

from .flags import RowFlag
from .golden import Reference, lsb_error, ulp_error
from .tensors import Rows


def result_errors(
    x: Rows,
    y: Rows,
    exact: Reference,
    flags: NDArray[np.uint16],
) -> NDArray[np.float64]:
    """Of all results (rows, N) that are numbers, in ulp or LSB: NaN is 0 in INT8, so there what is infinite or NaN is left out, and rows in
    which it was sampled."""
    if y.dtype != np.int8:
        judged = ~np.isnan(y)
        return ulp_error(y[judged].view(np.float16), exact.y[judged], exact.gamma_xhat[judged])
    judged = np.isfinite(exact.y) & np.isfinite(x)
    judged &= (flags & RowFlag.NONFINITE == 0)[:, None]
    return lsb_error(y[judged].view(np.int8), exact.y[judged])


def flag_counts(flags: NDArray[np.uint16]) -> dict[str, int]:
    """Flag -> rows that have it, of those that any row has; flags: (rows,)."""
    return {
        flag.name: count
        for flag in RowFlag
        if flag.name and (count := int(np.count_nonzero(flags & flag)))
    }
