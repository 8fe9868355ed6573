# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What `haan simulate` measures: the generated Verilog on given rows, against the golden model and against float64."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from .config import Configuration
from .estimate import interval
from .formats import FP16
from .layer import LayerSettings
from .results import flag_counts, result_errors
from .sim import ParameterVector, Row, RowResult, SimulationResult, Simulator, simulate
from .sim.verdict import Verdict, compare
from .tensors import Rows, Tensors, exact_rows

PARAMETERS: tuple[Literal["gamma", "beta"], ...] = ("gamma", "beta")


@dataclass(frozen=True)
class Report:
    """Figures of one simulation. Cycles are clock cycles; errors are in units of the last place of FP16 results, or in LSB of INT8 ones
    against float64 rounded to INT8."""

    configuration: str
    simulator: Simulator
    mode: str
    affine: str
    input_format: str
    output_format: str
    y_scale: float | None
    """What results are to be multiplied by; None: they are FP16."""
    rows: int
    n: int
    n_sub: int
    cycles_per_row: float | None
    """Mean interval between rows; None for a single row."""
    bound_cycles_per_row: int
    """`haan.estimate.interval`"""
    latency_cycles: int
    """From the first row's first beat in to its last beat out."""
    max_error_ulp: float | None
    """None if all results are NaN, or are INT8."""
    mean_error_ulp: float | None
    max_error_lsb: float | None
    """None if results are FP16, or if there is none that a number should be."""
    mean_error_lsb: float | None
    flags: dict[str, int]
    """Flag -> rows that have it."""
    different_rows: list[int]
    """Rows whose bits or flags differ from the golden model's."""
    mistimed_rows: list[int]
    """Rows of which a beat moved in another cycle than the golden model says."""

    @property
    def bit_exact(self) -> bool:
        return not self.different_rows

    @property
    def cycle_exact(self) -> bool:
        return not self.mistimed_rows

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self) | {"bit_exact": self.bit_exact, "cycle_exact": self.cycle_exact}

    def as_tables(self) -> list[Table]:
        """For the terminal."""
        return [as_table(self)]


@dataclass(frozen=True, eq=False)
class Outcome:
    """A report, and what the hardware gave."""

    report: Report
    y: Rows
    """(rows, N)"""
    cycles: NDArray[np.int64]
    """(rows,), from the first input beat to each row's last output beat."""
    flags: NDArray[np.uint16]
    """(rows,), `RowFlag`"""
    statistics: Mapping[str, NDArray[np.float32]]
    """`row_numbers`"""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As `haan simulate` writes them."""
        found = {"y": self.y, "cycles": self.cycles, "flags": self.flags, **self.statistics}
        scale = self.report.y_scale
        return found if scale is None else found | {"y_scale": np.array(scale)}


def measure(
    configuration: Configuration,
    tensors: Tensors,
    simulator: Simulator,
    waves: Path | None,
    step: Callable[[str], None],
) -> Outcome:
    """Simulates rows back to back and judges the result; `step` is told what is being done.

    Raises what `haan.sim.simulate` raises.
    """
    settings, tokens = tensors.settings, configuration.what.token_slots
    rows = [
        Row(x, settings, token=i % tokens, x_scale=scale)
        for i, (x, scale) in enumerate(zip(tensors.x, tensors.x_scale.tolist(), strict=True))
    ]
    parameters = [
        ParameterVector(kind, tensors.written[kind][0], one_plus=tensors.written[kind][1])
        for kind in PARAMETERS
        if kind in tensors.written
    ]
    step(f"Generating, building and simulating {len(rows)} rows")
    result = simulate(configuration, rows, parameters, simulator=simulator, waves=waves)
    step("Comparing with the golden model and float64")
    verdict = compare(configuration, rows, parameters, result)
    return judge(configuration, tensors, simulator, result, verdict)


def judge(
    configuration: Configuration,
    tensors: Tensors,
    simulator: Simulator,
    result: SimulationResult,
    verdict: Verdict,
) -> Outcome:
    """Compares what the hardware gave for the rows of `tensors`, in order, with float64."""
    settings = tensors.settings
    flags = np.array([row.flags for row in result.rows], np.uint16)
    exact = exact_rows(
        tensors.x, tensors.x_scale, tensors.gamma, tensors.beta, tensors.one_plus_gamma, settings
    )
    y = row_outputs(settings, result.rows)
    errors = result_errors(tensors.x, y, exact, flags)
    largest = float(errors.max()) if errors.size else None
    mean = float(errors.mean()) if errors.size else None
    lsb = settings.int8_output
    last = np.array([row.out_cycles[-1] for row in result.rows], np.int64)
    report = Report(
        configuration=configuration.name,
        simulator=simulator,
        mode=settings.mode,
        affine=settings.affine,
        input_format=settings.input_format,
        output_format=settings.output_format,
        y_scale=settings.y_scale if settings.int8_output else None,
        rows=len(y),
        n=settings.n,
        n_sub=settings.samples,
        cycles_per_row=float(np.diff(last).mean()) if len(last) > 1 else None,
        bound_cycles_per_row=interval(configuration, settings),
        latency_cycles=result.rows[0].latency,
        max_error_ulp=None if lsb else largest,
        mean_error_ulp=None if lsb else mean,
        max_error_lsb=largest if lsb else None,
        mean_error_lsb=mean if lsb else None,
        flags=flag_counts(flags),
        different_rows=verdict.different,
        mistimed_rows=verdict.mistimed,
    )
    return Outcome(report, y, last - result.rows[0].in_cycles[0], flags, row_numbers(result.rows))


def row_numbers(results: Sequence[RowResult]) -> dict[str, NDArray[np.float32]]:
    """mean and isd, (rows,) each, from the statistics stream; nothing where the build has none."""
    numbers = {"mean": [row.mean for row in results], "isd": [row.isd for row in results]}
    return {
        name: np.array(bits, np.uint32).view(np.float32)
        for name, bits in numbers.items()
        if None not in bits
    }


def row_outputs(settings: LayerSettings, results: Sequence[RowResult]) -> Rows:
    """(rows, N)"""
    if settings.int8_output:
        return np.array([row.bits for row in results]).view(np.int8)
    bits = np.full((len(results), settings.n), FP16.quiet_nan, np.uint16)
    for row, got in zip(bits, results, strict=True):
        row[: len(got.bits)] = got.bits
    return bits.view(np.float16)


def as_table(report: Report) -> Table:
    """The report for a terminal."""
    table = Table(
        title=f"{report.configuration}, simulated with {report.simulator}", show_header=False
    )
    samples = "" if report.n_sub == report.n else f", statistics from {report.n_sub}"
    norm = report.mode if report.affine == "none" else f"{report.mode}, {report.affine}"
    table.add_row("Rows", f"{report.rows} of N = {report.n} ({norm}{samples})")
    formats = report.input_format, report.output_format
    if formats != (FP16.name, FP16.name):
        table.add_row("Formats", "{} in, {} out".format(*(name.upper() for name in formats)))
    if report.y_scale is not None:
        table.add_row("Scale of the results", f"{report.y_scale:.6g}")
    bound = f"bound {report.bound_cycles_per_row}"
    if report.cycles_per_row is None:
        table.add_row("Cycles a row", f"one row has no interval ({bound})")
    else:
        table.add_row("Cycles a row", f"{report.cycles_per_row:g} ({bound})")
    table.add_row("Latency", f"{report.latency_cycles} cycles, first beat in to last beat out")
    if report.max_error_ulp is not None and report.mean_error_ulp is not None:
        table.add_row(
            "Error against float64",
            f"max {report.max_error_ulp:.4f} ulp, mean {report.mean_error_ulp:.4f} ulp",
        )
    elif report.max_error_lsb is not None and report.mean_error_lsb is not None:
        table.add_row(
            "Error against float64, rounded",
            f"max {report.max_error_lsb:g} LSB, mean {report.mean_error_lsb:.4f} LSB",
        )
    else:
        table.add_row("Error against float64", "every result is NaN")
    for flag, count in report.flags.items():
        table.add_row(f"Flag {flag}", f"{count} rows")
    for name, wrong in (("Bit", report.different_rows), ("Cycle", report.mistimed_rows)):
        verdict = f"NO: {len(wrong)} rows differ, the first is {wrong[0]}" if wrong else "yes"
        table.add_row(f"{name}-exact with golden", verdict)
    return table
