# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What cocotb benches share: ports, and the fault that ends a run."""

from typing import Any


class BrokenRule(Exception):
    """The hardware broke a rule; the message is a sentence."""


class Port:
    """A port of the hardware: writes only what changes, refuses unknown bits."""

    def __init__(self, dut: Any, name: str) -> None:
        self.handle = getattr(dut, name)
        self.name = name
        self.driven: int | None = None
        # Not by way of `handle.value`: its logic types cost a bench most of its time.
        self._bits = self.handle._handle.get_signal_val_binstr

    def write(self, value: int) -> None:
        if value != self.driven:
            self.driven = value
            self.handle.value = value

    def read(self) -> int:
        bits: str = self._bits()
        try:
            return int(bits, 2)
        except ValueError:
            raise BrokenRule(f"{self.name} has unknown bits: {bits}") from None
