# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/integration.md: `python bench/integration_tables.py` (a few seconds)."""

import ast
import inspect
from itertools import pairwise
from pathlib import Path

from haan.config import Configuration, presets
from haan.flags import RowFlag
from haan.golden import Packet, passages
from haan.hdl import ports
from haan.latency import buffer_depth, core_latency, output_depth, skipped_latency
from haan.layer import LayerSettings

Rows = list[tuple[str, ...]]

PAGE = Path(__file__).parent.parent / "docs" / "integration.md"

PORTS = Configuration.preset("ecp5")
"""The build whose ports are listed."""
LENGTHS = (64, 768, 4096)
"""Elements of the rows that are timed."""
WIDTHS = {
    "m_stat_tdata": "64",
    "m_stat_tuser": "T",
    "tdata": "8·B",
    "tkeep": "B",
    "tid": "I",
    "s_axis_tuser": "T + 32",
    "m_axis_tuser": "T + 16",
}
"""The end of a port's name -> its width, where it depends on the configuration."""


def formula(port: str, width: int) -> str:
    """A port's width as it follows from B, I and T."""
    return next((text for end, text in WIDTHS.items() if port.endswith(end)), str(width))


def port_rows() -> Rows:
    """Ports of the same bus, direction and width share a row."""
    rows: dict[tuple[str, str, str, int], list[str]] = {}
    for name, direction, width in ports(PORTS):
        key = name.rpartition("_")[0], direction, formula(name, width), width
        rows.setdefault(key, []).append(f"`{name}`")
    return [
        (", ".join(names), direction, text, str(width))
        for (_, direction, text, width), names in rows.items()
    ]


def build_rows() -> Rows:
    """What the widths follow from, for each preset."""
    rows = []
    for name in presets():
        build = Configuration.preset(name)
        what, how = build.what, build.how
        numbers = (how.p_d, how.p_n, build.bus, what.id_bits, what.token_bits)
        rows.append((f"`{name}`", *map(str, numbers)))
    return rows


def flag_rows() -> Rows:
    """Bits of TUSER above the token slot, with what `haan.flags` says about them."""
    (flags,) = ast.parse(inspect.getsource(RowFlag)).body
    assert isinstance(flags, ast.ClassDef)
    said = {}
    for member, text in pairwise(flags.body):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr):
            said[ast.unparse(member.targets[0])] = ast.literal_eval(text.value)
    return [
        (str(place), flag.name or "", said[flag.name or ""], f"`row_flags_{place}`")
        for place, flag in enumerate(RowFlag)
    ]


def latency_rows() -> Rows:
    """For each preset: its latency and queues, and for each length cycles from the first beat in to the last beat out, and
    between equal rows."""
    rows = []
    for name in presets():
        build = Configuration.preset(name)
        skipped = "–"
        if not build.what.integer:
            skipped = str(skipped_latency(build.with_(skipping=True)))
        depths = str(buffer_depth(build)), str(output_depth(build))
        times = (_times(build, n) for n in LENGTHS)
        rows.append((f"`{name}`", str(core_latency(build)), skipped, *depths, *times))
    return rows


def _times(build: Configuration, n: int) -> str:
    if n > build.what.max_n:
        return "–"
    given = LayerSettings.defaults(build) | {"n_sub": min(n, build.what.n_sub or n)}
    layer = LayerSettings(n=n, **given)
    beats = -(-n * build.what.element.width // (8 * build.bus))
    moves = passages(build, [Packet(beats, layer)] * 20, [True], [True])
    latency = moves[0].out_cycles[-1] - moves[0].in_cycles[0]
    return f"{latency}, {moves[-1].out_cycles[-1] - moves[-2].out_cycles[-1]}"


TABLES = {
    "| port | | width | preset `ecp5` |": port_rows,
    "| preset | p_d | p_n | B | I | T |": build_rows,
    "| bit | flag | meaning | counter |": flag_rows,
    "| preset | `core_latency` | `skipped_latency` | `buffer_depth` | `output_depth` | N = 64 | N = 768 | N = 4096 |": latency_rows,
}
"""By their heads."""


def with_tables(page: str) -> str:
    """The page with the rows of its tables as they are now."""
    for head, rows in TABLES.items():
        before, _, after = page.partition(f"{head}\n")
        line, _, rest = after.partition("\n")
        _, _, rest = rest.partition("\n\n")
        texts = ["| " + " | ".join(row) + " |" for row in rows()]
        page = "\n".join([before + head, line, *texts, "", rest])
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), encoding="utf-8")
