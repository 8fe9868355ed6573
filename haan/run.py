# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What `haan run` measures: rows through an accelerator behind a serial line, against the golden model and float64."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.table import Table

from . import golden
from .config import Configuration
from .driver import Accelerator, Normalized
from .results import flag_counts, result_errors
from .tensors import Tensors, exact_rows

LAYER = 0
"""The layer that the rows go through."""


@dataclass(frozen=True)
class Report:
    """Figures of one run."""

    configuration: str
    where: str
    rows: int
    n: int
    seconds: float
    """For the rows, on the line; simulated ones take as long as the simulator does."""
    repeated: int
    """Requests that were sent again."""
    max_error: float | None
    """Against float64, in ulp of FP16 results or LSB of INT8 ones; None if no result is a number."""
    unit: str
    flags: dict[str, int]
    """Flag -> rows that have it."""
    different_rows: list[int]
    """Rows whose bits or flags differ from the golden model's."""

    @property
    def bit_exact(self) -> bool:
        return not self.different_rows

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self) | {"bit_exact": self.bit_exact}

    def as_table(self) -> Table:
        """For the terminal."""
        table = Table(title=f"{self.configuration} at {self.where}", show_header=False)
        table.add_row("Rows", f"{self.rows} of N = {self.n}")
        table.add_row(
            "Time", f"{self.seconds:.3f} s, {self.rows / self.seconds:,.1f} rows a second"
        )
        table.add_row("Requests sent again", str(self.repeated))
        error = "no result is a number"
        if self.max_error is not None:
            error = f"max {self.max_error:.4g} {self.unit}"
        table.add_row("Error against float64", error)
        for flag, count in self.flags.items():
            table.add_row(f"Flag {flag}", f"{count} rows")
        wrong = self.different_rows
        verdict = f"NO: {len(wrong)} rows differ, the first is {wrong[0]}" if wrong else "yes"
        table.add_row("Bit-exact with golden", verdict)
        return table


def run(
    configuration: Configuration,
    tensors: Tensors,
    where: str,
    baud: int,
    step: Callable[[str], None],
) -> tuple[Report, Normalized]:
    """Sends rows through the accelerator at a port, and judges what came back. Raises what `haan.driver.Accelerator` raises."""
    settings = tensors.settings
    step(f"Opening {where}")
    with Accelerator.open(where, configuration, baud) as accelerator:
        step("Loading the layer")
        parameters: dict[str, Any] = {name: vector for name, (vector, _) in tensors.written.items()}
        one_plus = any(offset for _, offset in tensors.written.values())
        accelerator.load_layer(LAYER, settings, one_plus_gamma=one_plus, **parameters)
        step(f"Sending {len(tensors.x)} rows")
        start = time.perf_counter()
        got = accelerator.normalize(tensors.x, LAYER, x_scale=tensors.x_scale)
        seconds = time.perf_counter() - start
        repeated = accelerator.link.repeated
    step("Comparing with the golden model and float64")
    options = settings.model_dump(
        include={"mode", "eps", "n_sub", "first", "stride", "cast_before_gamma", "output_format"}
    )
    expected = golden.normalize(
        tensors.x,
        tensors.gamma,
        tensors.beta,
        configuration=configuration,
        one_plus_gamma=tensors.one_plus_gamma,
        x_scale=tensors.x_scale if tensors.x.dtype == np.int8 else None,
        y_scale=settings.y_scale,
        **options,
    )
    kind = f"u{got.y.itemsize}"
    same = (got.y.view(kind) == expected.y.view(kind)).all(axis=1) & (got.flags == expected.flags)
    exact = exact_rows(
        tensors.x, tensors.x_scale, tensors.gamma, tensors.beta, tensors.one_plus_gamma, settings
    )
    errors = result_errors(tensors.x, got.y, exact, got.flags)
    report = Report(
        configuration=configuration.name,
        where=where,
        rows=len(got.y),
        n=settings.n,
        seconds=seconds,
        repeated=repeated,
        max_error=float(errors.max()) if errors.size else None,
        unit="LSB" if got.y.dtype == np.int8 else "ulp",
        flags=flag_counts(got.flags),
        different_rows=np.flatnonzero(~same).tolist(),
    )
    return report, got
