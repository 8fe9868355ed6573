# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The golden model: `docs/numerics.md` in NumPy, bit for bit, independent of the hardware's description."""

from .bounds import absolute_error, error_bound, fixed_error, integer_error
from .pipeline import (
    Normalized,
    OutputRow,
    ReceivedRow,
    Slot,
    acceptable,
    accepted_settings,
    normalize,
    row_output,
    row_outputs,
)
from .prediction import IsdMemory
from .reference import Reference, lsb_error, reference, ulp_error
from .timing import Packet, Passage, passages

__all__ = [
    "IsdMemory",
    "Normalized",
    "OutputRow",
    "Packet",
    "Passage",
    "ReceivedRow",
    "Reference",
    "Slot",
    "absolute_error",
    "acceptable",
    "accepted_settings",
    "error_bound",
    "fixed_error",
    "integer_error",
    "lsb_error",
    "normalize",
    "passages",
    "reference",
    "row_output",
    "row_outputs",
    "ulp_error",
]
