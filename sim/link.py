# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The serial port of a simulated `haan_uart`: every bit of its line is simulated."""

import secrets
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from ..config import Configuration
from ..hdl import generate_uart
from ..hdl.uart import FASTEST
from . import runner
from .jobs import LinkJob
from .runner import Build, SimulationError, Simulator

Noise = Callable[[bytes], tuple[bytes, dict[int, int]]]
"""Bytes on their way -> those that arrive, and for places among them which of a byte's ten bits are wrong."""


@lru_cache(maxsize=4)
def _generated(configuration: Configuration) -> str:
    return generate_uart(configuration, float(SimulatedPort.CLOCK_HZ), SimulatedPort.BAUD)


def build_link(configuration: Configuration, simulator: Simulator = "verilator") -> Build:
    """`haan_uart` with the fastest line that its clock can do, ready to run."""
    return runner.build(
        _generated(configuration), "haan_uart", ["clk", "rst", "rx", "tx", "good"], simulator
    )


class SimulatedPort:
    """A `haan.driver.Port`. Time passes in the simulation, and only while `read` waits.

    Parameters
    ----------
    noise : what happens to the bytes that go to the hardware (default: nothing)
    """

    CLOCK_HZ = 100_000_000
    BAUD = CLOCK_HZ // FASTEST
    SILENCE_S = 2e-4
    """As of `haan.driver.Link`: nothing here answers as late as an operating system."""

    def __init__(
        self,
        configuration: Configuration,
        simulator: Simulator = "verilator",
        noise: Noise | None = None,
    ) -> None:
        self.timeout: float | None = None
        self.baudrate = self.BAUD
        self.noise = noise
        made = build_link(configuration, simulator)
        self._folder = tempfile.TemporaryDirectory(prefix="haan-link-")
        address, key = str(Path(self._folder.name) / "line"), secrets.token_bytes(16)
        self._listener = Listener(address, authkey=key)
        self._fault: BaseException | None = None
        self._bench = threading.Thread(
            target=self._run, args=(made, LinkJob(address, key, FASTEST)), daemon=True
        )
        self._bench.start()
        self._line: Connection[Any, Any] = self._listener.accept()

    def read(self, size: int = 1) -> bytes:
        nanoseconds = round((self.timeout or 0) * 1e9)
        # The bench's clock is faster; cycles count.
        self._line.send(("read", size, max(2, nanoseconds * 2 // 10)))
        try:
            data: bytes = self._line.recv()
        except EOFError:
            raise SimulationError(f"the simulation ended: {self._fault}") from None
        return data

    def write(self, data: bytes, /) -> int:
        arriving, flips = (data, {}) if self.noise is None else self.noise(data)
        self._line.send(("send", arriving, flips))
        return len(data)

    def close(self) -> None:
        self._line.close()
        self._listener.close()
        self._bench.join()
        self._folder.cleanup()

    def _run(self, made: Build, job: LinkJob) -> None:
        try:
            runner.run(made, "haan.sim.bench_link", job)
        except SimulationError as error:
            self._fault = error
            self._listener.close()
