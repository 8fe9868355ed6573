# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Latencies, in cycles, as functions of the configuration."""

from .config import Configuration
from .numerics import clog2
from .pipeline import lane_cuts


def _lane(configuration: Configuration) -> tuple[str, ...]:
    what = configuration.what
    return lane_cuts(layernorm=what.layernorm, gamma=what.gamma, beta=what.beta)


def lane_latency(configuration: Configuration) -> int:
    """From an element to its result in a normalization lane."""
    return sum(cut in configuration.how.cuts for cut in _lane(configuration))


OPERANDS = {
    "shift": "shift_amount",
    "mean": "subtract",
    "scale_exponent": "scale",
    "isd": "scale",
    "cast": "round_x",
    "gamma": "gamma",
    "beta": "odd",
    "nan": "pack",
}
"""The cut before which a lane's operand is used."""


def operand_time(configuration: Configuration, operand: str) -> int:
    """When a lane needs an operand, from the element's arrival."""
    cuts = _lane(configuration)
    before = cuts[: cuts.index(OPERANDS[operand])]
    return sum(cut in configuration.how.cuts for cut in before)


def statistics_latency(configuration: Configuration) -> int:
    """From a row's last beat at the statistics unit to its sums."""
    cuts = configuration.how.cuts
    elements = sum(cut in cuts for cut in ("decode", "square", "align_square"))
    tree = clog2(configuration.how.p_d) * ("tree" in cuts)
    return elements + tree + 1 + ("resolve_sums" in cuts)
