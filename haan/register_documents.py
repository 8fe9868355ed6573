# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Documents of a build's registers: C header, Markdown, HTML and IP-XACT, all from `registers.rdl`."""

import html
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import markdown
from peakrdl_cheader.exporter import CHeaderExporter

from . import __version__
from .config import Configuration
from .registers import ADDRESS_BITS, WORD_BITS, Field, Register, compiled, register_map

_IPXACT = "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"

_STYLE = "body { font-family: sans-serif; max-width: 60em; margin: 2em auto; } td, th { text-align: left; padding: 0.2em 0.8em; }"


def documents(configuration: Configuration) -> dict[str, str]:
    """Name of a file -> its text. The same configuration gives the same bytes."""
    text = as_markdown(configuration)
    return {
        "haan_registers.h": c_header(configuration),
        "haan_registers.md": text,
        "haan_registers.html": _as_html(text),
        "haan_registers.xml": as_ipxact(configuration),
    }


def c_header(configuration: Configuration) -> str:
    """A C header: a struct of all registers, and masks and places of their fields."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "haan_registers.h"
        CHeaderExporter().export(compiled(configuration), str(path), reuse_typedefs=False)
        return path.read_text("utf-8")


def as_markdown(configuration: Configuration) -> str:
    """A table of all registers, and a section with the fields of each."""
    registers = register_map(configuration)
    root = compiled(configuration)
    lines = [
        f"# {root.get_property('name')}",
        "",
        f"Version {__version__}, configuration {configuration.digest()}.",
        "",
        " ".join((root.get_property("desc") or "").split()),
        "",
        "| address | register | access |",
        "|---|---|---|",
        *(
            f"| 0x{register.address:03X} | [{name}](#{name}) | {access(register)} |"
            for name, register in registers.items()
        ),
        "",
    ]
    for name, register in registers.items():
        lines += [f'## <a id="{name}"></a>{name}', ""]
        lines += [f"Address 0x{register.address:03X}. {register.description}".rstrip(), ""]
        lines += ["| bits | field | access | reset | meaning |", "|---|---|---|---|---|"]
        lines += [
            f"| {_bits(field)} | {field.name} | {access(field)} | {_reset(field)} | {field.description} |"
            for field in register.fields
        ]
        lines.append("")
    return "\n".join(lines)


def access(item: Register | Field) -> str:
    """`r`, `w` or `rw`, as software sees it."""
    return "r" * item.readable + "w" * item.writable


def as_ipxact(configuration: Configuration) -> str:
    """A component of IEEE 1685-2014 whose memory map holds the registers."""
    component = ElementTree.Element("ipxact:component", {"xmlns:ipxact": _IPXACT})
    for name, text in (
        ("vendor", "haan"),
        ("library", "haan"),
        ("name", "haan_axi"),
        ("version", __version__),
    ):
        _add(component, name, text)
    space = _add(_add(component, "memoryMaps"), "memoryMap")
    _add(space, "name", "s_axil")
    block = _add(space, "addressBlock")
    for name, text in (
        ("name", "registers"),
        ("baseAddress", "0"),
        ("range", str(1 << ADDRESS_BITS)),
        ("width", str(WORD_BITS)),
    ):
        _add(block, name, text)
    for register in register_map(configuration).values():
        _add_register(block, register)
    _add(space, "addressUnitBits", "8")
    ElementTree.indent(component)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(component, "unicode")
        + "\n"
    )


_IPXACT_ACCESS = {"r": "read-only", "w": "write-only", "rw": "read-write"}


def _add(parent: ElementTree.Element, name: str, text: str | None = None) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, f"ipxact:{name}")
    child.text = text
    return child


def _add_register(block: ElementTree.Element, register: Register) -> None:
    item = _add(block, "register")
    _add(item, "name", register.name)
    _add(item, "description", register.description)
    _add(item, "addressOffset", f"'h{register.address:X}")
    _add(item, "size", str(WORD_BITS))
    _add(item, "access", _IPXACT_ACCESS[access(register)])
    for field in register.fields:
        part = _add(item, "field")
        _add(part, "name", field.name)
        _add(part, "description", field.description)
        _add(part, "bitOffset", str(field.low))
        if field.reset is not None:
            _add(_add(_add(part, "resets"), "reset"), "value", f"'h{field.reset:X}")
        _add(part, "bitWidth", str(field.width))
        _add(part, "access", _IPXACT_ACCESS[access(field)])


def _as_html(text: str) -> str:
    body = markdown.markdown(text, extensions=["tables"])
    title = html.escape(text.partition("\n")[0].removeprefix("# "))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _bits(field: Field) -> str:
    high = field.low + field.width - 1
    return str(high) if field.width == 1 else f"{high}:{field.low}"


def _reset(field: Field) -> str:
    return "" if field.reset is None else f"0x{field.reset:X}"
