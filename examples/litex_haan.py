# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""`haan_axi` in a LiteX SoC: streams as endpoints, registers on the SoC's bus.

from litex_haan import add_haan

haan = add_haan(soc, Configuration.preset("ecp5"), "build/ecp5/haan_axi.v", origin=0x90000000)
soc.comb += [source_of_rows.connect(haan.sink), haan.source.connect(sink_of_rows)]
"""

import re
from typing import Any

from litex.gen import LiteXModule
from litex.soc.integration.soc import SoCRegion
from litex.soc.interconnect import stream
from litex.soc.interconnect.axi import AXILiteInterface
from migen import Cat, ClockSignal, Instance, ResetSignal

from haan.config import Configuration
from haan.flags import ERROR_BITS
from haan.formats import FP32
from haan.hdl import ports
from haan.registers import ADDRESS_BITS, WORD_BITS


class Haan(LiteXModule):
    """`haan_axi` in the clock domain `sys`.

    Members
    -------
    sink, source : rows in and out; `layer` is TID, `last` ends a row; `flags` stand beside the last beat
    bus : the registers
    """

    def __init__(self, configuration: Configuration) -> None:
        what = configuration.what
        data = [("data", 8 * configuration.bus), ("keep", configuration.bus)]
        row = [("layer", what.id_bits), ("token", what.token_bits)]
        self.sink = stream.Endpoint(
            stream.EndpointDescription(data, [*row, ("x_scale", FP32.width)])
        )
        self.source = stream.Endpoint(
            stream.EndpointDescription(data, [*row, ("flags", ERROR_BITS)])
        )
        # As wide as the SoC's bus: LiteX adapts standards, not widths of addresses.
        self.bus = AXILiteInterface(data_width=WORD_BITS, address_width=32)
        signals = {"aclk": ClockSignal(), "aresetn": ~ResetSignal()}
        signals |= self._stream("s_axis", self.sink, "x_scale")
        signals |= self._stream("m_axis", self.source, "flags")
        signals |= self._registers(configuration)
        connections = {
            f"{direction[0]}_{name}": signals[name] for name, direction, _ in ports(configuration)
        }
        self.specials += Instance("haan_axi", **connections)

    def _stream(self, port: str, endpoint: Any, user: str) -> dict[str, Any]:
        return {
            f"{port}_tdata": endpoint.data,
            f"{port}_tkeep": endpoint.keep,
            f"{port}_tlast": endpoint.last,
            f"{port}_tid": endpoint.layer,
            f"{port}_tuser": Cat(endpoint.token, getattr(endpoint, user)),
            f"{port}_tvalid": endpoint.valid,
            f"{port}_tready": endpoint.ready,
        }

    def _registers(self, configuration: Configuration) -> dict[str, Any]:
        """s_axil_awaddr is the low part of bus.aw.addr, and so on."""
        signals = {}
        for port, _, width in ports(configuration):
            if found := re.fullmatch(r"s_axil_(aw|w|b|ar|r)(\w+)", port):
                channel, name = found.groups()
                signal = getattr(getattr(self.bus, channel), name)
                signals[port] = signal[:width] if name == "addr" else signal
        return signals


def add_haan(soc: Any, configuration: Configuration, verilog: str, origin: int) -> Haan:
    """Adds the accelerator to a SoC, with the registers at an address that nobody caches."""
    soc.add_module("haan", Haan(configuration))
    soc.platform.add_source(verilog)
    region = SoCRegion(origin=origin, size=1 << ADDRESS_BITS, cached=False)
    soc.bus.add_slave("haan", soc.haan.bus, region)
    haan: Haan = soc.haan
    return haan
