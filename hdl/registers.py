# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The register block: an AXI4-Lite slave made from the description of the registers."""

from collections.abc import Iterator

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Configuration
from ..registers import ADDRESS_BITS, WORD_BITS, Field, Register, register_map
from .buffers import RegisterSlice

OKAY, SLVERR = 0, 2

AXI_LITE: dict[str, wiring.Member] = {
    "awaddr": In(ADDRESS_BITS),
    "awvalid": In(1),
    "awready": Out(1),
    "wdata": In(WORD_BITS),
    "wstrb": In(WORD_BITS // 8),
    "wvalid": In(1),
    "wready": Out(1),
    "bresp": Out(2),
    "bvalid": Out(1),
    "bready": In(1),
    "araddr": In(ADDRESS_BITS),
    "arvalid": In(1),
    "arready": Out(1),
    "rdata": Out(WORD_BITS),
    "rresp": Out(2),
    "rvalid": Out(1),
    "rready": In(1),
}
"""The slave's side of AXI4-Lite, without the protection bits, which nothing depends on."""


def field_members(register: Register, field: Field) -> Iterator[tuple[str, wiring.Member]]:
    """The hardware's side of a field of the block itself."""
    name = f"{register.name}_{field.name}"
    if field.hardware_reads:
        yield name, Out(field.width)
    if field.hardware_writes:
        yield f"{name}_next", In(field.width)
    if field.enabled:
        yield f"{name}_we", In(1)
    if field.cleared:
        yield f"{name}_hwclr", In(1)
    if field.told:
        yield f"{name}_swacc", Out(1)


def pass_on(m: Module, inner: wiring.Component, outer: wiring.Component, prefix: str = "") -> None:
    """The AXI4-Lite ports of a component inside are those of the one around it, there with a prefix."""
    for name, member in AXI_LITE.items():
        inside, outside = getattr(inner, name), getattr(outer, f"{prefix}{name}")
        m.d.comb += inside.eq(outside) if member.flow is In else outside.eq(inside)


class RegisterBlock(wiring.Component):
    """Registers on AXI4-Lite. Reads and writes: each one a cycle, as long as the answers are taken.

    Latency: 2 cycles from address (and data) to the answer. An address without a register, or without one for this direction, is
    answered with SLVERR. Software's writes win over the hardware's of the same cycle.

    Members
    -------
    aw*, w*, b*, ar*, r* : AXI4-Lite
    R_F : field F of register R; R_F_next : its value from the hardware, taken with R_F_we where it is stored; R_F_hwclr : clears it;
        R_F_swacc : it is being read
    R_write, R_data : external register R is written, for one cycle; bytes without a strobe are 0. A write without any strobe isn't told.
    R_ack, R_error : answer to that, in the same cycle or later; until then no other write begins
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.registers = registers = register_map(configuration)
        members = dict(AXI_LITE)
        for register in registers.values():
            if register.external:
                assert not register.readable, register.name
                members |= {
                    f"{register.name}_write": Out(1),
                    f"{register.name}_data": Out(WORD_BITS),
                    f"{register.name}_ack": In(1),
                    f"{register.name}_error": In(1),
                }
            else:
                for field in register.fields:
                    members |= dict(field_members(register, field))
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.stored: dict[tuple[str, str], Signal] = {}
        written = self._write(m)
        for register in self.registers.values():
            if not register.external:
                for field in register.fields:
                    self._hold(m, register, field, written)
        self._read(m)
        return m

    def _write(self, m: Module) -> tuple[Signal, Signal, Signal, Signal]:
        """Takes writes and answers them: (a write is done, its word's address, its data, the bits that it writes)."""
        m.submodules.addresses = addresses = RegisterSlice(ADDRESS_BITS - 2)
        m.submodules.words = words = RegisterSlice(len(self.wdata) + len(self.wstrb))
        address, data = Signal(ADDRESS_BITS - 2), Signal(WORD_BITS)
        strobes, bits = Signal(WORD_BITS // 8), Signal(WORD_BITS)
        offered, waiting, done = Signal(), Signal(), Signal()
        asks, answered, error = Signal(), Signal(), Signal()
        m.d.comb += [
            addresses.i_valid.eq(self.awvalid),
            addresses.i_data.eq(self.awaddr[2:]),
            self.awready.eq(addresses.i_ready),
            words.i_valid.eq(self.wvalid),
            words.i_data.eq(Cat(self.wdata, self.wstrb)),
            self.wready.eq(words.i_ready),
            address.eq(addresses.o_data),
            Cat(data, strobes).eq(words.o_data),
            bits.eq(Cat(strobe.replicate(8) for strobe in strobes)),
            offered.eq(addresses.o_valid & words.o_valid & (~self.bvalid | self.bready)),
            done.eq(offered & (~asks | answered)),
            addresses.o_ready.eq(done),
            words.o_ready.eq(done),
        ]
        known, asked, answers = self._ask(
            m, address, offered & ~waiting, strobes.any(), data & bits
        )
        m.d.comb += [
            asks.eq(Cat(asked).any()),
            answered.eq(Cat(answers).any()),
            error.eq(~Cat(known).any()),
        ]
        m.d.sync += waiting.eq(offered & asks & ~answered)
        with m.If(done):
            m.d.sync += [self.bvalid.eq(1), self.bresp.eq(Mux(error, SLVERR, OKAY))]
        with m.Elif(self.bready):
            m.d.sync += self.bvalid.eq(0)
        return done, address, data, bits

    def _ask(
        self, m: Module, address: Value, starts: Value, strobed: Value, data: Value
    ) -> tuple[list[Value], list[Value], list[Value]]:
        """Passes a write on to the external register that it is for. For each register: it is the one, and takes it; for the external
        ones: it is asked, and answers."""
        known, asked, answers = [], [], []
        for register in self.registers.values():
            here = address == register.address >> 2
            if register.external:
                write, word, ack, error = (
                    getattr(self, f"{register.name}_{port}")
                    for port in ("write", "data", "ack", "error")
                )
                told = here & strobed
                m.d.comb += [write.eq(starts & told), word.eq(data)]
                known.append(here & ~(told & error))
                asked.append(told)
                answers.append(told & ack)
            elif register.writable:
                known.append(here)
        return known, asked, answers

    def _hold(
        self,
        m: Module,
        register: Register,
        field: Field,
        written: tuple[Signal, Signal, Signal, Signal],
    ) -> None:
        """A field's value, and its ways to and from the hardware."""
        done, address, data, bits = written
        name = f"{register.name}_{field.name}"
        if field.constant:
            self.stored[register.name, field.name] = Const(field.reset, field.width)
            return
        if not field.writable:
            self.stored[register.name, field.name] = getattr(self, f"{name}_next")
            return
        value = Signal(field.width, name=f"{name}_value", init=field.reset or 0)
        self.stored[register.name, field.name] = value
        if field.hardware_reads:
            m.d.comb += getattr(self, name).eq(value)
        if field.enabled:
            with m.If(getattr(self, f"{name}_we")):
                m.d.sync += value.eq(getattr(self, f"{name}_next"))
        if field.cleared:
            with m.If(getattr(self, f"{name}_hwclr")):
                m.d.sync += value.eq(0)
        if field.pulse:
            m.d.sync += value.eq(0)
        places = slice(field.low, field.low + field.width)
        mask = bits[places]
        kept = value if field.set_by_one else value & ~mask
        with m.If(done & (address == register.address >> 2)):
            m.d.sync += value.eq((0 if field.pulse else kept) | (data[places] & mask))

    def _read(self, m: Module) -> None:
        m.submodules.reads = reads = RegisterSlice(ADDRESS_BITS - 2)
        taken, error = Signal(), Signal()
        word = Signal(WORD_BITS)
        m.d.comb += [
            reads.i_valid.eq(self.arvalid),
            reads.i_data.eq(self.araddr[2:]),
            self.arready.eq(reads.i_ready),
            taken.eq(reads.o_valid & (~self.rvalid | self.rready)),
            reads.o_ready.eq(taken),
        ]
        known, words = [], []
        for register in self.registers.values():
            if register.readable:
                here = Signal(name=f"{register.name}_here")
                part = Signal(WORD_BITS, name=f"{register.name}_word")
                m.d.comb += [
                    here.eq(reads.o_data == register.address >> 2),
                    part.eq(self._word(register) & here.replicate(WORD_BITS)),
                ]
                known.append(here)
                words.append(part)
                for field in register.fields:
                    if field.told:
                        told = getattr(self, f"{register.name}_{field.name}_swacc")
                        m.d.comb += told.eq(taken & here)
        m.d.comb += [
            error.eq(~Cat(known).any()),
            word.eq(Cat(Cat(each[bit] for each in words).any() for bit in range(WORD_BITS))),
        ]
        with m.If(taken):
            m.d.sync += [
                self.rvalid.eq(1),
                self.rdata.eq(word),
                self.rresp.eq(Mux(error, SLVERR, OKAY)),
            ]
        with m.Elif(self.rready):
            m.d.sync += self.rvalid.eq(0)

    def _word(self, register: Register) -> Value:
        """What a register holds, for software."""
        word: list[Value] = []
        places = 0
        for field in register.fields:
            if field.readable:
                word += [Const(0, field.low - places), self.stored[register.name, field.name]]
                places = field.low + field.width
        return Cat(*word, Const(0, WORD_BITS - places))
