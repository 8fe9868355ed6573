# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Proofs of AXI4-Lite, for any slave with its ports, and of the register block with any hardware behind it."""

from typing import Any

from amaranth.hdl import Assume, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from haan.config import Configuration
from haan.hdl.registers import RegisterBlock

from .watch import Twins, Watch, after_reset, before, claim, holds_until_ready, patient

SMALL = Configuration().with_(
    p_n=2, p_d=2, max_n=4, layers=2, slots=2, token_slots=2, norms=["rmsnorm"], affine="gamma"
)
HANDSHAKES = ("awready", "wready", "bvalid", "arready", "rvalid")


class AxiLiteProof(wiring.Component):
    """For any requests, addresses and data in any order, and any READY of the master: an answer only to a request, and one to each, so many
    cycles after it came at most; BVALID and RVALID and what is beside them hold until READY; a slave with nothing to do takes an
    address and data, each without the other; VALID and READY are low in reset."""

    BOUND = 1
    """Cycles without an answer."""
    UNDER_WAY = 3
    """Requests of one channel."""

    def __init__(self, slave: Any) -> None:
        self.slave = slave
        ports = slave.signature.members.items()
        super().__init__({name: port for name, port in ports if port.flow == In})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.slave = slave = self.slave
        m.d.comb += [
            getattr(slave, name).eq(getattr(self, name)) for name in self.signature.members
        ]
        handshakes = Cat(getattr(slave, name) for name in HANDSHAKES)
        claim(m, after_reset(m), handshakes == 0)
        addresses = self._requests(m, "aw", "b")
        words = self._requests(m, "w", "b")
        reads = self._requests(m, "ar", "r")
        holds_until_ready(m, slave.bvalid, slave.bready, slave.bresp)
        holds_until_ready(m, slave.rvalid, slave.rready, Cat(slave.rdata, slave.rresp))
        asked = (addresses != 0) & (words != 0)
        claim(m, slave.bvalid, asked)
        claim(m, slave.rvalid, reads != 0)
        patient(m, asked & ~slave.bvalid, self.BOUND)
        patient(m, (reads != 0) & ~slave.rvalid, self.BOUND)
        self._assume(m)
        return m

    def _requests(self, m: Module, channel: str, answer: str) -> Signal:
        """Requests of a channel that have no answer yet."""
        slave = self.slave
        valid, ready = (getattr(slave, f"{channel}{way}") for way in ("valid", "ready"))
        m.submodules[channel] = watch = Watch(1, self.UNDER_WAY)
        taken = getattr(slave, f"{answer}valid") & getattr(slave, f"{answer}ready")
        m.d.comb += [watch.enters.eq(valid & ready), watch.leaves.eq(taken)]
        patient(m, (watch.inside == 0) & ~ready, 1)
        return watch.inside

    def _assume(self, m: Module) -> None:
        """What is behind the slave."""


class RegisterBlockProof(AxiLiteProof):
    __doc__ = AxiLiteProof.__doc__

    DELAY = 2
    """Cycles that an external register takes to answer, at most."""
    BOUND = AxiLiteProof.BOUND + DELAY

    def _assume(self, m: Module) -> None:
        for register in self.slave.registers.values():
            if register.external:
                told = getattr(self.slave, f"{register.name}_write")
                answered = getattr(self.slave, f"{register.name}_ack")
                waits = Signal(range(self.DELAY + 2), name=f"{register.name}_waits")
                asked = told | (waits != 0)
                m.d.sync += waits.eq(Mux(asked & ~answered, waits + 1, 0))
                m.d.comb += Assume((waits < self.DELAY) | answered)


class AxiTwins(Twins):
    """No VALID and no READY of the slave depends on what the master says in the same cycle."""

    outputs = HANDSHAKES


class BlockThatGivesUp(RegisterBlock):
    """Takes an answer back when it was not taken at once."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(before(m, self.rvalid & ~self.rready)):
            m.d.sync += self.rvalid.eq(0)
        return m


class BlockThatForgets(RegisterBlock):
    """Doesn't answer a write that comes with a read."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(self.rvalid):
            m.d.sync += self.bvalid.eq(0)
        return m


class BlockThatWaits(RegisterBlock):
    """Takes an address only with its data."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(~self.wvalid):
            m.d.comb += self.awready.eq(0)
        return m
