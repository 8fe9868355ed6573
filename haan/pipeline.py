# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Where the pipelines may have a register: named cuts, unit by unit, in the order in which a value passes them.

Latencies (`haan.latency`) count the cuts of a configuration; the hardware asks for each by name and checks that it passed the same.
"""

SUMS = ("decode", "square", "align_square", "tree", "resolve_sums")
"""Statistics unit: an element to the two sums. `tree` stands between the levels of the adder tree."""

PRODUCT = ("products", "spread_products", "carry_save", "total")
"""A wide product, or a sum of them."""

VARIANCE = (
    "absolute_sum",
    "coarse_variance",
    "count_variance",
    "normalize_variance",
    "variance",
    "compare_eps",
    "align_eps",
    "add_eps",
)
"""From N·S2 − S1² to var + eps (besides the wide products)."""

ROOT = ("segment", "seed", "residual", "round_isd")
"""Inverse square root (besides the wide products)."""

SCALE_ISD = ("scale_isd",)
"""The ISD times the scale of an INT8 row (besides the wide product)."""
FIX_ISD = ("fix_isd",)
"""That in fixed point, in builds with INT8 alone."""

MEAN_NUMBER = ("mean_magnitude", "count_mean", "normalize_mean", "round_mean", "scale_mean")
"""The mean in FP32, for the statistics stream (besides the wide product)."""

MEAN = ("align_mean", "locate_window", "window_mean")
"""The mean to the window of the row."""

WINDOW = ("shift_amount", "align", "subtract", "count", "normalize")
"""Normalization lane of builds with LayerNorm: z − mean."""
SCALE = ("round_d", "scale", "round_x", "gamma")
"""z − mean, times ISD, times gamma."""
ADD = ("odd", "align_beta", "add_beta", "count_sum", "limit_sum", "normalize_sum")
"""The addition of beta."""
ROUND = ("denormalize",)
"""Subnormal results of builds without beta; INT8 results."""
PACK = ("pack",)
INTEGER_LANE = ("operands", "scale", "center", "clamp", "gamma", "add_beta")
"""Normalization lane of builds with INT8 alone."""

ALL = frozenset(
    (
        *SUMS,
        *PRODUCT,
        *VARIANCE,
        *ROOT,
        *SCALE_ISD,
        *FIX_ISD,
        *MEAN_NUMBER,
        *MEAN,
        *WINDOW,
        *SCALE,
        *ADD,
        *ROUND,
        *PACK,
        *INTEGER_LANE,
    )
)

PIPELINES: dict[str, frozenset[str]] = {
    "balanced": ALL,
    "short": ALL
    - {
        "decode",
        "resolve_sums",
        "shift_amount",
        "spread_products",
        "carry_save",
        "coarse_variance",
        "count_variance",
        "variance",
        "compare_eps",
        "segment",
        "limit_sum",
        "align",
        "normalize",
        "odd",
        "count_sum",
        "operands",
        "clamp",
    },
}
"""The register placements that a configuration chooses from."""


def lane_cuts(
    *, layernorm: bool, gamma: bool, beta: bool, int8: bool, integer: bool
) -> tuple[str, ...]:
    """Cuts that an element passes in a normalization lane."""
    if integer:
        return (*INTEGER_LANE, *PACK)
    front = WINDOW if layernorm else ()
    scale = SCALE if gamma else SCALE[:3]
    end = ADD if beta else ()
    return (*front, *scale, *end, *(ROUND if int8 or not beta else ()), *PACK)
