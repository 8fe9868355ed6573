# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What `haan simulate --layers` measures: a stack of layers through the generated Verilog, against the golden model, against float64,
and against the same stack with every ISD computed from all elements."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from .config import Configuration
from .estimate import multiplier_counts
from .flags import RowFlag
from .formats import FP32
from .golden import Packet, Reference, passages
from .layer import LayerSettings
from .numerics import ISD_BITS
from .products import Products
from .report import row_numbers, row_outputs
from .results import flag_counts, result_errors
from .sim import ParameterVector, Row, RowResult, Schedule, SimulationResult, Simulator, simulate
from .sim.verdict import Verdict, compare, foreseen
from .stack import Stack, uses
from .tensors import Rows, exact_rows


@dataclass(frozen=True)
class LayerReport:
    """Figures of one layer's rows. Cycles are clock cycles."""

    layer: int
    name: str | None
    mode: str
    affine: str
    n: int
    n_sub: int
    anchor: int | None
    """Of a layer that skips."""
    rows: int
    cycles_per_row: float | None
    """Mean interval between rows; None for a single row."""
    latency_cycles: float
    """Mean over the rows, from the first beat in to the last beat out."""
    input_format: str
    output_format: str
    y_scale: float | None
    """What results are to be multiplied by; None: they are FP16."""
    max_error_ulp: float | None
    """Against float64, of rows whose ISD was computed; None if there are none, or results are INT8."""
    mean_error_ulp: float | None
    max_error_lsb: float | None
    """Against float64 rounded to INT8; None if results are FP16."""
    mean_error_lsb: float | None
    predicted: int
    """Rows whose ISD was predicted with the layer's ratio."""
    guarded: int
    """Rows whose anchor's ISD was outside of the guard."""
    no_anchor: int
    """Rows without an ISD of their anchor."""
    max_difference: float | None
    """|y − y64| / |y64| of rows that took the ISD of their anchor, y64 the row with its own ISD in float64, | | the Euclidean norm: the
    largest; None if there are none."""
    rms_difference: float | None
    """Root mean square of the same, weighted with |y64|²."""
    flags: dict[str, int]
    """Flag -> rows that have it."""


@dataclass(frozen=True)
class Effort:
    """What a stack took, counted in the simulation."""

    latency_cycles: float
    """Mean over the rows, from the first beat in to the last beat out."""
    cycles: int
    """From the first beat of all in to the last one out."""
    statistics_cycles: int
    """Cycles in which the statistics unit took elements: register `sum_cycles`."""
    roots: int
    """Inverse square roots: register `roots`."""
    multiplier_cycles: int
    """Multipliers times the cycles in which they worked, in the whole datapath."""


@dataclass(frozen=True)
class StackReport:
    """Figures of one simulation of a stack."""

    configuration: str
    simulator: Simulator
    layers_digest: str
    layers: list[LayerReport]
    effort: Effort
    exact_effort: Effort | None
    """Of the same stack with every ISD computed from all elements; None if that is the same."""
    different_rows: list[str]
    """Rows whose bits or flags differ from the golden model's, in both simulations."""
    mistimed_rows: list[str]
    """Rows of which a beat moved in another cycle than the golden model says."""

    @property
    def bit_exact(self) -> bool:
        return not self.different_rows

    @property
    def cycle_exact(self) -> bool:
        return not self.mistimed_rows

    @property
    def remaining(self) -> dict[str, float | None]:
        """Figure of `effort` -> its part of the same in `exact_effort`."""
        if self.exact_effort is None:
            return {}
        whole = asdict(self.exact_effort)
        return {
            name: value / whole[name] if whole[name] else None
            for name, value in asdict(self.effort).items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self) | {
            "remaining": self.remaining,
            "bit_exact": self.bit_exact,
            "cycle_exact": self.cycle_exact,
        }

    def as_tables(self) -> list[Table]:
        """For the terminal: a line a layer, and what was saved."""
        return [_layers_table(self), _effort_table(self)]


@dataclass(frozen=True, eq=False)
class StackOutcome:
    """A report, and what the hardware gave, by layer."""

    report: StackReport
    y: Mapping[int, Rows]
    """(rows, N)"""
    cycles: Mapping[int, NDArray[np.int64]]
    """(rows,), from the first input beat of the stack to each row's last output beat."""
    flags: Mapping[int, NDArray[np.uint16]]
    """(rows,), `RowFlag`"""
    statistics: Mapping[int, Mapping[str, NDArray[np.float32]]]
    """`haan.report.row_numbers`"""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As `haan simulate` writes them."""
        kinds: dict[str, Mapping[int, NDArray[Any]]] = {
            "y": self.y,
            "flags": self.flags,
            "cycles": self.cycles,
        }
        found = {
            f"{kind}.{layer}": array
            for kind, arrays in kinds.items()
            for layer, array in arrays.items()
        }
        found |= {
            f"{kind}.{layer}": array
            for layer, arrays in self.statistics.items()
            for kind, array in arrays.items()
        }
        return found | {
            f"y_scale.{each.layer}": np.array(each.y_scale)
            for each in self.report.layers
            if each.y_scale is not None
        }


COUNTERS = ("sum_cycles", "roots")
SETTLE_CYCLES = 4
"""From a layer's last beat out to the first one in of the next: the hardware is as idle as ever then."""
MANY_ELEMENTS = 100_000
"""From so many on a simulator that takes longer to build, and half as long a cycle, is worth it."""


def measure_stack(
    configuration: Configuration,
    stack: Stack,
    simulator: Simulator,
    waves: Path | None,
    step: Callable[[str], None],
) -> StackOutcome:
    """Simulates a stack layer by layer, token by token (`in_turn`); then once more with every ISD computed from all elements, where a
    layer skips or subsamples.

    Raises what `haan.sim.simulate` raises.
    """
    parameters = [
        ParameterVector(kind, vector, slot, offset)
        for slot, vectors in stack.written.items()
        for kind, (vector, offset) in vectors.items()
    ]

    def run(settings: Mapping[int, LayerSettings], waves: Path | None) -> _Run:
        rows = [
            Row(x, settings[layer], layer=layer, token=token, x_scale=scale)
            for layer in settings
            for x, scale, token in zip(
                stack.x[layer], stack.x_scale[layer].tolist(), stack.tokens.tolist(), strict=True
            )
        ]
        step(f"Simulating {len(rows)} rows of {len(settings)} layers")
        packets = foreseen(configuration, rows, parameters)
        result = simulate(
            configuration,
            rows,
            parameters,
            source_idle=Schedule(in_turn(configuration, rows, packets)),
            simulator=simulator,
            waves=waves,
            optimized=sum(x.size for x in stack.x.values()) >= MANY_ELEMENTS,
            registers=COUNTERS,
        )
        step("Comparing with the golden model")
        return _Run(rows, result, compare(configuration, rows, parameters, result))

    settings, exact = stack.table.settings, stack.table.exact()
    first = run(settings, waves)
    saves = bool(stack.table.subsampled) or any(each.skip for each in settings.values())
    second = run(exact, None) if saves else None
    runs = {"": first} if second is None else {"": first, ", all computed": second}
    results = _by_layer(first, settings)
    start = first.result.rows[0].in_cycles[0]
    report = StackReport(
        configuration=configuration.name,
        simulator=simulator,
        layers_digest=stack.table.digest(),
        layers=[judge_layer(stack, layer, rows) for layer, rows in results.items()],
        effort=effort(configuration, first.result),
        exact_effort=None if second is None else effort(configuration, second.result),
        different_rows=_named(runs, lambda verdict: verdict.different),
        mistimed_rows=_named(runs, lambda verdict: verdict.mistimed),
    )
    return StackOutcome(
        report,
        {layer: row_outputs(settings[layer], rows) for layer, rows in results.items()},
        {layer: _last(rows) - start for layer, rows in results.items()},
        {layer: _flags(rows) for layer, rows in results.items()},
        {layer: row_numbers(rows) for layer, rows in results.items()},
    )


def in_turn(
    configuration: Configuration, rows: Sequence[Row], packets: Sequence[Packet]
) -> NDArray[np.bool_]:
    """In which cycles the source is willing: the rows of a layer come back to back, when all of the layer before have left, as in a
    model, which makes the ones of the others.

    packets : of the rows
    """
    willing: list[bool] = []
    for _, each in groupby(zip(rows, packets, strict=True), key=lambda pair: pair[0].layer):
        moves = passages(configuration, [packet for _, packet in each], [True], [True])
        accepted, left = moves[-1].in_cycles[-1] + 1, moves[-1].out_cycles[-1] + 1
        willing += [True] * accepted + [False] * (left - accepted + SETTLE_CYCLES)
    return np.array(willing)


def judge_layer(stack: Stack, layer: int, results: Sequence[RowResult]) -> LayerReport:
    """Compares what the hardware gave for the rows of a layer with float64."""
    settings, x = stack.table.settings[layer], stack.x[layer]
    y, flags, last = row_outputs(settings, results), _flags(results), _last(results)
    gamma, beta = (
        slots[settings.slot] if uses(settings, kind) else None
        for kind, slots in (("gamma", stack.gamma), ("beta", stack.beta))
    )
    offset = stack.one_plus_gamma and gamma is not None
    exact = exact_rows(x, stack.x_scale[layer], gamma, beta, offset, settings)
    predicts = flags & RowFlag.PREDICTED != 0
    mine = Reference(*(each[~predicts] for each in exact))
    errors = result_errors(x[~predicts], y[~predicts], mine, flags[~predicts])
    error = (float(errors.max()), float(errors.mean())) if errors.size else (None, None)
    lsb = settings.int8_output
    judged = np.isfinite(exact.y) if lsb else ~np.isnan(y)
    largest, mean_square = _differences(y[predicts], exact.y[predicts], judged[predicts])
    latencies = [row.latency for row in results]
    return LayerReport(
        layer=layer,
        name=stack.table.names.get(layer),
        mode=settings.mode,
        affine=settings.affine,
        n=settings.n,
        n_sub=settings.samples,
        anchor=settings.anchor if settings.skip else None,
        rows=len(y),
        cycles_per_row=float(np.diff(last).mean()) if len(last) > 1 else None,
        latency_cycles=float(np.mean(latencies)),
        input_format=settings.input_format,
        output_format=settings.output_format,
        y_scale=settings.y_scale if lsb else None,
        max_error_ulp=None if lsb else error[0],
        mean_error_ulp=None if lsb else error[1],
        max_error_lsb=error[0] if lsb else None,
        mean_error_lsb=error[1] if lsb else None,
        predicted=int(np.count_nonzero(predicts & (flags & RowFlag.GUARD == 0))),
        guarded=int(np.count_nonzero(flags & RowFlag.GUARD)),
        no_anchor=int(np.count_nonzero(flags & RowFlag.NO_ANCHOR)),
        max_difference=largest,
        rms_difference=mean_square,
        flags=flag_counts(flags),
    )


def effort(configuration: Configuration, result: SimulationResult) -> Effort:
    """What a stack took. Of multipliers work: the statistics lanes' in each of its cycles, the normalization lanes' in each beat that
    leaves, those of the row's path once for each root, and those of a prediction."""
    how, rows = configuration.how, result.rows
    counts = multiplier_counts(configuration)
    # A multiplier that is shared works once for each of those that it stands for.
    row = multiplier_counts(configuration.with_(isd_interval=1))["row"]
    statistics, roots = (result.registers[name] for name in COUNTERS)
    beats = sum(-(-len(each.bits) // how.p_n) for each in rows)
    predictions = sum(bool(each.flags & RowFlag.PREDICTED) for each in rows)
    return Effort(
        latency_cycles=float(np.mean([each.latency for each in rows])),
        cycles=rows[-1].out_cycles[-1] - rows[0].in_cycles[0],
        statistics_cycles=statistics,
        roots=roots,
        multiplier_cycles=counts["statistics"] * statistics
        + counts["normalization"] * beats
        + row * roots
        + len(Products().operand_widths(FP32.significand_bits, ISD_BITS)) * predictions,
    )


@dataclass(frozen=True, eq=False)
class _Run:
    rows: Sequence[Row]
    result: SimulationResult
    verdict: Verdict


def _by_layer(run: _Run, settings: Mapping[int, LayerSettings]) -> dict[int, list[RowResult]]:
    found: dict[int, list[RowResult]] = {layer: [] for layer in settings}
    for row, result in zip(run.rows, run.result.rows, strict=True):
        found[row.layer].append(result)
    return found


def _named(runs: Mapping[str, _Run], pick: Callable[[Verdict], list[int]]) -> list[str]:
    return [
        f"layer {run.rows[index].layer}, token slot {run.rows[index].token}{kind}"
        for kind, run in runs.items()
        for index in pick(run.verdict)
    ]


def _flags(results: Sequence[RowResult]) -> NDArray[np.uint16]:
    return np.array([row.flags for row in results], np.uint16)


def _last(results: Sequence[RowResult]) -> NDArray[np.int64]:
    return np.array([row.out_cycles[-1] for row in results], np.int64)


def _differences(
    y: Rows, exact: NDArray[np.float64], judged: NDArray[np.bool_]
) -> tuple[float | None, float | None]:
    """|y − y64| / |y64| of rows: the largest, and that of all together; None where there is nothing to compare."""
    # Infinity counts as the number after the largest finite one.
    wide = np.clip(y.astype(np.float64), -(2.0**16), 2.0**16)
    wrong, right = (
        np.square(np.where(judged, values, 0.0)).sum(axis=1) for values in (wide - exact, exact)
    )
    there = right > 0
    if not there.any():
        return None, None
    return (
        float(np.sqrt((wrong[there] / right[there]).max())),
        float(np.sqrt(wrong[there].sum() / right[there].sum())),
    )


# For the terminal


def _layers_table(report: StackReport) -> Table:
    rows = report.layers[0].rows
    table = Table(
        "Layer",
        "Norm",
        "N",
        "ISD from",
        "Cycles a row",
        "Latency",
        "Max, mean error",
        "Predicted",
        "Difference max, rms",
        title=f"{report.configuration}, {len(report.layers)} layers of {rows} rows simulated with {report.simulator}",
    )
    for layer in report.layers:
        source = "all" if layer.n_sub == layer.n else f"{layer.n_sub} elements"
        if layer.anchor is not None:
            source = f"layer {layer.anchor}"
        table.add_row(
            str(layer.layer) if layer.name is None else f"{layer.layer} {escape(layer.name)}",
            layer.mode if layer.affine == "none" else f"{layer.mode}, {layer.affine}",
            str(layer.n),
            source,
            "" if layer.cycles_per_row is None else f"{layer.cycles_per_row:g}",
            f"{layer.latency_cycles:.1f}",
            _pair(layer.max_error_ulp, layer.mean_error_ulp, ".4f", " ulp")
            or _pair(layer.max_error_lsb, layer.mean_error_lsb, ".4g", " LSB"),
            "" if layer.anchor is None else _predictions(layer),
            _pair(layer.max_difference, layer.rms_difference, ".2%"),
        )
    return table


def _predictions(layer: LayerReport) -> str:
    others = {"guard": layer.guarded, "no anchor": layer.no_anchor}
    return ", ".join(
        [str(layer.predicted), *(f"{name} {count}" for name, count in others.items() if count)]
    )


def _pair(first: float | None, second: float | None, form: str, unit: str = "") -> str:
    return "" if first is None or second is None else f"{first:{form}}, {second:{form}}{unit}"


_FIGURES = {
    "latency_cycles": "Latency, mean of the rows, cycles",
    "cycles": "Whole stack, cycles",
    "statistics_cycles": "Statistics unit, cycles",
    "roots": "Inverse square roots",
    "multiplier_cycles": "Multipliers, cycles of work",
}


def _effort_table(report: StackReport) -> Table:
    saves = report.exact_effort is not None
    columns = ("This stack", "All computed from all elements", "Ratio") if saves else ("",)
    table = Table(
        "", *columns, title="Saved by skipping and subsampling" if saves else "Whole stack"
    )
    whole = {} if report.exact_effort is None else asdict(report.exact_effort)
    for name, value in asdict(report.effort).items():
        cells = [_FIGURES[name], _number(value)]
        if saves:
            ratio = report.remaining[name]
            cells += [_number(whole[name]), "" if ratio is None else f"{ratio:.3f}"]
        table.add_row(*cells)
    for name, wrong in (("Bit", report.different_rows), ("Cycle", report.mistimed_rows)):
        verdict = f"NO: {len(wrong)} rows differ, the first is {wrong[0]}" if wrong else "yes"
        table.add_row(f"{name}-exact with golden", verdict)
    return table


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
