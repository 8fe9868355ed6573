# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Simulation of the core alone on rows, each with a layer record of its own."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ..config import Configuration
from ..layer import record_layout
from . import runner
from .jobs import Beat, RowsJob, StreamRecord
from .rows import (
    FLOWING,
    ParameterVector,
    Row,
    SimulationResult,
    StallPattern,
    parameter_elements,
    row_beats,
    row_results,
    stream_fields,
    told,
)
from .runner import Simulator


def simulate_core(
    configuration: Configuration,
    rows: Sequence[Row],
    parameters: Sequence[ParameterVector] = (),
    *,
    simulator: Simulator = "verilator",
    source_idle: StallPattern = FLOWING,
    sink_stall: StallPattern = FLOWING,
    statistics_stall: StallPattern = FLOWING,
    seed: int = 0,
    reset_at: int | None = None,
    waves: Path | None = None,
    build_root: Path | None = None,
    verilog: str | None = None,
) -> SimulationResult:
    """Runs rows through the core, back to back, with the record of each driven beside it.

    Parameters
    ----------
    rows : packets into the core
    parameters : gamma and beta vectors, written before the first row
    source_idle, sink_stall : idle cycles of the source, backpressure of the sink; `seed` fixes the random ones
    statistics_stall : backpressure of the statistics stream's sink, in builds with `statistics_stream`
    reset_at : cycle in which a reset breaks off everything; then the rows are sent again, and only those are reported
    waves : file to record waves into (Verilator: VCD, Icarus: FST)
    build_root : folder that keeps compiled Verilog (default: in the user's cache)
    verilog : text to simulate instead of what `haan.hdl.generate` gives for the configuration

    Raises ConfigurationError for rows or parameters that the build can't take, and SimulationError if the hardware broke a rule: VALID
    and payload hold until READY, VALID and READY are low in reset, no unknown bit, one packet a row, no hang.
    """
    # The core knows beats of p_n elements only; a narrow bus is a matter of the top around it.
    configuration = configuration.with_(bus_bytes=None)
    source, sink = source_idle.schedule(seed), sink_stall.schedule(seed + 1)
    statistics = statistics_stall.schedule(seed + 2)
    common = stream_fields(configuration, rows, source, sink, statistics)
    records, beats = _records_and_beats(configuration, rows)
    writes = parameter_elements(configuration, parameters)
    job = RowsJob(beats=beats, records=records, writes=writes, reset_at=reset_at, **common)
    made = runner.build(
        generated(configuration, "haan_core") if verilog is None else verilog,
        "haan_core",
        _ports(configuration),
        simulator,
        waves=waves is not None,
        build_root=build_root,
    )
    record: StreamRecord = runner.run(made, "haan.sim.bench_rows", job, waves=waves)
    results = told(rows, row_results(configuration, beats, record))
    # Right after a reset, without parameter writes in between, TREADY still is low.
    return SimulationResult(
        results, source, sink, int(reset_at is not None), statistics_sink=statistics
    )


@lru_cache(maxsize=8)
def generated(configuration: Configuration, top: Literal["haan_axi", "haan_core"]) -> str:
    """The Verilog of a build."""
    # Imported here: with other Verilog, Amaranth isn't needed.
    from ..hdl import generate

    return generate(configuration, top)


def _records_and_beats(
    configuration: Configuration, rows: Sequence[Row]
) -> tuple[list[dict[str, int]], list[Beat]]:
    """Different layer records, by port; and the beats that name them."""
    numbers: dict[tuple[tuple[str, int], ...], int] = {}
    beats: list[Beat] = []
    for row in rows:
        record = tuple(row.record(configuration).items())
        beats += row_beats(configuration, row, numbers.setdefault(record, len(numbers)))
    return [{f"layer_{name}": value for name, value in record} for record in numbers], beats


def _ports(configuration: Configuration) -> list[str]:
    """The core's ports, as far as the bench uses them."""
    stream = ("tdata", "tkeep", "tlast", "tid", "tuser", "tvalid", "tready")
    statistics = ("tdata", "tid", "tuser", "tlast", "tvalid", "tready")
    write = ("valid", "beta", "slot", "index", "data", "one_plus")
    return [
        "clk",
        "rst",
        *["isd_clear"] * configuration.what.skipping,
        *(f"{side}_axis_{name}" for side in "sm" for name in stream),
        *(f"m_stat_{name}" for name in statistics * configuration.what.statistics_stream),
        *(f"layer_{name}" for name in record_layout(configuration)),
        *(f"parameter_write_{name}" for name in write),
    ]
