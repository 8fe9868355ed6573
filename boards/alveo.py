# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Alveo cards, with their serial line to the host's USB. Pins are those of AMD's constraint files for the production cards."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Alveo:
    """A card. Pins by the chip's sites."""

    name: str
    part: str
    clock: tuple[str, str]
    """Positive and negative pin."""
    clock_hz: float
    clock_standard: str
    rx: str
    tx: str
    standard: str
    """Of all other pins."""
    reset: str | None = None
    """Active low."""
    cattrip: str | None = None
    """HBM_CATTRIP: it shuts the card down unless it is driven low."""

    def pins(self) -> dict[str, tuple[str, str]]:
        """Port of the top -> site and I/O standard."""
        found = {
            "clock_p": (self.clock[0], self.clock_standard),
            "clock_n": (self.clock[1], self.clock_standard),
            "rx": (self.rx, self.standard),
            "tx": (self.tx, self.standard),
        }
        if self.reset is not None:
            found["reset_n"] = self.reset, self.standard
        if self.cattrip is not None:
            found["hbm_cattrip"] = self.cattrip, self.standard
        return found


_CARDS = (
    Alveo(
        name="alveo-u280",
        part="xcu280-fsvh2892-2L-e",
        clock=("BJ43", "BJ44"),
        clock_hz=100e6,
        clock_standard="LVDS",
        rx="A28",
        tx="B33",
        standard="LVCMOS18",
        reset="L30",
        cattrip="D32",
    ),
    Alveo(
        name="alveo-u55c",
        part="xcu55c-fsvh2892-2L-e",
        clock=("BK43", "BK44"),
        clock_hz=100e6,
        clock_standard="LVDS",
        rx="BK41",
        tx="BJ41",
        standard="LVCMOS18",
        reset="BG45",
        cattrip="BE45",
    ),
    Alveo(
        name="alveo-u50",
        part="xcu50-fsvh2104-2-e",
        clock=("G17", "G16"),
        clock_hz=100e6,
        clock_standard="LVDS",
        rx="BF26",
        tx="BE26",
        standard="LVCMOS18",
        cattrip="J18",
    ),
    Alveo(
        name="alveo-u250",
        part="xcu250-figd2104-2L-e",
        clock=("AY37", "AY38"),
        clock_hz=300e6,
        clock_standard="DIFF_SSTL12",
        rx="BF18",
        tx="BB20",
        standard="LVCMOS12",
        reset="AL20",
    ),
)
ALVEO = {card.name: card for card in _CARDS}
"""By name."""
