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

    def write(self, value: int) -> None:
        if value != self.driven:
            self.handle.value = self.driven = value

    def read(self) -> int:
        try:
            return int(self.handle.value)
        except ValueError:
            raise BrokenRule(f"{self.name} has unknown bits: {self.handle.value}") from None
