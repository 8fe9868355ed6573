# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""ISDs that are kept of anchor layers, and those that are predicted from them. Section 11 of `docs/numerics.md`."""

from typing import NamedTuple

from ..config import Configuration
from ..flags import RowFlag
from ..layer import LayerSettings, float32_bits
from ..numerics import ISD_BITS, VARIANCE_BITS

_BIAS = 127
_FRACTION_BITS = VARIANCE_BITS - 1
"""Fraction bits of FP32."""
_KEPT_EXPONENTS = range(-32, 32)


class Isd(NamedTuple):
    """An inverse standard deviation: significand/2^16 · 2^exponent."""

    significand: int
    """im: 17 bits, the first one set."""
    exponent: int
    """ie."""

    @property
    def float32_bits(self) -> int:
        """p: the same number in FP32."""
        fraction = self.significand - (1 << (ISD_BITS - 1)) << (VARIANCE_BITS - ISD_BITS)
        return (self.exponent + _BIAS << _FRACTION_BITS) + fraction

    def times(self, ratio_bits: int) -> "Isd":
        """The product with a positive normal FP32 number, given by its bits, rounded to 17 bits; a half goes up."""
        field, fraction = divmod(ratio_bits, 1 << _FRACTION_BITS)
        product = self.significand * ((1 << _FRACTION_BITS) + fraction)
        length = product.bit_length()
        exponent = self.exponent + field - _BIAS + length - (ISD_BITS + _FRACTION_BITS)
        rounded = (product >> (length - ISD_BITS - 1)) + 1 >> 1
        if rounded >> ISD_BITS:
            return Isd(rounded >> 1, exponent + 1)
        return Isd(rounded, exponent)


class IsdMemory:
    """The ISD memory: what rows with `keep_isd` leave for those with `skip`.

    Members
    -------
    entries : (token slot, layer mod anchors) -> (layer, ISD) of valid entries; none at first, as after a reset
    """

    def __init__(self, configuration: Configuration) -> None:
        self.anchors = configuration.what.anchors
        self.entries: dict[tuple[int, int], tuple[int, Isd]] = {}

    def keep(self, token: int, layer: int, isd: Isd | None) -> None:
        """A row of an anchor layer has passed; None: it has no ISD. One that can't be kept makes the entry invalid."""
        place = token, layer % self.anchors
        if isd is None or isd.exponent not in _KEPT_EXPONENTS:
            self.entries.pop(place, None)
        else:
            self.entries[place] = layer, isd

    def predict(self, token: int, settings: LayerSettings) -> tuple[Isd | None, RowFlag]:
        """The ISD of a row with `skip` (None: it is computed), and what its flags tell of that."""
        layer, isd = self.entries.get((token, settings.anchor % self.anchors), (None, None))
        if isd is None or layer != settings.anchor:
            return None, RowFlag.NO_ANCHOR
        low, high = float32_bits(abs(settings.guard_low)), float32_bits(abs(settings.guard_high))
        if low <= isd.float32_bits <= high:
            return isd.times(float32_bits(settings.ratio)), RowFlag.PREDICTED
        if settings.guard_action == "exact":
            return None, RowFlag.GUARD
        return isd, RowFlag.GUARD | RowFlag.PREDICTED
