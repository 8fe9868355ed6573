# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""cocotb bench for `haan_uart`: the far side of its serial line, which a host works by messages (`haan.sim.link`). Time passes only while the host
waits for bytes."""

from collections import deque
from multiprocessing.connection import Client
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Event, FallingEdge, First, Timer

from haan.sim import jobs
from haan.sim.jobs import LinkJob

CYCLE_NS = 2
RESET_CYCLES = 4


class Line:
    """Both wires, bit by bit."""

    def __init__(self, dut: Any, bit_ns: int) -> None:
        self.dut, self.bit_ns = dut, bit_ns
        self.outgoing: deque[tuple[int, int]] = deque()
        self.received = bytearray()
        self.more, self.came = Event(), Event()

    def send(self, data: bytes, flips: dict[int, int]) -> None:
        """Bytes for the hardware. `flips`: place -> which of its ten bits are wrong."""
        self.outgoing.extend((byte, flips.get(place, 0)) for place, byte in enumerate(data))
        self.more.set()

    async def read(self, size: int, timeout_ns: int) -> bytes:
        """At least one byte from the hardware and at most `size`, or none after the timeout."""
        if not self.received:
            self.came.clear()
            await First(self.came.wait(), Timer(timeout_ns, "ns"))
        data = bytes(self.received[:size])
        del self.received[:size]
        return data

    async def drive(self) -> None:
        while True:
            while self.outgoing:
                byte, flips = self.outgoing.popleft()
                bits = (byte << 1 | 1 << 9) ^ flips
                for place in range(10):
                    self.dut.rx.value = bits >> place & 1
                    await Timer(self.bit_ns, "ns")
                self.dut.rx.value = 1
            self.more.clear()
            await self.more.wait()

    async def listen(self) -> None:
        while True:
            await FallingEdge(self.dut.tx)
            # Into the first bit's middle.
            await Timer(self.bit_ns + self.bit_ns // 2, "ns")
            byte = 0
            for place in range(8):
                byte |= int(self.dut.tx.value) << place
                await Timer(self.bit_ns, "ns")
            assert int(self.dut.tx.value) == 1, "a byte without a stop bit"
            self.received.append(byte)
            self.came.set()


@cocotb.test()
async def link(dut: Any) -> None:
    """Does what the host says until it hangs up."""
    job: LinkJob = jobs.load()
    line = Line(dut, job.bit_cycles * CYCLE_NS)
    dut.rx.value = 1
    dut.rst.value = 1
    Clock(dut.clk, CYCLE_NS, unit="ns").start()
    await Timer(RESET_CYCLES * CYCLE_NS, "ns")
    dut.rst.value = 0
    cocotb.start_soon(line.drive())
    cocotb.start_soon(line.listen())
    with Client(job.address, authkey=job.key) as host:
        while True:
            try:
                message = host.recv()
            except EOFError:
                break
            if message[0] == "send":
                line.send(*message[1:])
            else:
                host.send(await line.read(*message[1:]))
    jobs.store(None)
