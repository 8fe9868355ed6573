# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The registers of a build, from their one description `registers.rdl`: addresses and fields, and values to and from words.

from haan.registers import register_map

registers = register_map(configuration)
registers["control"].address              # 0x080
registers["control"].pack(flush=1)        # the word to write
registers["version"].unpack(word)         # {"patch": 0, "minor": 1, "major": 0}
registers.layer_words(settings.record(configuration))    # the words of the layer shadow
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from systemrdl.compiler import RDLCompiler
from systemrdl.node import AddrmapNode, FieldNode, RegNode

from . import __version__
from .config import Configuration

ADDRESS_BITS = 12
"""Width of a byte address."""
WORD_BITS = 32
IDENTITY = int.from_bytes(b"HAAN", "little")
"""What the register `identity` holds."""

_LAYER = "layer_"


@dataclass(frozen=True)
class Field:
    """A field of a register."""

    name: str
    description: str
    low: int
    """Its lowest bit."""
    width: int
    reset: int | None
    """Value after a reset, of a constant always; None where the hardware gives the value."""
    readable: bool
    writable: bool
    hardware_reads: bool
    hardware_writes: bool
    enabled: bool
    """The hardware writes it only when it says so."""
    set_by_one: bool
    """Writing 1 sets a bit, writing 0 does nothing."""
    cleared: bool
    """The hardware may clear it."""
    pulse: bool
    """It is 1 for one cycle only."""
    told: bool
    """The hardware is told when it is read."""

    @property
    def mask(self) -> int:
        """Its bits in the register's word."""
        return ((1 << self.width) - 1) << self.low

    @property
    def constant(self) -> bool:
        return not (self.writable or self.hardware_writes)


@dataclass(frozen=True)
class Register:
    """A register: one word."""

    name: str
    description: str
    address: int
    fields: tuple[Field, ...]
    external: bool
    """Access is answered by hardware outside of the register block."""

    @property
    def readable(self) -> bool:
        return any(field.readable for field in self.fields)

    @property
    def writable(self) -> bool:
        return any(field.writable for field in self.fields)

    def field(self, name: str) -> Field:
        """The field of this name; KeyError if there is none."""
        return {field.name: field for field in self.fields}[name]

    def pack(self, **values: int) -> int:
        """The word with these fields, the others 0. ValueError for a value that doesn't fit."""
        word = 0
        for name, value in values.items():
            field = self.field(name)
            if not 0 <= value < 1 << field.width:
                raise ValueError(
                    f"{self.name}.{name} = {value}: allowed is 0 to {(1 << field.width) - 1}"
                )
            word |= value << field.low
        return word

    def unpack(self, word: int) -> dict[str, int]:
        """The fields of a word."""
        return {field.name: (word & field.mask) >> field.low for field in self.fields}


class RegisterMap(Mapping[str, Register]):
    """The registers of a build by name, in the order of their addresses."""

    def __init__(self, registers: tuple[Register, ...]) -> None:
        self._registers = {register.name: register for register in registers}

    def __getitem__(self, name: str) -> Register:
        return self._registers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._registers)

    def __len__(self) -> int:
        return len(self._registers)

    def layer_fields(self) -> dict[str, list[tuple[Register, Field]]]:
        """Field of `haan.layer.record_layout` -> the fields of the shadow that hold it, the lowest bits first."""
        found: dict[str, list[tuple[Register, Field]]] = {}
        for register in self.values():
            if register.name.startswith(_LAYER):
                for field in register.fields:
                    name = field.name
                    if name == "value":
                        name = re.sub(r"_\d$", "", register.name.removeprefix(_LAYER))
                    found.setdefault(name, []).append((register, field))
        return found

    def layer_words(self, record: Mapping[str, int]) -> dict[str, int]:
        """Register of the shadow -> the word that it must hold for a layer record."""
        words = dict.fromkeys((name for name in self if name.startswith(_LAYER)), 0)
        for name, parts in self.layer_fields().items():
            left = record[name]
            for register, field in parts:
                words[register.name] |= left << field.low & field.mask
                left >>= field.width
        return words

    def layer_record(self, words: Mapping[str, int]) -> dict[str, int]:
        """The layer record that stands in the shadow."""
        record = {}
        for name, parts in self.layer_fields().items():
            places = 0
            record[name] = 0
            for register, field in parts:
                record[name] |= (words[register.name] & field.mask) >> field.low << places
                places += field.width
        return record


@lru_cache(maxsize=8)
def register_map(configuration: Configuration) -> RegisterMap:
    """The registers of a build."""
    found = [
        _register(node)
        for node in compiled(configuration).descendants(unroll=True)
        if isinstance(node, RegNode)
    ]
    return RegisterMap(tuple(sorted(found, key=lambda register: register.address)))


@lru_cache(maxsize=8)
def compiled(configuration: Configuration) -> AddrmapNode:
    """The description, elaborated for a build."""
    return elaborate(RDLCompiler(), configuration)


def elaborate(compiler: RDLCompiler, configuration: Configuration) -> AddrmapNode:
    """The same by a compiler of the caller's, which may know more properties."""
    with resources.as_file(resources.files("haan").joinpath("registers.rdl")) as path:
        compiler.compile_file(str(path))
    parameters: dict[str, Any] = dict(_parameters(configuration))
    return compiler.elaborate("haan", parameters=parameters).top


def features(configuration: Configuration) -> dict[str, bool]:
    """What a build can do, in the order of the bits of the register `features`."""
    what = configuration.what
    return {
        "layernorm": what.layernorm,
        "rmsnorm": what.rmsnorm,
        "gamma": what.gamma,
        "beta": what.beta,
        "fp32_parameters": what.parameter_format == "fp32",
        "one_plus_gamma": what.one_plus_gamma,
        "cast_before_gamma": what.cast_before_gamma,
        "subsampling": what.subsampling,
        "skipping": what.skipping,
        "int8": what.int8,
        "statistics_stream": what.statistics_stream,
        "fp16": not what.integer,
    }


def _parameters(configuration: Configuration) -> dict[str, int]:
    what, how = configuration.what, configuration.how
    digest = configuration.digest()
    able = features(configuration).values()
    return {
        **dict(zip(("MAJOR", "MINOR", "PATCH"), version_numbers(), strict=True)),
        **{f"HASH_{i}": int(digest[8 * i : 8 * i + 8], 16) for i in range(8)},
        "P_N": how.p_n,
        "P_D": how.p_d,
        "BUS_BYTES": configuration.bus,
        "MAX_N": what.max_n,
        "LAYERS": what.layers,
        "SLOTS": what.slots,
        "TOKEN_SLOTS": what.token_slots,
        "ANCHORS": what.anchors if what.skipping else 0,
        "FEATURES": sum(on << bit for bit, on in enumerate(able)),
    }


def version_numbers() -> tuple[int, int, int]:
    """Major, minor and patch of this version of the generator."""
    major, minor, patch = re.findall(r"\d+", __version__)[:3]
    return int(major), int(minor), int(patch)


def _register(node: RegNode) -> Register:
    path = node.get_path().partition(".")[2]
    return Register(
        name=re.sub(r"\W+", "_", path).strip("_"),
        description=_description(node),
        address=node.absolute_address,
        fields=tuple(_field(field) for field in node.fields()),
        external=node.external,
    )


def _field(node: FieldNode) -> Field:
    reset = node.get_property("reset")
    return Field(
        name=node.inst_name,
        description=_description(node),
        low=node.low,
        width=node.width,
        reset=reset if isinstance(reset, int) else None,
        readable=node.is_sw_readable,
        writable=node.is_sw_writable,
        hardware_reads=node.is_hw_readable,
        hardware_writes=node.is_hw_writable,
        enabled=bool(node.get_property("we")),
        set_by_one=node.get_property("onwrite") is not None,
        cleared=bool(node.get_property("hwclr")),
        pulse=node.get_property("singlepulse"),
        told=node.get_property("swacc"),
    )


def _description(node: RegNode | FieldNode) -> str:
    text: str | None = node.get_property("desc")
    return " ".join(text.split()) if text else ""
