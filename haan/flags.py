# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The error bits of a row, in the order in which they stand in `m_axis_tuser` above the token slot."""

from enum import IntFlag

ERROR_BITS = 16
COMMON_BITS = 8
"""The flags that rows of every build may have are the first ones."""


class RowFlag(IntFlag):
    """What was wrong with, or noteworthy about, one row. The first four are faults of the packet."""

    SHORT = 1 << 0
    """TLAST came before element N: the missing elements are NaN."""
    LONG = 1 << 1
    """TLAST did not come with element N: what followed was swallowed."""
    KEEP = 1 << 2
    """TKEEP was partial before the last beat, or sparse, or splits an element."""
    ID = 1 << 3
    """TID changed inside the row."""
    NONFINITE = 1 << 4
    """A sampled element was NaN or infinite: the whole row is NaN."""
    SETTINGS = 1 << 5
    """Unknown layer, or N, N_sub, eps outside what the build can do: the row is one null beat."""
    ZERO_VARIANCE = 1 << 6
    """var + eps was 0: x-hat is 0 for the whole row."""
    OVERFLOW = 1 << 7
    """A finite result exceeded the output format: it became infinite or, as INT8, was saturated."""
    PREDICTED = 1 << 8
    """The ISD was predicted from the anchor's, or held: not computed."""
    GUARD = 1 << 9
    """The anchor's ISD was outside the layer's guard: held or, without PREDICTED, computed."""
    NO_ANCHOR = 1 << 10
    """The layer skips, but no ISD of its anchor was kept for the token slot: computed."""


SKIPPING = RowFlag.PREDICTED | RowFlag.GUARD | RowFlag.NO_ANCHOR
"""What is told of rows in builds with `skipping` alone."""
PACKET_FAULTS = RowFlag.SHORT | RowFlag.LONG | RowFlag.KEEP | RowFlag.ID
