# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The accelerator behind a serial line: frames of bytes that a host sends become accesses to registers, and rows. docs/link.md."""

from amaranth.hdl import Cat, ClockSignal, Instance, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.crc.catalog import CRC32_ISO_HDLC
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import Configuration, ConfigurationError
from ..flags import ERROR_BITS
from ..formats import FP32
from ..link import ANSWER, CRC_BYTES, ESCAPE, FLAG, FLIP, Kind, frame_bytes
from ..numerics import clog2
from .axi import HaanAxi, axi_ports
from .emit import Emission
from .uart import UartReceiver, UartTransmitter, phase_step

ROWS_INSIDE = 4
"""Rows that may be between the host's frame and the accelerator's answer."""


def check_link(configuration: Configuration, clock_hz: float, baud: int) -> None:
    """ConfigurationError for a build, a clock and a rate that there can be no `HaanUart` of."""
    phase_step(clock_hz, baud)
    if configuration.what.statistics_stream:
        raise ConfigurationError(
            "statistics_stream = true: the host link has no place for mean and ISD; allowed is false"
        )


class FrameReceiver(wiring.Component):
    """Frames from bytes, each given on when all of it has come and its CRC is right. Others are dropped, and so is one whose bytes would
    overwrite what hasn't been taken yet of the one before.

    Parameters
    ----------
    depth : bytes, CRC included, that a frame may have; a power of two

    Members
    -------
    i_valid, i_data : bytes from the line
    o_valid, o_data, o_last, o_ready : the bytes of a frame, without its CRC
    good : a frame came whole
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        super().__init__(
            {
                "i_valid": In(1),
                "i_data": In(8),
                "o_valid": Out(1),
                "o_data": Out(8),
                "o_last": Out(1),
                "o_ready": In(1),
                "good": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=8, depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port()
        m.submodules.crc = crc = CRC32_ISO_HDLC().create()
        count, escaped, lost = Signal(range(self.depth + 1)), Signal(), Signal()
        length, place, busy = Signal(range(self.depth)), Signal(range(self.depth)), Signal()
        fits, ends, takes = Signal(), Signal(), Signal()
        m.d.comb += [
            crc.data.eq(Mux(escaped, self.i_data ^ FLIP, self.i_data)),
            takes.eq(self.i_valid & (self.i_data != FLAG) & (self.i_data != ESCAPE)),
            ends.eq(self.i_valid & (self.i_data == FLAG)),
            crc.valid.eq(takes),
            crc.start.eq(ends),
            write.addr.eq(count),
            write.data.eq(crc.data),
            fits.eq((count != self.depth) & ~(busy & (count >= place))),
            write.en.eq(takes & fits),
            self.good.eq(
                ends & ~lost & ~escaped & ~busy & (count > CRC_BYTES) & crc.match_detected
            ),
        ]
        with m.If(self.i_valid):
            m.d.sync += escaped.eq(self.i_data == ESCAPE)
        with m.If(takes):
            m.d.sync += [count.eq(count + fits), lost.eq(lost | ~fits)]
        with m.If(ends):
            m.d.sync += [count.eq(0), lost.eq(0), escaped.eq(0)]
        with m.If(self.good):
            m.d.sync += [busy.eq(1), length.eq(count - CRC_BYTES), place.eq(0)]
        fetch = Signal()
        m.d.comb += [
            fetch.eq(busy & (place != length) & (~self.o_valid | self.o_ready)),
            read.en.eq(fetch),
            read.addr.eq(place),
            self.o_data.eq(read.data),
        ]
        with m.If(fetch):
            m.d.sync += [
                self.o_valid.eq(1),
                self.o_last.eq(place + 1 == length),
                place.eq(place + 1),
            ]
        with m.Elif(self.o_ready & self.o_valid):
            m.d.sync += [self.o_valid.eq(0), busy.eq(0)]
        return m


class FrameSender(wiring.Component):
    """Bytes for the line from frames: flags around them, their CRC behind, and escapes.

    Members
    -------
    i_valid, i_data, i_last, i_ready : the bytes of a frame, without its CRC
    o_valid, o_data, o_ready : bytes to the line
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i_valid": In(1),
                "i_data": In(8),
                "i_last": In(1),
                "i_ready": Out(1),
                "o_valid": Out(1),
                "o_data": Out(8),
                "o_ready": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.crc = crc = CRC32_ISO_HDLC().create()
        data, special, escaped, gone = Signal(8), Signal(), Signal(), Signal()
        rest, left = Signal(8 * CRC_BYTES), Signal(range(CRC_BYTES + 1))
        m.d.comb += [
            special.eq((data == FLAG) | (data == ESCAPE)),
            gone.eq(self.o_valid & self.o_ready & (~special | escaped)),
            crc.data.eq(self.i_data),
        ]

        def stuffed() -> None:
            """Sends `data`, in two bytes if it is a special one; `gone` in the last cycle."""
            m.d.comb += self.o_data.eq(Mux(special, Mux(escaped, data ^ FLIP, ESCAPE), data))
            with m.If(self.o_valid & self.o_ready):
                m.d.sync += escaped.eq(special & ~escaped)

        with m.FSM():
            for state, after in (("OPEN", "BODY"), ("CLOSE", "OPEN")):
                with m.State(state):
                    m.d.comb += [
                        self.o_valid.eq(self.i_valid if state == "OPEN" else 1),
                        self.o_data.eq(FLAG),
                        crc.start.eq(state == "OPEN"),
                    ]
                    with m.If(self.o_valid & self.o_ready):
                        m.next = after
            with m.State("BODY"):
                m.d.comb += [
                    data.eq(self.i_data),
                    self.o_valid.eq(self.i_valid),
                    self.i_ready.eq(gone),
                    crc.valid.eq(gone),
                ]
                stuffed()
                with m.If(gone & self.i_last):
                    m.next = "SUM"
            with m.State("SUM"):
                m.d.sync += [rest.eq(crc.crc), left.eq(CRC_BYTES)]
                m.next = "REST"
            with m.State("REST"):
                m.d.comb += [data.eq(rest[:8]), self.o_valid.eq(1)]
                stuffed()
                with m.If(gone):
                    m.d.sync += [rest.eq(rest >> 8), left.eq(left - 1)]
                    with m.If(left == 1):
                        m.next = "CLOSE"
        return m


class HostLink(wiring.Component):
    """Does what a host's frames say, one after the other, and answers each. Ports: the other sides of those of `haan_axi`, and bytes from and to
    the line: i_valid, i_data; o_valid, o_data, o_ready. `good`: a frame came whole."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        flows = {"input": Out, "output": In}
        members = {
            name: flows[way](width)
            for name, way, width in axi_ports(configuration)
            if name not in ("aclk", "aresetn")
        }
        line = {"i_valid": In(1), "i_data": In(8), "o_valid": Out(1), "o_data": Out(8)}
        super().__init__(members | line | {"o_ready": In(1), "good": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.receiver = receiver = FrameReceiver(frame_bytes(self.configuration))
        m.submodules.sender = sender = FrameSender()
        m.submodules.rows = self.rows = SyncFIFO(width=8, depth=ROWS_INSIDE)
        m.d.comb += [
            receiver.i_valid.eq(self.i_valid),
            receiver.i_data.eq(self.i_data),
            self.good.eq(receiver.good),
            self.o_valid.eq(sender.o_valid),
            self.o_data.eq(sender.o_data),
            sender.o_ready.eq(self.o_ready),
        ]
        self.receiver, self.sender = receiver, sender
        self.gives = Signal()
        """The answer to a row is being sent."""
        self._execute(m)
        self._give(m)
        return m

    def _say(self, m: Module, data: Value | int, *, last: Value | int = 0) -> Value:
        """Offers a byte of an answer. Returns whether it is taken."""
        m.d.comb += [
            self.sender.i_valid.eq(1),
            self.sender.i_data.eq(data),
            self.sender.i_last.eq(last),
        ]
        return self.sender.i_ready

    def _execute(self, m: Module) -> None:
        """Takes the frames apart."""
        frame = self.receiver
        kind, sequence, address = Signal(8), Signal(8), Signal(16)
        header, place = Signal(64), Signal(range(8))
        word, words, refused = Signal(32), Signal(8), Signal()
        # A request whose answer got lost comes again. What it writes isn't written twice: registers may count writes.
        again, known = Signal(), Signal()

        def take(target: Value, after: str) -> None:
            """A byte of the header; a frame that ends with it is too short to mean anything."""
            m.d.comb += frame.o_ready.eq(1)
            with m.If(frame.o_valid):
                m.d.sync += target.eq(frame.o_data)
                m.next = after
                with m.If(frame.o_last):
                    m.next = "KIND"

        with m.FSM():
            with m.State("KIND"):
                m.d.sync += place.eq(0)
                take(kind, "SEQUENCE")
            with m.State("SEQUENCE"):
                take(sequence, "ORDER")
                with m.If(frame.o_valid):
                    m.d.sync += [again.eq(known & (frame.o_data == sequence)), known.eq(1)]
            with m.State("ORDER"):
                idle = ~self.rows.r_rdy & ~self.gives
                with m.Switch(kind):
                    with m.Case(Kind.READ, Kind.WRITE, Kind.STREAM), m.If(idle):
                        m.d.sync += refused.eq(refused & again)
                        m.next = "ADDRESS_LOW"
                    with m.Case(Kind.ROW), m.If(self.rows.w_rdy):
                        m.next = "ROW_HEADER"
                    with m.Default():
                        m.next = "SKIP"
            with m.State("SKIP"):
                m.d.comb += frame.o_ready.eq(1)
                with m.If(frame.o_valid & frame.o_last):
                    m.next = "KIND"
            with m.State("ADDRESS_LOW"):
                take(address[:8], "ADDRESS_HIGH")
            with m.State("ADDRESS_HIGH"):
                m.d.comb += frame.o_ready.eq(1)
                with m.If(frame.o_valid):
                    m.d.sync += address[8:].eq(frame.o_data)
                    m.next = "KIND"
                    with m.If(~frame.o_last):
                        m.next = "WORD"
                        with m.If(kind == Kind.READ):
                            m.next = "COUNT"
            self._read(m, kind, sequence, address, words, refused)
            self._write(m, kind, sequence, address, word, place, refused, again)
            self._row(m, sequence, header, place)

    def _read(
        self,
        m: Module,
        kind: Signal,
        sequence: Signal,
        address: Signal,
        words: Signal,
        refused: Signal,
    ) -> None:
        """Answers with the words of consecutive registers, and whether one of them was refused."""
        frame = self.receiver
        data, left = Signal(32), Signal(range(5))
        with m.State("COUNT"):
            m.d.comb += frame.o_ready.eq(1)
            with m.If(frame.o_valid):
                m.d.sync += words.eq(frame.o_data)
                m.next = "SKIP"
                with m.If(frame.o_last):
                    m.next = "KIND"
                    with m.If(frame.o_data != 0):
                        m.next = "READ_KIND"
        with m.State("READ_KIND"), m.If(self._say(m, kind | ANSWER)):
            m.next = "READ_SEQUENCE"
        with m.State("READ_SEQUENCE"), m.If(self._say(m, sequence)):
            m.next = "READ_ASK"
        with m.State("READ_ASK"):
            m.d.comb += [self.s_axil_araddr.eq(address), self.s_axil_arvalid.eq(1)]
            with m.If(self.s_axil_arready):
                m.next = "READ_WAIT"
        with m.State("READ_WAIT"):
            m.d.comb += self.s_axil_rready.eq(1)
            with m.If(self.s_axil_rvalid):
                m.d.sync += [
                    data.eq(self.s_axil_rdata),
                    refused.eq(refused | (self.s_axil_rresp != 0)),
                    address.eq(address + 4),
                    words.eq(words - 1),
                    left.eq(4),
                ]
                m.next = "READ_DATA"
        with m.State("READ_DATA"), m.If(self._say(m, data[:8])):
            m.d.sync += [data.eq(data >> 8), left.eq(left - 1)]
            with m.If(left == 1):
                m.next = "READ_ASK"
                with m.If(words == 0):
                    m.next = "STATUS"

    def _write(
        self,
        m: Module,
        kind: Signal,
        sequence: Signal,
        address: Signal,
        word: Signal,
        place: Signal,
        refused: Signal,
        again: Signal,
    ) -> None:
        """Writes words to consecutive registers, or all to one, and answers whether one of them was refused."""
        frame = self.receiver
        ended, sent_address, sent_data = Signal(), Signal(), Signal()
        with m.State("WORD"):
            m.d.comb += frame.o_ready.eq(1)
            with m.If(frame.o_valid):
                m.d.sync += [
                    word.eq(Cat(word[8:], frame.o_data)),
                    place.eq(place + 1),
                    ended.eq(frame.o_last),
                    sent_address.eq(0),
                    sent_data.eq(0),
                ]
                with m.If((place[:2] == 3) & ~again):
                    m.next = "WRITE_ASK"
                with m.Elif(frame.o_last & again):
                    m.next = "WRITE_KIND"
                with m.Elif(frame.o_last):
                    # Part of a word: it isn't written, and the answer says that something wasn't.
                    m.d.sync += refused.eq(1)
                    m.next = "WRITE_KIND"
        with m.State("WRITE_ASK"):
            m.d.comb += [
                self.s_axil_awaddr.eq(address),
                self.s_axil_awvalid.eq(~sent_address),
                self.s_axil_wdata.eq(word),
                self.s_axil_wstrb.eq(0b1111),
                self.s_axil_wvalid.eq(~sent_data),
                self.s_axil_bready.eq(1),
            ]
            with m.If(self.s_axil_awready):
                m.d.sync += sent_address.eq(1)
            with m.If(self.s_axil_wready):
                m.d.sync += sent_data.eq(1)
            with m.If(self.s_axil_bvalid):
                m.d.sync += refused.eq(refused | (self.s_axil_bresp != 0))
                with m.If(kind == Kind.WRITE):
                    m.d.sync += address.eq(address + 4)
                m.next = "WORD"
                with m.If(ended):
                    m.next = "WRITE_KIND"
        with m.State("WRITE_KIND"), m.If(self._say(m, kind | ANSWER)):
            m.next = "WRITE_SEQUENCE"
        with m.State("WRITE_SEQUENCE"), m.If(self._say(m, sequence)):
            m.next = "STATUS"
        with m.State("STATUS"), m.If(self._say(m, refused, last=1)):
            m.next = "KIND"

    def _row(self, m: Module, sequence: Signal, header: Signal, place: Signal) -> None:
        """Gives a row to the accelerator: TID, token slot and scale, then its elements."""
        frame, what, size = self.receiver, self.configuration.what, self.configuration.bus
        data, keep, last, valid = Signal(8 * size), Signal(size), Signal(), Signal()
        filled, empty = Signal(range(size)), Signal()
        id_, token, scale = header[:16], header[16:32], header[32:]
        m.d.comb += [
            self.s_axis_tdata.eq(data),
            self.s_axis_tkeep.eq(keep),
            self.s_axis_tlast.eq(last),
            self.s_axis_tid.eq(id_),
            self.s_axis_tuser.eq(Cat(token[: what.token_bits], scale)),
            self.s_axis_tvalid.eq(valid),
            self.rows.w_data.eq(sequence),
        ]
        assert len(self.s_axis_tuser) == what.token_bits + FP32.width
        with m.State("ROW_HEADER"):
            m.d.comb += frame.o_ready.eq(1)
            m.d.sync += [keep.eq(0), filled.eq(0)]
            with m.If(frame.o_valid):
                m.d.sync += [header.eq(Cat(header[8:], frame.o_data)), place.eq(place + 1)]
                with m.If(place == 7):
                    m.d.comb += self.rows.w_en.eq(1)
                    m.d.sync += empty.eq(frame.o_last)
                    m.next = "ROW_DATA"
                with m.Elif(frame.o_last):
                    m.next = "KIND"
        with m.State("ROW_DATA"):
            m.d.comb += frame.o_ready.eq(~empty)
            with m.If(frame.o_valid & ~empty):
                m.d.sync += [
                    data.word_select(filled, 8).eq(frame.o_data),
                    keep.bit_select(filled, 1).eq(1),
                    filled.eq(filled + 1),
                    last.eq(frame.o_last),
                ]
            with m.If(empty):
                m.d.sync += last.eq(1)
            with m.If(empty | (frame.o_valid & (frame.o_last | (filled == size - 1)))):
                m.d.sync += valid.eq(1)
                m.next = "ROW_BEAT"
        with m.State("ROW_BEAT"), m.If(self.s_axis_tready):
            m.d.sync += [valid.eq(0), keep.eq(0), filled.eq(0)]
            m.next = "ROW_DATA"
            with m.If(last):
                m.next = "KIND"

    def _give(self, m: Module) -> None:
        """Answers to rows: their elements, and their flags."""
        size = self.configuration.bus
        place, flags = Signal(range(size + 1)), Signal(16)
        here = (self.m_axis_tkeep >> place)[0]
        with m.FSM() as answers:
            m.d.comb += self.gives.eq(~answers.ongoing("IDLE"))
            with m.State("IDLE"), m.If(self.rows.r_rdy):
                m.next = "KIND"
            with m.State("KIND"), m.If(self._say(m, Kind.ROW | ANSWER)):
                m.next = "SEQUENCE"
            with m.State("SEQUENCE"), m.If(self._say(m, self.rows.r_data)):
                m.d.comb += self.rows.r_en.eq(1)
                m.d.sync += place.eq(0)
                m.next = "DATA"
            with m.State("DATA"), m.If(self.m_axis_tvalid):
                with m.If((place == size) | ~here):
                    m.d.comb += self.m_axis_tready.eq(1)
                    m.d.sync += [
                        place.eq(0),
                        flags.eq(self.m_axis_tuser[-ERROR_BITS:]),
                    ]
                    with m.If(self.m_axis_tlast):
                        m.next = "FLAGS_LOW"
                with m.Else():
                    element = self.m_axis_tdata.word_select(place[: clog2(size)], 8)
                    with m.If(self._say(m, element)):
                        m.d.sync += place.eq(place + 1)
            with m.State("FLAGS_LOW"), m.If(self._say(m, flags[:8])):
                m.next = "FLAGS_HIGH"
            with m.State("FLAGS_HIGH"), m.If(self._say(m, flags[8:], last=1)):
                m.next = "IDLE"


class HaanUart(wiring.Component):
    """The accelerator with a serial line as its only interface.

    Parameters
    ----------
    clock_hz, baud : frequencies of `clk` and of the line

    Members
    -------
    rx, tx : the line
    good : turns with each frame that came whole
    """

    MODULE = "haan_uart"

    def __init__(self, configuration: Configuration, clock_hz: float, baud: int) -> None:
        self.configuration, self.clock_hz, self.baud = configuration, clock_hz, baud
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), "good": Out(1)})

    def elaborate(self, platform: Emission) -> Module:
        m = Module()
        m.submodules.receiver = receiver = UartReceiver(self.clock_hz, self.baud)
        m.submodules.transmitter = transmitter = UartTransmitter(self.clock_hz, self.baud)
        m.submodules.link = link = HostLink(self.configuration)
        ports = {
            ("i_" if way == "input" else "o_") + name: getattr(link, name)
            for name, way, _ in axi_ports(self.configuration)
            if name not in ("aclk", "aresetn")
        }
        m.submodules.accelerator = Instance(
            platform.module(HaanAxi, (self.configuration,)),
            i_aclk=ClockSignal(),
            i_aresetn=~ResetSignal(),
            **ports,
        )
        m.d.comb += [
            receiver.rx.eq(self.rx),
            self.tx.eq(transmitter.tx),
            link.i_valid.eq(receiver.o_valid),
            link.i_data.eq(receiver.o_data),
            transmitter.i_valid.eq(link.o_valid),
            transmitter.i_data.eq(link.o_data),
            link.o_ready.eq(transmitter.i_ready),
        ]
        with m.If(link.good):
            m.d.sync += self.good.eq(~self.good)
        return m
