# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""A proof of the whole core, with any results of its arithmetic."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from haan.config import Configuration
from haan.hdl.core import Core
from haan.numerics import Numerics, clog2

from .watch import Watch, before, claim, holds_until_ready

SMALL = Configuration().with_(
    p_n=1,
    p_d=1,
    max_n=2,
    layers=2,
    token_slots=2,
    norms=["rmsnorm"],
    affine="none",
    newton_steps=0,
    pipeline="short",
)
CUTS = tuple(
    f"*{unit}/o:{port}"
    for unit, ports in {
        "lane": ("*",),
        "statistics": ("s2", "nonfinite", "o_fault"),
        "row": ("*",),
    }.items()
    for port in ports
)
"""What comes from arithmetic: free in the proof."""


class CoreProof(wiring.Component):
    """For every sequence of packets, settings and READY, and any results of the arithmetic: `m_axis_tvalid` and its payload hold until
    ready; a packet leaves only for one that came, in order, with its TID and token and ⌈N/p_n⌉ beats, one for bad settings, and with one
    TLAST."""

    cuts = CUTS

    def __init__(self, core: Core) -> None:
        self.core = core
        ports = core.signature.members.items()
        inputs = {name: port for name, port in ports if port.flow == In}
        super().__init__(inputs | {"mark": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.core = core = self.core
        what, numerics = core.what, Numerics(core.configuration)
        names = ("tdata", "tkeep", "tlast", "tid", "tuser")
        out = Cat(getattr(core, f"m_axis_{name}") for name in names)
        entry = data.StructLayout(
            {"n": numerics.n_bits, "id": what.id_bits, "token": what.token_bits}
        )
        m.submodules.watch = watch = Watch(entry.size, 63)
        packet = data.View(entry, watch.item)
        taken = core.s_axis_tvalid & core.s_axis_tready
        leaves = core.m_axis_tvalid & core.m_axis_tready
        inside, beats = Signal(), Signal(numerics.n_bits)
        token = core.s_axis_tuser[: what.token_bits]
        m.d.comb += [
            *[
                getattr(core, name).eq(getattr(self, name))
                for name in self.signature.members
                if name != "mark"
            ],
            watch.enters.eq(taken & ~inside),
            watch.entry.eq(Cat(core.layer_n, core.s_axis_tid, token)),
            watch.mark.eq(self.mark),
            watch.leaves.eq(leaves & core.m_axis_tlast),
        ]
        with m.If(taken):
            m.d.sync += inside.eq(~core.s_axis_tlast)
        with m.If(leaves):
            m.d.sync += beats.eq(Mux(core.m_axis_tlast, 0, beats + 1))
        holds_until_ready(m, core.m_axis_tvalid, core.m_axis_tready, out)
        claim(m, core.m_axis_tvalid, watch.inside != 0)
        due = watch.due & core.m_axis_tvalid
        same = core.m_axis_tid == packet.id
        claim(m, due, same & (core.m_axis_tuser[: what.token_bits] == packet.token))
        last = (packet.n - 1) >> clog2(core.how.p_n)
        null = core.m_axis_tkeep == 0
        claim(m, due & core.m_axis_tlast, Mux(null, beats == 0, beats == last))
        return m


class CoreThatGivesUp(Core):
    """Takes an offer back when it was not taken at once."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(before(m, self.m_axis_tvalid & ~self.m_axis_tready)):
            m.d.comb += self.m_axis_tvalid.eq(0)
        return m


class CoreThatRepeats(Core):
    """Offers a beat a second time."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        with m.If(before(m, self.m_axis_tvalid & self.m_axis_tready)):
            m.d.comb += self.m_axis_tvalid.eq(1)
        return m
