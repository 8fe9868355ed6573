# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Random rows through `haan_axi` in Verilator, with random stalls, faults and register traffic, all compared with the golden model.

`python bench/soak.py --rows 1000000 --seed 0` does it in chunks, chunk i from seed + i and through the builds of `haan.sim.soak` in turn, and
prints what was done; exit status 1 at the first difference, with the command that repeats it. Interrupted, it prints what was done so far; `--json` prints it for
programs.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from haan.sim.soak import BUILDS, SoakReport, run
from haan.sim.top import build_top


def chunk(seed: int, rows: int) -> SoakReport:
    """The run of a seed."""
    return run(BUILDS[seed % len(BUILDS)], rows, seed)


def reports(seeds: dict[int, int], jobs: int) -> Iterator[tuple[int, SoakReport]]:
    """Seed and report of each chunk, as they end; those that follow a difference are left out."""
    pool = ThreadPoolExecutor(jobs)
    running = {pool.submit(chunk, seed, rows): seed for seed, rows in seeds.items()}
    try:
        for done in as_completed(running):
            report = done.result()
            yield running[done], report
            if report.sentence:
                return
    finally:
        pool.shutdown(cancel_futures=True)


def as_table(total: SoakReport, seconds: float) -> Table:
    """The figures for a terminal."""
    table = Table(title="Soak of haan_axi, simulated with Verilator", show_header=False)
    table.add_row("Rows", f"{total.rows:,}")
    table.add_row("Beats in and out", f"{total.beats:,}")
    table.add_row("Cycles", f"{total.cycles:,}")
    table.add_row("Cycles a second, all comparisons included", f"{total.cycles / seconds:,.0f}")
    for name, counts in (("Rows with", total.flags), ("Register accesses:", total.accesses)):
        for kind, count in sorted(counts.items()):
            table.add_row(f"{name} {kind}", f"{count:,}")
    table.add_row("Differences", total.sentence or "none")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chunk", type=int, default=20_000, help="rows in a chunk")
    parser.add_argument("--jobs", type=int, default=1, help="chunks at a time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    if min(given.rows, given.chunk, given.jobs) < 1:
        parser.error("rows, chunk and jobs must be 1 or more")
    for build in BUILDS:
        build_top(build, optimized=True)
    starts = range(0, given.rows, given.chunk)
    seeds = {
        given.seed + index: min(given.chunk, given.rows - start)
        for index, start in enumerate(starts)
    }
    total, began = SoakReport(), time.perf_counter()
    with Progress(console=Console(stderr=True)) as progress, suppress(KeyboardInterrupt):
        task = progress.add_task("Rows", total=given.rows)
        for seed, report in reports(seeds, given.jobs):
            total += report
            progress.update(task, advance=seeds[seed])
            if report.sentence:
                same = f"--rows {seeds[seed]} --chunk {seeds[seed]} --seed {seed}"
                print(f"To repeat it: python bench/soak.py {same}", file=sys.stderr)
    seconds = time.perf_counter() - began
    if given.json:
        print(json.dumps(asdict(total) | {"seconds": seconds}, indent=2))
    else:
        Console().print(as_table(total, seconds))
    sys.exit(bool(total.sentence))


if __name__ == "__main__":
    main()
