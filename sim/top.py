# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Simulation of the whole accelerator on rows: layers and parameters over AXI4-Lite, then rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import Configuration, ConfigurationError
from ..layer import LayerSettings
from ..registers import register_map
from . import runner
from .core import generated
from .jobs import AxiJob, AxiRecord, BusAccess, Moment
from .rows import (
    FLOWING,
    ParameterVector,
    Row,
    Schedule,
    SimulationResult,
    StallPattern,
    row_beats,
    row_results,
    stream_fields,
    told,
)
from .runner import Build, SimulationError, Simulator
from .writes import layer_writes, parameter_writes


def simulate(
    configuration: Configuration,
    rows: Sequence[Row],
    parameters: Sequence[ParameterVector] = (),
    *,
    simulator: Simulator = "verilator",
    source_idle: StallPattern | Schedule = FLOWING,
    sink_stall: StallPattern | Schedule = FLOWING,
    statistics_stall: StallPattern | Schedule = FLOWING,
    seed: int = 0,
    waves: Path | None = None,
    optimized: bool = False,
    build_root: Path | None = None,
    verilog: str | None = None,
    registers: Sequence[str] = (),
) -> SimulationResult:
    """Runs rows through the generated `haan_axi`, back to back.

    Parameters
    ----------
    rows : packets; those of one layer have the same settings
    parameters : gamma and beta vectors; they and the layers are written over AXI4-Lite before the first row
    source_idle, sink_stall : idle cycles of the source, backpressure of the sink; `seed` fixes the random ones
    statistics_stall : backpressure of the statistics stream's sink, in builds with `statistics_stream`
    waves : file to record waves into (Verilator: VCD, Icarus: FST)
    optimized : for long runs: Verilator takes longer to build, and half as long a cycle
    build_root : folder that keeps compiled Verilog (default: in the user's cache)
    verilog : text to simulate instead of what `haan.hdl.generate` gives for the configuration
    registers : names of those that are read after the last row

    Raises ConfigurationError for rows or parameters that the build can't take, and SimulationError if the hardware broke a rule: VALID
    and payload hold until READY, VALID and READY are low in reset, no unknown bit, one packet a row, no hang, no write refused.
    """
    source, sink = source_idle.schedule(seed), sink_stall.schedule(seed + 1)
    statistics = statistics_stall.schedule(seed + 2)
    common = stream_fields(configuration, rows, source, sink, statistics)
    beats = [beat for row in rows for beat in row_beats(configuration, row)]
    setup = _setup(configuration, layers_of(rows), parameters)
    reads = [BusAccess(register_map(configuration)[name].address) for name in registers]
    after = [Moment(reads, beats=len(beats), packets=len(rows))] if reads else []
    job = AxiJob(beats=beats, setup=setup, moments=after, **common)
    made = build_top(
        configuration,
        simulator,
        verilog=verilog,
        waves=waves is not None,
        optimized=optimized,
        build_root=build_root,
    )
    record: AxiRecord = runner.run(made, "haan.sim.bench_axi", job, waves=waves)
    results = told(rows, row_results(configuration, beats, record, record.start))
    refused = [
        hex(access.address) for access, answer in zip(setup, record.setup, strict=True) if answer[0]
    ]
    if refused:
        raise SimulationError(
            f"{len(refused)} register writes were refused, the first to address {refused[0]}"
        )
    answers = record.answers[0] if reads else []
    words = dict(zip(registers, (data for _, data, _ in answers), strict=True))
    # Right after a reset, without writes in between, TREADY still is low.
    return SimulationResult(results, source, sink, int(not setup), words, statistics)


def build_top(
    configuration: Configuration,
    simulator: Simulator = "verilator",
    *,
    verilog: str | None = None,
    **options: Any,
) -> Build:
    """`haan_axi`, or other Verilog with its ports, ready to run; options as for `runner.build`."""
    from ..hdl import ports

    text = generated(configuration, "haan_axi") if verilog is None else verilog
    names = [name for name, _, _ in ports(configuration)]
    return runner.build(text, "haan_axi", names, simulator, **options)


def layers_of(rows: Sequence[Row]) -> dict[int, LayerSettings | None]:
    """The settings of each layer; ConfigurationError if its rows don't agree."""
    layers: dict[int, LayerSettings | None] = {}
    for row in rows:
        layer = row.ids.get(0, row.layer)
        if row.fields:
            raise ConfigurationError(
                f"layer {layer}: fields = {dict(row.fields)}, but only `simulate_core` takes them"
            )
        if layers.setdefault(layer, row.settings) != row.settings:
            raise ConfigurationError(
                f"layer {layer} has rows with different settings: {layers[layer]!r} and {row.settings!r}; "
                "allowed is one for a layer"
            )
    return layers


def _setup(
    configuration: Configuration,
    layers: Mapping[int, LayerSettings | None],
    parameters: Sequence[ParameterVector],
) -> list[BusAccess]:
    """Everything that is written before the first row."""
    bus = [access for vector in parameters for access in parameter_writes(configuration, vector)]
    for layer, settings in layers.items():
        if settings is not None:
            bus += layer_writes(configuration, layer, settings.record(configuration))
    return bus
