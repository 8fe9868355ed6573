# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""A serial line: 8 data bits, the lowest first, no parity, one stop bit; it rests high."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from ..config import ConfigurationError

FASTEST = 8
"""Clock cycles that a bit must take at least."""
_PHASE_BITS = 24
_BITS = 10
"""Start bit, data, stop bit."""


def phase_step(clock_hz: float, baud: int) -> int:
    """What a phase of 2^24 to the bit advances in a clock cycle. ConfigurationError for a rate that the clock can't do."""
    if not 0 < baud <= clock_hz / FASTEST:
        raise ConfigurationError(
            f"baud = {baud}: allowed is 1 to {int(clock_hz / FASTEST)} with a clock of {clock_hz / 1e6:g} MHz"
        )
    return max(1, round((baud << _PHASE_BITS) / clock_hz))


class _Phase:
    """Where in a bit the line is; a remainder is kept, so that bits have the right length on average."""

    def __init__(self, m: Module, step: int) -> None:
        self.m, self.step = m, step
        self.value, self.ends = Signal(_PHASE_BITS), Signal()

    def run(self) -> None:
        """Advances by a clock cycle; `ends` is 1 in the last one of a bit."""
        later = Signal(_PHASE_BITS)
        self.m.d.comb += Cat(later, self.ends).eq(self.value + self.step)
        self.m.d.sync += self.value.eq(later)

    def set(self, eighths: int) -> None:
        """Starts so many eighths into a bit."""
        self.m.d.sync += self.value.eq(eighths << (_PHASE_BITS - 3))


class UartReceiver(wiring.Component):
    """Bytes from a line. One whose stop bit is missing is dropped.

    Parameters
    ----------
    clock_hz, baud : frequencies; a bit takes `FASTEST` clock cycles or more

    Members
    -------
    rx : the line, of any clock
    o_valid, o_data : a byte; it is gone in the next cycle
    """

    def __init__(self, clock_hz: float, baud: int) -> None:
        self.step = phase_step(clock_hz, baud)
        super().__init__({"rx": In(1, init=1), "o_valid": Out(1), "o_data": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        line, before = Signal(init=1), Signal(init=1)
        m.submodules.synchronizer = FFSynchronizer(self.rx, line, init=1)
        m.d.sync += [before.eq(line), self.o_valid.eq(0)]
        phase, left, shift = _Phase(m, self.step), Signal(range(_BITS + 1)), Signal(_BITS)
        m.d.comb += self.o_data.eq(shift[1:-1])
        with m.If(left == 0):
            # Bits are read in their middles.
            phase.set(4)
            with m.If(before & ~line):
                m.d.sync += left.eq(_BITS)
        with m.Else():
            phase.run()
            with m.If(phase.ends):
                m.d.sync += [shift.eq(Cat(shift[1:], line)), left.eq(left - 1)]
                with m.If((left == _BITS) & line):
                    # A spike, and no start bit.
                    m.d.sync += left.eq(0)
                with m.If(left == 1):
                    m.d.sync += self.o_valid.eq(line)
        return m


class UartTransmitter(wiring.Component):
    """Bytes to a line.

    Parameters
    ----------
    clock_hz, baud : frequencies; a bit takes `FASTEST` clock cycles or more

    Members
    -------
    i_valid, i_data, i_ready : a byte that is to be sent
    tx : the line
    """

    def __init__(self, clock_hz: float, baud: int) -> None:
        self.step = phase_step(clock_hz, baud)
        super().__init__(
            {"i_valid": In(1), "i_data": In(8), "i_ready": Out(1), "tx": Out(1, init=1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        phase, left, shift = _Phase(m, self.step), Signal(range(_BITS + 1)), Signal(_BITS - 1)
        m.d.comb += self.i_ready.eq(left == 0)
        with m.If(self.i_ready):
            phase.set(0)
            m.d.sync += self.tx.eq(1)
            with m.If(self.i_valid):
                m.d.sync += [self.tx.eq(0), shift.eq(Cat(self.i_data, 1)), left.eq(_BITS)]
        with m.Else():
            phase.run()
            with m.If(phase.ends):
                m.d.sync += [Cat(self.tx, shift).eq(Cat(shift, 1)), left.eq(left - 1)]
        return m
