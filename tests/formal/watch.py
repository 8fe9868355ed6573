# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What proofs have in common: rules of a stream, and an item that is followed from one side to the other."""

from amaranth.hdl import Assert, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


def after_reset(m: Module) -> Signal:
    """The cycle before was one of reset, or there was none."""
    fresh = Signal(init=1, reset_less=True)
    m.d.sync += fresh.eq(ResetSignal())
    return fresh


def before(m: Module, value: Value, init: int = 0) -> Signal:
    """A value as it was in the cycle before; `init` after a reset."""
    past = Signal(Value.cast(value).shape(), init=init)
    m.d.sync += past.eq(value)
    return past


def claim(m: Module, condition: Value, then: Value) -> None:
    """Asserts an implication."""
    m.d.comb += Assert(~condition.bool() | then)


def holds_until_ready(m: Module, valid: Value, ready: Value, payload: Value) -> None:
    """Asserts that valid and payload stay until ready."""
    waits, kept = before(m, valid & ~ready), before(m, payload)
    claim(m, waits, valid & (payload == kept))


def patient(m: Module, waits: Value, bound: int) -> None:
    """Asserts that something waits no more than so many cycles in a row."""
    waited = Signal(range(bound + 2))
    m.d.sync += waited.eq(Mux(waits, waited + 1, 0))
    claim(m, waits, waited < bound)


class Watch(wiring.Component):
    """Follows one item, chosen by the prover, through a thing that keeps order.

    Members
    -------
    enters, entry : an item goes in; `mark`: follow this one, if none is followed
    leaves : an item goes out
    chosen : the item that goes in is followed from now on
    inside : items that went in and didn't come out
    due : the next item to come out is the one followed, which is `item`
    """

    def __init__(self, width: int, capacity: int) -> None:
        self.capacity = capacity
        super().__init__(
            {
                "enters": In(1),
                "entry": In(width),
                "mark": In(1),
                "leaves": In(1),
                "chosen": Out(1),
                "inside": Out(range(capacity + 2)),
                "due": Out(1),
                "item": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        marked, ahead = Signal(), Signal.like(self.inside)
        m.d.sync += self.inside.eq(self.inside + self.enters - self.leaves)
        with m.If(marked & self.leaves):
            m.d.sync += [ahead.eq(ahead - 1), marked.eq(ahead != 0)]
        m.d.comb += self.chosen.eq(~marked & self.mark & self.enters)
        with m.If(self.chosen):
            m.d.sync += [
                marked.eq(1),
                ahead.eq(self.inside - self.leaves),
                self.item.eq(self.entry),
            ]
        m.d.comb += [self.due.eq(marked & (ahead == 0)), Assert(self.inside <= self.capacity)]
        claim(m, self.leaves, self.inside != 0)
        return m


class Twins(wiring.Component):
    """Two of a kind with the same past: their outputs are the same whatever their inputs are now."""

    outputs: tuple[str, ...]
    """That depend on the past alone."""
    shared: tuple[str, ...] = ()
    """Inputs that they may depend on."""

    def __init__(self, one: wiring.Component) -> None:
        self.one = one
        inputs = {name: port for name, port in one.signature.members.items() if port.flow == In}
        self.own = [name for name in inputs if name not in self.shared]
        other = {f"other_{name}": inputs[name] for name in self.own}
        super().__init__(inputs | other)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.one, m.submodules.other = one, other = (
            self.one,
            type(self.one)(self.one.configuration),
        )
        alike, same = Signal(init=1), Signal(len(self.own))
        for name in self.shared:
            m.d.comb += [getattr(dut, name).eq(getattr(self, name)) for dut in (one, other)]
        for index, name in enumerate(self.own):
            ours, theirs = getattr(self, name), getattr(self, f"other_{name}")
            m.d.comb += [
                getattr(one, name).eq(ours),
                getattr(other, name).eq(theirs),
                same[index].eq(Value.cast(ours) == Value.cast(theirs)),
            ]
        m.d.sync += alike.eq(alike & same.all())
        for name in self.outputs:
            claim(m, alike, getattr(one, name) == getattr(other, name))
        return m
