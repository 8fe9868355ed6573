# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What features cost: the core with and without each one, mapped to UltraScale+ by Yosys, as docs/synthesis.md says.

`python bench/feature_costs.py` prints the table (some minutes); `--feature skipping` takes one alone, `--json` prints JSON."""

import argparse
import json
import sys
from dataclasses import asdict, astuple
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from haan.config import Configuration
from haan.hdl import generate
from haan.netlist import Area, area
from haan.synthesis import map_verilog

BASE = Configuration().with_(
    norms=["rmsnorm"], affine="gamma", max_n=1024, layers=8, p_n=8, p_d=8, name="base"
)
_LAYERNORM = {"norms": ["layernorm"], "affine": "gamma+beta"}
FEATURES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "skipping": ({}, {"skipping": True}),
    "subsampling": ({}, {"subsampling": True}),
    "cast_before_gamma": ({}, {"cast_before_gamma": True}),
    "parameter_format = fp32": ({}, {"parameter_format": "fp32"}),
    "one_plus_gamma": (
        {"parameter_format": "fp32"},
        {"parameter_format": "fp32", "one_plus_gamma": True},
    ),
    "formats = fp16, int8": ({}, {"formats": ["fp16", "int8"]}),
    "formats = fp16, int8; LayerNorm with beta": (
        _LAYERNORM,
        _LAYERNORM | {"formats": ["fp16", "int8"]},
    ),
}
"""Feature -> what the builds without and with it change in `BASE`."""


@cache
def core_area(configuration: Configuration) -> Area:
    with TemporaryDirectory() as folder:
        verilog = generate(configuration, "haan_core")
        return area(map_verilog(verilog, "haan_core", "xcup", Path(folder), "core"))


def cost(feature: str) -> Area:
    """What the build with it has more than the one without."""
    without, having = (core_area(BASE.with_(**changes)) for changes in FEATURES[feature])
    return Area(*(b - a for a, b in zip(astuple(without), astuple(having), strict=True)))


def as_table(areas: dict[str, Area]) -> Table:
    table = Table(title="haan_core on UltraScale+ (Yosys)")
    table.add_column("")
    for name in ("LUT", "LUT as memory", "registers", "multipliers", "RAMB36"):
        table.add_column(name, justify="right")
    for name, found in areas.items():
        form = "{:g}" if name == BASE.name else "{:+g}"
        table.add_row(name, *(form.format(value) for value in astuple(found)))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--feature", choices=FEATURES, action="append", help="one alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    areas = {BASE.name: core_area(BASE)}
    areas |= {feature: cost(feature) for feature in given.feature or FEATURES}
    if given.json:
        json.dump({name: asdict(found) for name, found in areas.items()}, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        Console().print(as_table(areas))


if __name__ == "__main__":
    main()
