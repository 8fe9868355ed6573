# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Draws the passage of rows through the core, from the waves of a simulation: `python bench/passage.py` writes docs/figures/passage.*."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import wavedrom
from vcdvcd import VCDVCD

from haan.config import Configuration
from haan.layer import LayerSettings
from haan.sim import Row, StallPattern, simulate_core

FOLDER = Path(__file__).parent.parent / "docs" / "figures"
CONFIGURATION = Configuration().with_(
    p_n=4, p_d=4, max_n=16, norms=["rmsnorm"], affine="none", pipeline="short", layers=2
)
ROWS = [12, 8, 4]
"""Elements of the rows."""

LANES = [
    ("s_axis", "s_axis_tvalid", "s_axis_tready", "s_axis_tlast"),
    ("framed beat", "framer.beat_valid", None, "framer.end_valid"),
    ("statistics in", "framer.sum_valid", None, "framer.sum_last"),
    ("sums of the row", "statistics.o_valid", None, "statistics.o_valid"),
    ("window queue", "windows.r_valid", "windows.r_ready", "windows.r_valid"),
    ("into the lanes", "normalization.issue", None, "normalization.order_ready"),
    ("m_axis", "m_axis_tvalid", "m_axis_tready", "m_axis_tlast"),
]
"""What is drawn: name, signals for valid, ready and the row's last."""


def waves() -> VCDVCD:
    """Three rows back to back; the sink is slow at first."""
    random = np.random.default_rng(0)
    rows = [
        Row(random.normal(size=n).astype(np.float16), LayerSettings(n=n, mode="rmsnorm"))
        for n in ROWS
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "waves.vcd"
        simulate_core(CONFIGURATION, rows, sink_stall=StallPattern(period=6, busy=1), waves=path)
        return VCDVCD(str(path))


class Samples:
    """Values of the core's signals as they stand before each rising edge of the clock."""

    def __init__(self, waves: VCDVCD) -> None:
        self.waves = waves
        self.edges = [
            time - 1 for time, value in waves["haan_core.clk"].tv if value == "1" and time
        ]

    def __getitem__(self, name: str) -> list[bool]:
        signal = self.waves[f"haan_core.{name}"]
        return [signal[time].endswith("1") for time in self.edges]


def wave_json(waves: VCDVCD) -> dict[str, Any]:
    """WaveJSON: a numbered box for every beat that moves, grey ones for those that wait."""
    samples = Samples(waves)
    start = samples["s_axis_tvalid"].index(True) - 1
    leaves = zip(samples["m_axis_tvalid"], samples["m_axis_tlast"], strict=True)
    last = [valid and ends for valid, ends in leaves]
    end = max(cycle for cycle, is_last in enumerate(last) if is_last) + 3
    signals: list[dict[str, Any]] = [{"name": "clk", "wave": "p" + "." * (end - start - 1)}]
    for name, valid, ready, ends in LANES:
        always = [True] * len(samples.edges)
        columns = zip(
            samples[valid], samples[ready] if ready else always, samples[ends], strict=True
        )
        signals.append({"name": name} | _boxes(list(columns)[start:end]))
    return {
        "signal": signals,
        "head": {
            "text": f"Rows of {', '.join(map(str, ROWS))} elements, {CONFIGURATION.how.p_n} lanes",
            "tick": 0,
        },
    }


def _boxes(columns: list[tuple[bool, bool, bool]]) -> dict[str, Any]:
    wave, data, row, beat = "", [], 0, 0
    for valid, ready, ends in columns:
        if not valid:
            wave += "." if wave[-1:] in ("0", ".") else "0"
            continue
        wave += "345"[row % 3] if ready else "2"
        data.append(f"{row}.{beat}")
        if ready:
            row, beat = (row + 1, 0) if ends else (row, beat + 1)
    return {"wave": wave, "data": data}


def main() -> None:
    figure = wave_json(waves())
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(figure, indent=1)
    (FOLDER / "passage.json").write_text(text + "\n", encoding="utf-8")
    wavedrom.render(text).saveas(str(FOLDER / "passage.svg"))


if __name__ == "__main__":
    main()
