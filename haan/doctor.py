# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The report of `haan doctor`: every tool, whether it is here, and how to get it."""

from dataclasses import asdict, dataclass

from rich.table import Table

from .tools import TOOLS


@dataclass(frozen=True)
class Diagnosis:
    """One tool's line."""

    tool: str
    purpose: str
    optional: bool
    version: str | None
    """None: not here."""
    where: str
    install: str


def diagnose() -> list[Diagnosis]:
    """Looks for every tool."""
    lines = []
    for tool in TOOLS:
        found = tool.find()
        version, where = (found.version, found.where) if found else (None, "")
        lines.append(
            Diagnosis(tool.name, tool.purpose, tool.optional, version, where, tool.install)
        )
    return lines


def healthy(lines: list[Diagnosis]) -> bool:
    """Whether `haan generate` and `haan simulate` have all they need."""
    return all(line.version is not None or line.optional for line in lines)


def as_json(lines: list[Diagnosis]) -> dict[str, object]:
    """Plain data of the report."""
    return {"healthy": healthy(lines), "tools": [asdict(line) for line in lines]}


def as_table(lines: list[Diagnosis]) -> Table:
    """The report for a terminal."""
    table = Table("Tool", "Needed for", "Found", "Version, or the command that installs it")
    for line in lines:
        if line.version is not None:
            table.add_row(line.tool, line.purpose, "yes", line.version)
        else:
            found = "no (optional)" if line.optional else "NO"
            table.add_row(line.tool, line.purpose, found, line.install)
    return table
