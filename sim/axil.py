# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""A master of AXI4-Lite for cocotb benches: it acts at falling edges, like the benches, and checks the slave's rules.

master = AxilMaster(dut, edge, prefix="s_axil_")
cocotb.start_soon(master.run())
response = await master.write(address, data)
data, response = await master.read(address, delays=Delays(r=3))
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from cocotb.triggers import Event

from haan.sim.jobs import Answer, BusAccess, Delays
from haan.sim.ports import BrokenRule, Port

OKAY, SLVERR = 0, 2


PROMPT = Delays()


@dataclass(eq=False)
class Access:
    """A read or a write under way. `cycle` is that of the answer's handshake, of the master's own count."""

    delays: Delays
    done: Event = field(default_factory=Event)
    response: int = -1
    data: int = 0
    cycle: int = -1

    @property
    def answer(self) -> Answer:
        return self.response, self.data, self.cycle


class _Sender:
    """A channel on which the master sends."""

    def __init__(self, dut: Any, channel: str, payload: tuple[str, ...]) -> None:
        self.valid, self.ready = Port(dut, f"{channel}valid"), Port(dut, f"{channel}ready")
        self.payload = [Port(dut, f"{channel}{name}") for name in payload]
        self.masks = [(1 << len(port.handle)) - 1 for port in self.payload]
        self.queue: deque[tuple[int, list[int]]] = deque()
        self.late = 0
        self.offered = False

    def step(self) -> None:
        self.offered = bool(self.queue) and self.late >= self.queue[0][0]
        self.valid.write(int(self.offered))
        if not self.queue:
            return
        delay, values = self.queue[0]
        # What is on the payload without VALID must not matter.
        for port, value, mask in zip(self.payload, values, self.masks, strict=True):
            port.write(value if self.offered else ~value & mask)
        self.late += 1
        if self.offered and self.ready.read():
            self.queue.popleft()
            self.late = 0


class _Receiver:
    """A channel on which the slave answers."""

    def __init__(self, dut: Any, channel: str, payload: tuple[str, ...]) -> None:
        self.valid, self.ready = Port(dut, f"{channel}valid"), Port(dut, f"{channel}ready")
        self.payload = [Port(dut, f"{channel}{name}") for name in payload]
        self.queue: deque[tuple[int, Access]] = deque()
        self.held: list[int] | None = None
        self.late = 0
        self.answered = 0

    def step(self, cycle: int) -> None:
        valid = self.valid.read()
        if self.held is not None and not valid:
            raise BrokenRule(f"{self.valid.name} fell before the answer was taken")
        if not valid:
            # READY may come before VALID.
            self.ready.write(int(bool(self.queue) and self.queue[0][0] == 0))
            return
        if not self.queue:
            raise BrokenRule(f"{self.valid.name} is high, but nothing was asked for")
        values = [port.read() for port in self.payload]
        if self.held is not None and values != self.held:
            raise BrokenRule(f"the answer beside {self.valid.name} changed while it waited")
        delay, access = self.queue[0]
        takes = self.late >= delay
        self.ready.write(int(takes))
        self.held, self.late = (None, 0) if takes else (values, self.late + 1)
        if takes:
            self.queue.popleft()
            self.answered += 1
            access.response, access.cycle = values[0], cycle
            access.data = values[1] if len(values) > 1 else 0
            access.done.set()


class AxilMaster:
    """Reads and writes, each in the order in which they begin; any number may be under way.

    Parameters
    ----------
    dut : the hardware
    edge : trigger of the clock's falling edge
    prefix : of the ports' names
    """

    def __init__(self, dut: Any, edge: Any, prefix: str = "") -> None:
        self.edge = edge
        self.cycle = 0
        self._aw = _Sender(dut, f"{prefix}aw", ("addr",))
        self._w = _Sender(dut, f"{prefix}w", ("data", "strb"))
        self._ar = _Sender(dut, f"{prefix}ar", ("addr",))
        self._b = _Receiver(dut, f"{prefix}b", ("resp",))
        self._r = _Receiver(dut, f"{prefix}r", ("resp", "data"))

    @property
    def unanswered(self) -> int:
        """Accesses under way."""
        return len(self._b.queue) + len(self._r.queue)

    @property
    def answered(self) -> int:
        """Accesses that are done."""
        return self._b.answered + self._r.answered

    def idle(self) -> None:
        """All inputs of the slave at rest."""
        for sender in (self._aw, self._w, self._ar):
            sender.valid.write(0)
            for port in sender.payload:
                port.write(0)
        for receiver in (self._b, self._r):
            receiver.ready.write(0)

    def check_reset(self) -> None:
        """In reset the slave offers nothing."""
        for port in (self._aw.ready, self._w.ready, self._ar.ready, self._b.valid, self._r.valid):
            if port.read():
                raise BrokenRule(f"{port.name} is high in reset")

    def step(self) -> None:
        """What happens at one falling edge."""
        for sender in (self._aw, self._w, self._ar):
            if sender.queue or sender.offered:
                sender.step()
        for receiver in (self._b, self._r):
            receiver.step(self.cycle)
        self.cycle += 1

    async def run(self) -> None:
        """Drives the bus, without end."""
        while True:
            self.step()
            await self.edge

    def begin(self, access: BusAccess) -> Access:
        if access.data is None:
            return self.begin_read(access.address, access.delays)
        return self.begin_write(access.address, access.data, access.strobe, access.delays)

    def begin_write(
        self, address: int, data: int, strobe: int = 0xF, delays: Delays = PROMPT
    ) -> Access:
        access = Access(delays)
        self._aw.queue.append((delays.aw, [address]))
        self._w.queue.append((delays.w, [data, strobe]))
        self._b.queue.append((delays.b, access))
        return access

    def begin_read(self, address: int, delays: Delays = PROMPT) -> Access:
        access = Access(delays)
        self._ar.queue.append((delays.ar, [address]))
        self._r.queue.append((delays.r, access))
        return access

    async def write(
        self, address: int, data: int, strobe: int = 0xF, delays: Delays = PROMPT
    ) -> int:
        """Writes and returns the response."""
        access = self.begin_write(address, data, strobe, delays)
        await access.done.wait()
        return access.response

    async def read(self, address: int, delays: Delays = PROMPT) -> tuple[int, int]:
        """Reads and returns (data, response)."""
        access = self.begin_read(address, delays)
        await access.done.wait()
        return access.data, access.response
