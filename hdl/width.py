# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The width converter between a narrow bus and the beats of p_n elements inside. `docs/numerics.md`, section 10."""

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import Configuration
from ..flags import ERROR_BITS
from ..formats import FP32
from .framer import row_settings


def in_layout(configuration: Configuration, size: int) -> data.StructLayout:
    """A beat of `size` bytes on its way in, with the row's record beside its first one. `mixed`: a part of the beat came with another
    TID than the row's first."""
    what = configuration.what
    return data.StructLayout(
        {
            "data": 8 * size,
            "keep": size,
            "last": 1,
            "id": what.id_bits,
            "user": what.token_bits + FP32.width,
            "mixed": 1,
            "settings": row_settings(configuration),
        }
    )


def out_layout(configuration: Configuration, size: int) -> data.StructLayout:
    """A beat of `size` bytes on its way out, and the slot whose parameters its row uses, if it does."""
    what = configuration.what
    return data.StructLayout(
        {
            "data": 8 * size,
            "keep": size,
            "last": 1,
            "id": what.id_bits,
            "token": what.token_bits,
            "flags": ERROR_BITS,
            "parameters": 1,
            "slot": what.slot_bits,
        }
    )


class _Converter(wiring.Component):
    """Beats of `i_bytes` to beats of `o_bytes`, with valid and ready."""

    def __init__(self, i_shape: data.StructLayout, o_shape: data.StructLayout) -> None:
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1),
                "i": In(i_shape),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o": Out(o_shape),
            }
        )
