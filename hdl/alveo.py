# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The top on an Alveo card without its shell: the accelerator behind a serial line, its clock from an MMCM, and its reset."""

from dataclasses import dataclass
from math import ceil, floor

from amaranth.hdl import ClockDomain, ClockSignal, Const, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from ..config import Configuration, ConfigurationError
from .link import HaanUart

_VCO_HZ = 800e6, 1600e6
"""Limits of the slowest speed grade of UltraScale+."""
_LEAST_HZ, _MOST_HZ = 6.25e6, 667e6
_EIGHTH = 0.125
_DIVIDERS = 128


@dataclass(frozen=True)
class Mmcm:
    """Factors of an MMCME4_BASE: f = f_in · multiplier / divider. Both are multiples of an eighth."""

    clock_hz: float
    multiplier: float
    divider: float

    @property
    def hz(self) -> float:
        return self.clock_hz * self.multiplier / self.divider

    @classmethod
    def nearest(cls, clock_hz: float, wanted_hz: float) -> "Mmcm":
        """The one that comes nearest to a frequency, from below where it can't be exact. ConfigurationError if there is none."""
        if not _LEAST_HZ <= wanted_hz <= _MOST_HZ:
            raise ConfigurationError(
                f"mhz = {wanted_hz / 1e6:g}: the MMCM can't make that; allowed is {_LEAST_HZ / 1e6:g} to {_MOST_HZ / 1e6:g}"
            )
        multipliers = [
            step * _EIGHTH
            for step in range(ceil(_VCO_HZ[0] / clock_hz * 8), floor(_VCO_HZ[1] / clock_hz * 8) + 1)
        ]
        found = []
        for multiplier in multipliers:
            divider = ceil(clock_hz * multiplier / wanted_hz * 8 - 1e-9) * _EIGHTH
            # Fractions below two are not to be had.
            divider = divider if divider >= 2 else ceil(divider)
            if 1 <= divider <= _DIVIDERS:
                found.append(cls(clock_hz, multiplier, divider))
        # A fast VCO has the least jitter.
        return max(found, key=lambda each: (each.hz, each.multiplier))


class AlveoTop(wiring.Component):
    """`haan_uart` on a card.

    Parameters
    ----------
    mmcm : the card's clock, and what is made of it
    baud : rate of the serial line
    reset, cattrip : whether the card has these pins

    Members
    -------
    clock_p, clock_n, rx, tx; reset_n; hbm_cattrip, 0
    """

    MODULE = "haan_alveo"

    def __init__(
        self, configuration: Configuration, mmcm: Mmcm, baud: int, *, reset: bool, cattrip: bool
    ) -> None:
        self.configuration, self.mmcm, self.baud = configuration, mmcm, baud
        members = {"clock_p": In(1), "clock_n": In(1), "rx": In(1), "tx": Out(1)}
        members |= {"reset_n": In(1)} if reset else {}
        members |= {"hbm_cattrip": Out(1)} if cattrip else {}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync = ClockDomain("sync")
        clock, made, feedback, lock = (
            Signal(name=name) for name in ("clock", "made", "feedback", "lock")
        )
        m.submodules.buffer = Instance("IBUFDS", i_I=self.clock_p, i_IB=self.clock_n, o_O=clock)
        m.submodules.mmcm = Instance(
            "MMCME4_BASE",
            p_CLKIN1_PERIOD=1e9 / self.mmcm.clock_hz,
            p_CLKFBOUT_MULT_F=self.mmcm.multiplier,
            p_CLKOUT0_DIVIDE_F=self.mmcm.divider,
            i_CLKIN1=clock,
            i_CLKFBIN=feedback,
            i_RST=Const(0),
            i_PWRDWN=Const(0),
            o_CLKFBOUT=feedback,
            o_CLKOUT0=made,
            o_LOCKED=lock,
        )
        m.submodules.global_buffer = Instance("BUFG", i_I=made, o_O=ClockSignal())
        members = self.signature.members
        runs = lock & self.reset_n if "reset_n" in members else lock
        m.submodules.reset = ResetSynchronizer(~runs, domain="sync")
        m.submodules.uart = uart = HaanUart(self.configuration, self.mmcm.hz, self.baud)
        m.d.comb += [uart.rx.eq(self.rx), self.tx.eq(uart.tx)]
        if "hbm_cattrip" in members:
            m.d.comb += self.hbm_cattrip.eq(0)
        return m
