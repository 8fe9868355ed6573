# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The top on an ECP5 board: the accelerator behind a serial line, its clock from the chip's PLL, and its reset."""

from collections.abc import Collection
from dataclasses import dataclass

from amaranth.hdl import ClockDomain, ClockSignal, Const, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from ..config import Configuration, ConfigurationError
from .link import HaanUart

_VCO_HZ = 400e6, 800e6
_DETECTOR_HZ = 10e6
"""The least that the phase detector may run at."""
_DIVIDERS = 128
_FASTEST_HZ = 400e6


@dataclass(frozen=True)
class Pll:
    """Dividers of an EHXPLLL whose feedback is its first output: f = f_in · feedback / reference."""

    reference: int
    feedback: int
    output: int
    hz: float

    @classmethod
    def nearest(cls, clock_hz: float, wanted_hz: float) -> "Pll":
        """The one that comes nearest to a frequency, from below where it can't be exact. ConfigurationError if there is none."""
        found = [
            cls(reference, feedback, output, clock_hz / reference * feedback)
            for reference in range(1, int(clock_hz // _DETECTOR_HZ) + 1)
            for feedback in range(1, int(wanted_hz * reference // clock_hz) + 1)
            for output in range(1, _DIVIDERS + 1)
            if feedback <= _DIVIDERS
            and _VCO_HZ[0] <= clock_hz / reference * feedback * output <= _VCO_HZ[1]
        ]
        if not found or wanted_hz > _FASTEST_HZ:
            least = clock_hz / (clock_hz // _DETECTOR_HZ)
            raise ConfigurationError(
                f"mhz = {wanted_hz / 1e6:g}: the PLL can't make that from {clock_hz / 1e6:g} MHz; allowed is {least / 1e6:g} to {_FASTEST_HZ / 1e6:g}"
            )
        # The VCO in its middle.
        middle = sum(_VCO_HZ) / 2
        return max(found, key=lambda pll: (pll.hz, -abs(pll.hz * pll.output - middle)))

    def instance(self, clock: Signal, made: Signal, lock: Signal) -> Instance:
        return Instance(
            "EHXPLLL",
            p_CLKI_DIV=self.reference,
            p_CLKFB_DIV=self.feedback,
            p_CLKOP_DIV=self.output,
            p_CLKOP_CPHASE=self.output - 1,
            p_CLKOP_ENABLE="ENABLED",
            p_FEEDBK_PATH="CLKOP",
            i_CLKI=clock,
            i_CLKFB=made,
            i_RST=Const(0),
            i_STDBY=Const(0),
            o_CLKOP=made,
            o_LOCK=lock,
        )


class BoardTop(wiring.Component):
    """`haan_uart` on a board.

    Parameters
    ----------
    clock_hz, pll : the board's clock, and what is made of it
    baud : rate of the serial line
    led : whether there is one; it turns with each frame that comes whole
    high : ports that are 1

    Members
    -------
    clock, rx, tx, led, and those of `high`
    """

    MODULE = "haan_board"

    def __init__(
        self,
        configuration: Configuration,
        pll: Pll,
        baud: int,
        *,
        led: bool = False,
        high: Collection[str] = (),
    ) -> None:
        self.configuration, self.pll, self.baud = configuration, pll, baud
        self.high = tuple(high)
        members = {"clock": In(1), "rx": In(1), "tx": Out(1)}
        members |= {"led": Out(1)} if led else {}
        super().__init__(members | {port: Out(1) for port in self.high})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lock = Signal()
        m.domains.sync = ClockDomain("sync")
        m.submodules.pll = self.pll.instance(self.clock, ClockSignal(), lock)
        m.submodules.reset = ResetSynchronizer(~lock, domain="sync")
        m.submodules.uart = uart = HaanUart(self.configuration, self.pll.hz, self.baud)
        m.d.comb += [
            uart.rx.eq(self.rx),
            self.tx.eq(uart.tx),
            *[getattr(self, port).eq(1) for port in self.high],
        ]
        if "led" in self.signature.members:
            m.d.comb += self.led.eq(uart.good)
        return m
