# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The golden model: `docs/numerics.md` in NumPy, bit for bit, independent of the hardware's description."""

from .bounds import absolute_error, error_bound
from .pipeline import Normalized, OutputRow, ReceivedRow, normalize, row_output
from .reference import Reference, reference, ulp_error

__all__ = [
    "Normalized",
    "OutputRow",
    "ReceivedRow",
    "Reference",
    "absolute_error",
    "error_bound",
    "normalize",
    "reference",
    "row_output",
    "ulp_error",
]
