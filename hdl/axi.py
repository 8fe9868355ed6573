# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The top: the core with its control plane, and nothing but AXI outside."""

from typing import Any

from amaranth.hdl import Cat, ClockDomain, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from ..config import Configuration
from ..flags import ERROR_BITS
from ..formats import FP32
from .control import Control, Records
from .core import Core, core_ports, members
from .emit import Shared
from .registers import AXI_LITE, pass_on
from .width import Narrower, Widener, in_layout, out_layout


def axi_ports(configuration: Configuration) -> list[tuple[str, str, int]]:
    """(name, "input" | "output", width) of every port of `haan_axi`, in the order of the documents."""
    what, size = configuration.what, configuration.bus
    stream = [("tdata", 8 * size), ("tkeep", size), ("tlast", 1), ("tid", what.id_bits)]
    ports = [("aclk", "input", 1), ("aresetn", "input", 1)]
    ports += [(f"s_axis_{name}", "input", width) for name, width in stream]
    ports += [("s_axis_tuser", "input", what.token_bits + FP32.width)]
    ports += [("s_axis_tvalid", "input", 1), ("s_axis_tready", "output", 1)]
    ports += [(f"m_axis_{name}", "output", width) for name, width in stream]
    ports += [("m_axis_tuser", "output", what.token_bits + ERROR_BITS)]
    ports += [("m_axis_tvalid", "output", 1), ("m_axis_tready", "input", 1)]
    if what.statistics_stream:
        ports += [port for port in core_ports(configuration) if port[0].startswith("m_stat_")]
    for name, member in AXI_LITE.items():
        width = member.shape
        ports.append((f"s_axil_{name}", "input" if member.flow is In else "output", width))
        if name in ("awaddr", "araddr"):
            ports.append((f"s_axil_{name[:2]}prot", "input", 3))
    return ports


def interface_info(port: str, streams: str = "s_axis:m_axis") -> dict[str, str]:
    """Attributes by which Vivado's IP packager finds the buses."""
    if port == "aclk":
        return {
            "X_INTERFACE_INFO": "xilinx.com:signal:clock:1.0 aclk CLK",
            "X_INTERFACE_PARAMETER": f"ASSOCIATED_BUSIF {streams}:s_axil, ASSOCIATED_RESET aresetn",
        }
    if port == "aresetn":
        return {
            "X_INTERFACE_INFO": "xilinx.com:signal:reset:1.0 aresetn RST",
            "X_INTERFACE_PARAMETER": "POLARITY ACTIVE_LOW",
        }
    bus, _, name = port.rpartition("_")
    kind = "aximm" if bus == "s_axil" else "axis"
    info = {"X_INTERFACE_INFO": f"xilinx.com:interface:{kind}:1.0 {bus} {name.upper()}"}
    if name == "awaddr":
        info["X_INTERFACE_PARAMETER"] = "PROTOCOL AXI4LITE"
    return info


class HaanAxi(wiring.Component):
    """The accelerator: rows on AXI4-Stream, everything else on AXI4-Lite. Ports: `axi_ports`.

    Rows: `docs/numerics.md`, sections 9 and 10. The settings of a row are those that stand in the layer table in the cycle in which its
    first beat is taken. Latency: that of the core; with a narrow bus one cycle more for either stream, and the time to collect the row's
    last beat.

    Parameters
    ----------
    records : layers that exist from the start; all others are written over AXI4-Lite
    """

    def __init__(self, configuration: Configuration, records: Records | None = None) -> None:
        self.configuration = configuration
        self.records = records
        self.what, self.how = configuration.what, configuration.how
        ports = axi_ports(configuration)
        super().__init__(members(ports))
        streams = "s_axis:m_axis" + ":m_stat" * self.what.statistics_stream
        for name, _, _ in ports:
            getattr(self, name).attrs.update(interface_info(name, streams))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync = domain = ClockDomain("sync")
        domain.clk = self.aclk
        m.d.comb += domain.rst.eq(~self.aresetn)
        m.submodules.core = core = Shared(Core, self.configuration)
        m.submodules.control = control = Control(self.configuration, self.records)
        pass_on(m, control, self, "s_axil_")
        self._watch(m, core, control)
        self._take(m, core, control)
        self._give(m, core, control)
        if self.what.statistics_stream:
            for name in ("tdata", "tid", "tuser", "tlast", "tvalid"):
                m.d.comb += getattr(self, f"m_stat_{name}").eq(getattr(core, f"m_stat_{name}"))
            m.d.comb += core.m_stat_tready.eq(self.m_stat_tready)
        for name in ("valid", "beta", "slot", "index", "data", "one_plus"):
            port = getattr(core, f"parameter_write_{name}")
            m.d.comb += port.eq(getattr(control, f"parameter_{name}"))
        return m

    def _watch(self, m: Module, core: Shared, control: Control) -> None:
        m.d.comb += [
            control.in_valid.eq(self.s_axis_tvalid),
            control.in_ready.eq(self.s_axis_tready),
            control.in_last.eq(self.s_axis_tlast),
            control.in_id.eq(self.s_axis_tid),
            control.out_valid.eq(self.m_axis_tvalid),
            control.out_ready.eq(self.m_axis_tready),
            control.out_last.eq(self.m_axis_tlast),
            control.out_flags.eq(self.m_axis_tuser[self.what.token_bits :]),
            control.sum_active.eq(core.sum_active),
            control.root_active.eq(core.root_active),
        ]
        if self.what.skipping:
            m.d.comb += [
                core.isd_clear.eq(control.isd_clear),
                control.isd_clearing.eq(core.isd_clearing),
            ]

    def _take(self, m: Module, core: Shared, control: Control) -> None:
        """Input stream with the records of the rows, through the converter if there is one."""
        layout = in_layout(self.configuration, self.configuration.bus)
        beat = Signal(layout)
        settings = layout["settings"].shape
        valid, ready = Signal(), Signal()
        m.d.comb += [
            beat.data.eq(self.s_axis_tdata),
            beat.keep.eq(self.s_axis_tkeep),
            beat.last.eq(self.s_axis_tlast),
            beat.id.eq(self.s_axis_tid),
            beat.user.eq(self.s_axis_tuser),
            *[beat.settings[name].eq(control.entry[name]) for name in settings.members],
            valid.eq(self.s_axis_tvalid & ~control.hold),
            self.s_axis_tready.eq(ready & ~control.hold),
        ]
        wide: Any = beat
        if self.how.bus_bytes is not None:
            m.submodules.widener = widener = Widener(self.configuration)
            m.d.comb += [
                widener.i_valid.eq(valid),
                widener.i.eq(beat),
                ready.eq(widener.i_ready),
                widener.o_ready.eq(core.s_axis_tready),
                core.s_axis_tvalid.eq(widener.o_valid),
                core.s_axis_mixed.eq(widener.o.mixed),
            ]
            wide = widener.o
        else:
            m.d.comb += [core.s_axis_tvalid.eq(valid), ready.eq(core.s_axis_tready)]
        m.d.comb += [
            getattr(core, f"s_axis_t{name}").eq(wide[name])
            for name in ("data", "keep", "last", "id", "user")
        ]
        m.d.comb += [
            getattr(core, f"layer_{name}").eq(wide.settings[name]) for name in settings.members
        ]

    def _give(self, m: Module, core: Shared, control: Control) -> None:
        """Output stream, through the converter if there is one."""
        layout = out_layout(self.configuration, self.configuration.beat_bytes)
        wide = Signal(layout)
        m.d.comb += [
            wide.data.eq(core.m_axis_tdata),
            wide.keep.eq(core.m_axis_tkeep),
            wide.last.eq(core.m_axis_tlast),
            wide.id.eq(core.m_axis_tid),
            Cat(wide.token, wide.flags).eq(core.m_axis_tuser),
            wide.parameters.eq(core.m_axis_parameters),
            wide.slot.eq(core.m_axis_slot),
        ]
        beat: Any = wide
        if self.how.bus_bytes is not None:
            m.submodules.narrower = narrower = Narrower(self.configuration)
            m.d.comb += [
                narrower.i_valid.eq(core.m_axis_tvalid),
                narrower.i.eq(wide),
                core.m_axis_tready.eq(narrower.i_ready),
                narrower.o_ready.eq(self.m_axis_tready),
                self.m_axis_tvalid.eq(narrower.o_valid),
            ]
            beat = narrower.o
        else:
            m.d.comb += [
                self.m_axis_tvalid.eq(core.m_axis_tvalid),
                core.m_axis_tready.eq(self.m_axis_tready),
            ]
        m.d.comb += [
            self.m_axis_tdata.eq(beat.data),
            self.m_axis_tkeep.eq(beat.keep),
            self.m_axis_tlast.eq(beat.last),
            self.m_axis_tid.eq(beat.id),
            self.m_axis_tuser.eq(Cat(beat.token, beat.flags)),
            control.out_parameters.eq(beat.parameters),
            control.out_slot.eq(beat.slot),
        ]
