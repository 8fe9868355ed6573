# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Writes a Verilog module with one `haan_core` in it, without a control plane, whose layer settings are constants: here RMSNorm over
rows of 576. `haan_core` is a module of haan_axi.v.

    haan generate --preset ecp5 -o build/ecp5
    python examples/one_layer.py build/ecp5/rmsnorm_576.v

The module has the streams and the port for gamma; a design instantiates it.
"""

import sys
from pathlib import Path

from haan.config import Configuration
from haan.hdl import ports
from haan.layer import LayerSettings

CONFIGURATION = Configuration.preset("ecp5")
SETTINGS = LayerSettings(mode="rmsnorm", n=576, eps=1e-5, affine="gamma")


def one_layer(name: str, configuration: Configuration, settings: LayerSettings) -> str:
    """Verilog of a module with the ports of `haan_core` but the layer's, which are tied to `settings`."""
    outside, inside = [], []
    record = settings.record(configuration)
    for port, direction, width in ports(configuration, "haan_core"):
        if port.startswith("layer_"):
            value = record[port.removeprefix("layer_")]
            inside.append(f".{port}({width}'h{value:x})")
        else:
            outside.append(f"{direction} [{width - 1}:0] {port}")
            inside.append(f".{port}({port})")
    return "\n".join(
        [
            f"module {name} (",
            "    " + ",\n    ".join(outside),
            ");",
            "    haan_core core (",
            "        " + ",\n        ".join(inside),
            "    );",
            "endmodule",
            "",
        ]
    )


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(one_layer(path.stem, CONFIGURATION, SETTINGS), encoding="utf-8")
