# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Straight-line pipelines: code reads in the order of the data, registers appear where a value crosses a cut.

    p = Pipe(m, cuts, valid=valid)
    a = p.input(port_a)
    total = p.let("total", p(a) + 1)
    p.cut("add")                    # a register here, if the configuration has this cut
    result = p.let("result", p(total) * p(a))

`p(value)` is the value as it stands at the current time; the registers that carry it there are made once and shared. Ask for it outside
of `m.If` and the like: registers made inside would stand still with the condition.
"""

from collections.abc import Mapping

from amaranth.hdl import Module, Shape, Signal, Value, ValueLike
from amaranth.lib import data

from ..layout import SIGNED
from ..products import Products


class Staged:
    """A value and the time at which it is first available, in cycles from the pipeline's input."""

    def __init__(self, signal: Signal, born: int, control: bool = False) -> None:
        self.signal = signal
        self.born = born
        self.control = control
        self.copies: dict[int, Signal] = {}


class Pipe:
    """A pipeline of one module.

    Parameters
    ----------
    m : module that gets the registers
    cuts : names of the cuts that hold a register
    products : how wide products are made; their interval is the fewest cycles between two valid inputs. Above 1, values wait in registers that are loaded once a row instead of
        travelling through one register a cycle.
    valid : valid of the input; needed where interval > 1 and by `valid()`
    """

    def __init__(
        self,
        m: Module,
        cuts: frozenset[str],
        *,
        products: Products | None = None,
        valid: Value | None = None,
    ) -> None:
        self.m = m
        self.cuts = cuts
        self.products = products or Products()
        self.interval = self.products.interval
        self.now = 0
        self.passed: list[str] = []
        self._valid: list[Value] = [] if valid is None else [valid]

    def cut(self, name: str) -> None:
        """A place for a register: time moves on by one cycle where the configuration has this cut."""
        self.passed.append(name)
        if name in self.cuts:
            self.now += 1

    def wait(self, *values: Staged) -> None:
        """Moves on to the time at which all values are available."""
        self.now = max([self.now, *(value.born for value in values)])

    def input(self, value: ValueLike, name: str = "operand") -> Staged:
        """A value that arrives from outside at the current time."""
        value = Value.cast(value)
        if isinstance(value, Signal):
            return Staged(value, self.now)
        return self.let(name, value)

    def let(self, name: str, value: ValueLike, *, control: bool = False) -> Staged:
        """Names a value that is computed at the current time. Registers of a `control` value are cleared by reset."""
        value = Value.cast(value)
        signal = Signal(value.shape(), name=name)
        self.m.d.comb += signal.eq(value)
        return Staged(signal, self.now, control)

    def __call__(self, value: Staged) -> Value:
        return self.at(value, self.now)

    def at(self, value: Staged, time: int) -> Value:
        """The value as it stands at a time."""
        age = time - value.born
        assert age >= 0, f"{value.signal.name} is used {-age} cycles before it exists"
        if age == 0:
            return value.signal
        if self.interval == 1:
            return self._register(value, age, None)
        return self._register(value, 1 + (age - 1) // self.interval, value.born)

    def _register(self, value: Staged, index: int, load: int | None) -> Signal:
        if index not in value.copies:
            source = value.signal if index == 1 else self._register(value, index - 1, load)
            name = f"{value.signal.name}_{index}"
            copy = Signal(source.shape(), name=name, reset_less=not value.control)
            if load is None:
                self.m.d.sync += copy.eq(source)
            else:
                with self.m.If(self.valid(load + (index - 1) * self.interval)):
                    self.m.d.sync += copy.eq(source)
            value.copies[index] = copy
        return value.copies[index]

    def valid(self, time: int | None = None) -> Value:
        """The input's valid, as it stands at a time (default: now)."""
        time = self.now if time is None else time
        while len(self._valid) <= time:
            copy = Signal(name=f"valid_{len(self._valid)}")
            self.m.d.sync += copy.eq(self._valid[-1])
            self._valid.append(copy)
        return self._valid[time]


def struct(fields: Mapping[str, int]) -> data.StructLayout:
    """A structure of fields of `haan.layout`."""
    return data.StructLayout(
        {name: Shape(width, signed=name in SIGNED) for name, width in fields.items()}
    )


def signed_shape(width: int) -> Shape:
    """A signed shape, for exponents."""
    return Shape(width, signed=True)
