# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Simulation of units without handshake."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from . import runner
from .jobs import VectorsJob
from .runner import Simulator


def run_vectors(
    verilog: str,
    top: str,
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    cycles: int,
    *,
    simulator: Simulator = "verilator",
    waves: Path | None = None,
    build_root: Path | None = None,
) -> dict[str, list[int]]:
    """Drives a unit's inputs from tables and records its outputs.

    Parameters
    ----------
    verilog, top : the unit; it has the ports `clk` and `rst`
    inputs : port -> its value, as an unsigned number, in each cycle from the end of the reset. After the table's end a port keeps
        its last value; ports that are not named stay 0.
    outputs : ports to record
    cycles : how long
    waves : file to record waves into (Verilator: VCD, Icarus: FST)

    Returns port -> value in each cycle: what is computed with a latency of L ≥ 1 cycles from `inputs[port][i]` is at index i + L.
    A value with unknown bits is −1.
    """
    ports = ("clk", "rst", *inputs, *outputs)
    made = runner.build(
        verilog, top, ports, simulator, waves=waves is not None, build_root=build_root
    )
    tables = {name: [int(value) for value in values] for name, values in inputs.items()}
    job = VectorsJob(tables, list(outputs), cycles)
    result: dict[str, list[int]] = runner.run(made, "haan.sim.bench_vectors", job, waves=waves)
    return result
