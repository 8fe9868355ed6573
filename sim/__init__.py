# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Simulation of the generated Verilog with cocotb, on Verilator and Icarus.

from haan.sim import ParameterVector, Row, simulate

result = simulate(configuration, [Row(x, settings)], [ParameterVector("gamma", gamma)])
result.rows[0].bits            # FP16 bits of the normalized row
result.rows[0].out_cycles      # the cycle in which each of its beats left
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core import simulate_core
    from .rows import ParameterVector, Row, RowResult, Schedule, SimulationResult, StallPattern
    from .runner import SimulationError, Simulator
    from .top import simulate
    from .vectors import run_vectors
    from .writes import layer_writes, parameter_writes

__all__ = [
    "ParameterVector",
    "Row",
    "RowResult",
    "Schedule",
    "SimulationError",
    "SimulationResult",
    "Simulator",
    "StallPattern",
    "layer_writes",
    "parameter_writes",
    "run_vectors",
    "simulate",
    "simulate_core",
]
_PLACES = {
    "core": ["simulate_core"],
    "rows": ["ParameterVector", "Row", "RowResult", "Schedule", "SimulationResult", "StallPattern"],
    "runner": ["SimulationError", "Simulator"],
    "top": ["simulate"],
    "vectors": ["run_vectors"],
    "writes": ["layer_writes", "parameter_writes"],
}


def __getattr__(name: str) -> Any:
    # Loaded when asked for: every simulation starts a process of its own, whose bench needs nothing of all this, and loading it would be the
    # longest part of most of them.
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
