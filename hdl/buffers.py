# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Storage between the stages: queue, row buffer, results by row, and the register slice at the input."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


def step(m: Module, count: Signal, up: Value, down: Value) -> None:
    """Counts up and down. Both sums are made before it is known which one is wanted: that comes late."""
    with m.If(up & ~down):
        m.d.sync += count.eq(count + 1)
    with m.If(~up & down):
        m.d.sync += count.eq(count - 1)


def occupancy(m: Module, depth: int, up: Value, down: Value) -> tuple[Signal, Signal]:
    """(something is stored, at least two more fit), in registers: what goes in and out is decided late in the cycle."""
    stored = Signal(range(depth + 1))
    some, room = Signal(), Signal(init=1)
    step(m, stored, up, down)
    with m.If(up & ~down):
        m.d.sync += [some.eq(1), room.eq(stored < depth - 2)]
    with m.If(~up & down):
        m.d.sync += [some.eq(stored != 1), room.eq(stored < depth)]
    return some, room


class Queue(wiring.Component):
    """First in, first out, in a memory block. An entry can leave three cycles after it came in; then one a cycle.

    The writer watches `room`; a write to a full queue is lost.

    Parameters
    ----------
    width, depth : bits of an entry, and how many there may be
    late : `r_ready` comes late in the cycle, and must not decide at once about the next fetch from memory. Costs another register and a
        multiplexer for every bit of `r_data`.

    Members
    -------
    w_valid, w_data : an entry comes in
    room : at least two more entries fit
    r_valid, r_data, r_ready : the oldest entry, and its departure
    """

    def __init__(self, width: int, depth: int, *, late: bool = False) -> None:
        self.width, self.depth, self.late = width, depth, late
        super().__init__(
            {
                "w_valid": In(1),
                "w_data": In(width),
                "room": Out(1),
                "r_valid": Out(1),
                "r_data": Out(width),
                "r_ready": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=self.width, depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port()
        fetched, fetch, moves = Signal(), Signal(), Signal()
        some, room = occupancy(m, self.depth, self.w_valid, fetch)
        m.d.comb += [
            write.en.eq(self.w_valid),
            write.data.eq(self.w_data),
            fetch.eq(some & (~fetched | moves)),
            read.en.eq(fetch),
            self.room.eq(room),
        ]
        m.d.sync += fetched.eq(fetch | (fetched & ~moves))
        # Memory blocks answer late in the cycle: their output gets a register before anything else.
        if self.late:
            self._two_places(m, fetched, read.data, moves)
        else:
            valid, held = Signal(), Signal(self.width, reset_less=True)
            m.d.comb += [
                moves.eq(~valid | self.r_ready),
                self.r_valid.eq(valid),
                self.r_data.eq(held),
            ]
            with m.If(moves):
                m.d.sync += [valid.eq(fetched), held.eq(read.data)]
        with m.If(self.w_valid):
            m.d.sync += write.addr.eq(Mux(write.addr == self.depth - 1, 0, write.addr + 1))
        with m.If(fetch):
            m.d.sync += read.addr.eq(Mux(read.addr == self.depth - 1, 0, read.addr + 1))
        return m

    def _two_places(self, m: Module, fetched: Signal, entry: Value, moves: Signal) -> None:
        """Registers that are filled in turn, so that memory has one way into each, without a choice."""
        places = [Signal(self.width, name=f"place{i}", reset_less=True) for i in range(2)]
        valid, full, newest, oldest = Signal(), Signal(), Signal(), Signal()
        comes, leaves = Signal(), Signal()
        m.d.comb += [
            moves.eq(~full),
            comes.eq(fetched & moves),
            leaves.eq(valid & self.r_ready),
            self.r_valid.eq(valid),
            self.r_data.eq(Mux(oldest, places[1], places[0])),
        ]
        for index, place in enumerate(places):
            with m.If(moves & (newest == index)):
                m.d.sync += place.eq(entry)
        m.d.sync += [newest.eq(newest ^ comes), oldest.eq(oldest ^ leaves)]
        with m.If(comes & ~leaves):
            m.d.sync += [valid.eq(1), full.eq(valid)]
        with m.If(~comes & leaves):
            m.d.sync += [valid.eq(full), full.eq(0)]


class RowBuffer(wiring.Component):
    """The beats of the rows under way, in order. Its depth is a power of two.

    Latency: 1 cycle from `read` to `r_data`. A beat can be read in the cycle after it was written.

    Members
    -------
    w_valid, w_data : a beat comes in
    room : at least two more beats fit
    available : a beat can be read
    read : takes the oldest beat
    """

    def __init__(self, width: int, depth: int) -> None:
        self.width, self.depth = width, depth
        super().__init__(
            {
                "w_valid": In(1),
                "w_data": In(width),
                "room": Out(1),
                "available": Out(1),
                "read": In(1),
                "r_data": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=self.width, depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port()
        some, room = occupancy(m, self.depth, self.w_valid, self.read)
        m.d.comb += [
            write.en.eq(self.w_valid),
            write.data.eq(self.w_data),
            read.en.eq(1),
            self.r_data.eq(read.data),
            self.room.eq(room),
            self.available.eq(some),
        ]
        m.d.sync += write.addr.eq(write.addr + self.w_valid)
        # The address of the next beat, so that its data are there in the cycle after `read`.
        pointer = Signal.like(read.addr)
        m.d.comb += read.addr.eq(pointer)
        with m.If(self.read):
            m.d.sync += pointer.eq(pointer + 1)
        return m


class ResultStore(wiring.Component):
    """One result a row, written in order and read by row number; their number is a power of two. Latency: 2 cycles from `r_row` to
    `r_data`."""

    def __init__(self, width: int, depth: int) -> None:
        self.width, self.depth = width, depth
        super().__init__(
            {
                "w_valid": In(1),
                "w_data": In(width),
                "r_row": In(range(depth)),
                "r_data": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=self.width, depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port()
        held = Signal(self.width, reset_less=True)
        m.d.comb += [
            write.en.eq(self.w_valid),
            write.data.eq(self.w_data),
            read.en.eq(1),
            read.addr.eq(self.r_row),
            self.r_data.eq(held),
        ]
        m.d.sync += held.eq(read.data)
        m.d.sync += write.addr.eq(write.addr + self.w_valid)
        return m


class RegisterSlice(wiring.Component):
    """Two entries between a stream's two sides: neither side's ready or valid depends on the other's within a cycle.

    Latency: 1 cycle. Throughput: one entry a cycle. `i_ready` is low in reset.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1),
                "i_data": In(width),
                "o_valid": Out(1),
                "o_ready": In(1),
                "o_data": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        front, back = Signal(self.width, reset_less=True), Signal(self.width, reset_less=True)
        front_valid, back_valid, ready = Signal(), Signal(), Signal()
        accepts = self.i_valid & ready
        moves = ~front_valid | self.o_ready
        m.d.comb += [
            self.i_ready.eq(ready),
            self.o_valid.eq(front_valid),
            self.o_data.eq(front),
        ]
        with m.If(moves):
            m.d.sync += front_valid.eq(back_valid | accepts)
            m.d.sync += front.eq(Mux(back_valid, back, self.i_data))
        with m.If(accepts & ~moves):
            m.d.sync += back.eq(self.i_data)
        next_back = Signal()
        m.d.comb += next_back.eq(~moves & (back_valid | accepts))
        m.d.sync += [back_valid.eq(next_back), ready.eq(~next_back)]
        return m
