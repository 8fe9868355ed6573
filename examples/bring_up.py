# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Brings `haan_axi` up over any bus that reads and writes 32-bit words. As a script it writes the same layers as a C header, for
examples/bring_up.c:

    haan generate --preset ecp5 -o build/ecp5
    python examples/bring_up.py build/ecp5/haan_layers.h
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from haan.config import Configuration
from haan.flags import RowFlag
from haan.layer import LayerSettings
from haan.registers import register_map

CONFIGURATION = Configuration.preset("ecp5")
LAYERS = [
    LayerSettings(mode="rmsnorm", n=576, eps=1e-5, affine="gamma", slot=0),
    LayerSettings(mode="layernorm", n=384, eps=1e-12, affine="gamma+beta", slot=1),
]
"""By their number, TID."""


class Bus(Protocol):
    """What reaches the registers: addresses are bytes from the start of `s_axil`. An answer of SLVERR raises an exception."""

    def read(self, address: int) -> int: ...

    def write(self, address: int, word: int) -> None: ...


class Haan:
    """One accelerator behind a bus."""

    def __init__(self, bus: Bus, configuration: Configuration) -> None:
        self.bus, self.configuration = bus, configuration
        self.registers = register_map(configuration)

    def read(self, name: str) -> int:
        return self.bus.read(self.registers[name].address)

    def write(self, name: str, word: int) -> None:
        self.bus.write(self.registers[name].address, word)

    def identify(self) -> None:
        """RuntimeError where the hardware is of another build than the configuration."""
        for name in ("identity", *(f"configuration_hash_{i}" for i in range(8))):
            found, expected = self.read(name), self.registers[name].field("value").reset
            if found != expected:
                raise RuntimeError(f"{name} is {found:#010x}, and {expected:#010x} in this build")

    def write_parameters(
        self,
        kind: Literal["gamma", "beta"],
        values: NDArray[np.float16] | NDArray[np.float32],
        slot: int,
    ) -> None:
        """Values in the build's parameter_format."""
        address = self.registers["parameter_address"].pack(slot=slot, beta=int(kind == "beta"))
        self.write("parameter_address", address)
        for word in values.view(f"u{values.itemsize}").tolist():
            self.write("parameter_data", word)

    def write_layer(self, number: int, settings: LayerSettings) -> None:
        """Settings that the build can't do are refused here, before the hardware sees them."""
        record = settings.record(self.configuration)
        for name, word in self.registers.layer_words(record).items():
            self.write(name, word)
        self.write("commit", number)

    def flush(self) -> None:
        """Returns when every row that had begun to come in has left."""
        self.write("control", self.registers["control"].pack(flush=1))
        while self.registers["control"].unpack(self.read("control"))["flush"]:
            pass

    def faults(self) -> dict[str, int]:
        """How many rows left with each flag."""
        return {
            str(flag.name): self.read(f"row_flags_{place}") for place, flag in enumerate(RowFlag)
        }


def layers_header(configuration: Configuration, layers: Sequence[LayerSettings]) -> str:
    """The words of the shadow for each layer, in the order of their addresses, as a table in C."""
    registers = register_map(configuration)
    lines = [registers.layer_words(each.record(configuration)).values() for each in layers]
    size = f"[{len(lines)}][{len(lines[0])}]"
    return "\n".join(
        [
            "#include <stdint.h>",
            f"static const uint32_t haan_layers{size} = {{",
            *("    {" + ", ".join(f"{word:#x}" for word in line) + "}," for line in lines),
            "};",
            "",
        ]
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(layers_header(CONFIGURATION, LAYERS), encoding="utf-8")
