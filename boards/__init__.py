# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Boards with a serial line to a host: those with an ECP5, whose chips and pins are those of amaranth-boards, and Alveo cards (`alveo`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ..config import ConfigurationError
from .alveo import ALVEO, Alveo

_DEVICES = {"LFE5U": "", "LFE5UM": "um-", "LFE5UM5G": "um5g-"}
_PACKAGES = {"BG": "CABGA", "MG": "CSFBGA"}


@dataclass(frozen=True)
class Pin:
    """A pin of the chip, by the name of its port at the top."""

    port: str
    site: str
    attributes: Mapping[str, str]


@dataclass(frozen=True)
class Board:
    """A board, by its platform in amaranth-boards.

    It has pins for the port `clock`, of `clock_hz`, for `rx` and `tx`, for `led` where the board has one, and for what must be driven.
    """

    name: str
    platform: str
    """Module and class."""
    high: Mapping[str, str] = field(default_factory=dict)
    """Port -> site of what must be driven high, beside the platform's resources."""

    @property
    def _platform(self) -> Any:
        module, _, name = self.platform.partition(".")
        return getattr(import_module(f"amaranth_boards.{module}"), name)

    def _resource(self, name: str) -> Any | None:
        found = (each for each in self._platform.resources if each.name == name)
        return next((each for each in found if each.number == 0), None)

    @property
    def device(self) -> str:
        """The chip, for example LFE5U-85F."""
        return str(self._platform.device)

    @property
    def thousands(self) -> str:
        """Its size in thousands of LUTs, by its name."""
        return self.device.rpartition("-")[2].removesuffix("F")

    @property
    def options(self) -> list[str]:
        """What nextpnr is told of the chip."""
        kind = self.device.rpartition("-")[0]
        package = self._platform.package
        return [
            f"--{_DEVICES[kind]}{self.thousands}k",
            "--package",
            _PACKAGES[package[:2]] + package[2:],
            "--speed",
            str(self._platform.speed),
        ]

    @property
    def clock_hz(self) -> float:
        resource = self._resource(self._platform.default_clk)
        assert resource is not None
        return float(resource.clock.frequency)

    def pins(self) -> Iterator[Pin]:
        """All pins that the top has."""
        clock, uart, led = (
            self._resource(name) for name in (self._platform.default_clk, "uart", "led")
        )
        assert clock is not None and uart is not None
        lines = {port: part for part in uart.ios for port in ("rx", "tx") if part.name == port}
        found = [_pin("clock", clock, clock)]
        found += [_pin(port, lines[port], uart) for port in ("rx", "tx")]
        yield from found
        # On some boards the LED is on the line.
        if led is not None and _pin("led", led, led).site not in {pin.site for pin in found}:
            yield _pin("led", led, led)
        attributes = _attributes(clock, clock)
        for port, site in self.high.items():
            yield Pin(port, site, attributes)


def _attributes(part: Any, resource: Any) -> dict[str, str]:
    found = {**resource.attrs, **part.attrs}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _pin(port: str, part: Any, resource: Any) -> Pin:
    (site,) = part.ios[0].names
    return Pin(port, site, _attributes(part, resource))


# The ESP32 on the ULX3S resets the board unless this is high.
_ULX3S_HIGH = {"wifi_gpio0": "L2"}
_BOARDS = (
    Board("ulx3s-85f", "ulx3s.ULX3S_85F_Platform", _ULX3S_HIGH),
    Board("ulx3s-45f", "ulx3s.ULX3S_45F_Platform", _ULX3S_HIGH),
    Board("ulx3s-25f", "ulx3s.ULX3S_25F_Platform", _ULX3S_HIGH),
    Board("ulx3s-12f", "ulx3s.ULX3S_12F_Platform", _ULX3S_HIGH),
    Board("ecpix-5-85f", "ecpix5.ECPIX585Platform"),
    Board("ecpix-5-45f", "ecpix5.ECPIX545Platform"),
    Board("icesugar-pro", "icesugar_pro.ICESugarProPlatform"),
    Board("icepi-zero", "icepi_zero.IcepiZero1_3Platform"),
    Board("colorlight-5a-75b", "colorlight_5a75b_r7_0.Colorlight_5A75B_R70Platform"),
)
BOARDS = {board.name: board for board in _BOARDS}
"""Those with an ECP5, by name."""


def board(name: str) -> Board | Alveo:
    """The board of this name. ConfigurationError if there is none."""
    known: dict[str, Board | Alveo] = {**BOARDS, **ALVEO}
    if name not in known:
        raise ConfigurationError(f"board = {name!r} is not known; there are: {', '.join(known)}")
    return known[name]
