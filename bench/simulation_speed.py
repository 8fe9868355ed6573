# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Speed of a simulation through cocotb and Verilator, as cycles a second, with all comparisons and without.

`python bench/simulation_speed.py` streams rows through the preset `ecp5-16` and prints medians of several runs, by the clock on the wall and
by the processor's; `--json` prints them for programs.
"""

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np

from haan.config import Configuration
from haan.layer import LayerSettings
from haan.sim import ParameterVector, Row, SimulationResult, StallPattern, simulate
from haan.sim.verdict import compare

BUILD = Configuration.preset("ecp5-16")
STALLS = StallPattern(probability=0.1, burst=3)


def processor_seconds() -> float:
    """Of this process and of the simulators that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """(On the wall, of the processor.)"""
    wall, processor = time.perf_counter(), processor_seconds()
    work()
    return time.perf_counter() - wall, processor_seconds() - processor


def measure(count: int, n: int, repeats: int, optimized: bool) -> dict[str, float]:
    """Medians over `repeats` runs with comparison and without, in turns."""
    random = np.random.default_rng(0)
    settings = LayerSettings(n=n, affine="gamma+beta")
    rows = [Row(random.normal(size=n).astype(np.float16), settings) for _ in range(count)]
    gamma, beta = random.normal(1.0, 0.3, (2, n)).astype(np.float16)
    parameters = [ParameterVector("gamma", gamma), ParameterVector("beta", beta)]

    def alone() -> SimulationResult:
        return simulate(
            BUILD, rows, parameters, optimized=optimized, source_idle=STALLS, sink_stall=STALLS
        )

    def compared() -> None:
        verdict = compare(BUILD, rows, parameters, alone())
        if not verdict.exact:
            raise SystemExit(verdict.sentence)

    cycles = alone().rows[-1].out_cycles[-1]
    pairs = [(seconds(compared), seconds(alone)) for _ in range(repeats)]
    return {
        "cycles": cycles,
        "cycles_per_second": cycles / statistics.median(with_[0] for with_, _ in pairs),
        "cycles_per_processor_second": cycles / statistics.median(with_[1] for with_, _ in pairs),
        "time_ratio_to_no_comparison": statistics.median(a[1] / b[1] for a, b in pairs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--n", type=int, default=256, help="elements in a row")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    results = {
        name: measure(given.rows, given.n, given.repeats, optimized)
        for name, optimized in (("quickly built", False), ("optimized", True))
    }
    if given.json:
        print(json.dumps({"rows": given.rows, "n": given.n, "results": results}, indent=2))
        return
    print(
        f"{given.rows} rows of {given.n} through 16 lanes, all compared; medians of {given.repeats}"
    )
    print(f"{'Verilator':16}{'wall':>14}{'processor':>16}{'time ratio':>12}")
    for name, result in results.items():
        cycles, wall, processor, ratio = result.values()
        print(f"{name:16}{wall:10,.0f} c/s{processor:12,.0f} c/s{ratio:12.2f}")


if __name__ == "__main__":
    main()
