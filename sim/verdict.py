# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Simulated rows against the golden model: every element, flag, mean, ISD and cycle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..config import FORMATS, Configuration
from ..formats import INT8
from ..golden import (
    IsdMemory,
    OutputRow,
    Packet,
    Passage,
    ReceivedRow,
    Slot,
    accepted_settings,
    passages,
    row_outputs,
)
from ..layer import LayerSettings, float32_bits
from .rows import ParameterVector, Row, RowResult, SimulationResult, row_packet


@dataclass(frozen=True)
class Verdict:
    """Indices of rows that are not what the golden model says; and a sentence about the first of them, or ""."""

    different: list[int]
    """In elements, flags, mean or ISD, or TID or token slot are not those that came in."""
    mistimed: list[int]
    """A beat moved in another cycle."""
    sentence: str

    @property
    def exact(self) -> bool:
        return not (self.different or self.mistimed)


def compare(
    configuration: Configuration,
    rows: Sequence[Row],
    parameters: Sequence[ParameterVector],
    result: SimulationResult,
) -> Verdict:
    """Judges a simulation of rows, by elements, flags, mean and ISD where there is a stream of them, and cycles."""
    settings = _settings(configuration, rows)
    return judge(configuration, rows, settings, slots(configuration, parameters), result)


def judge(
    configuration: Configuration,
    rows: Sequence[Row],
    settings: Sequence[LayerSettings | None],
    slots: Mapping[int, Slot],
    result: SimulationResult,
    memory: IsdMemory | None = None,
) -> Verdict:
    """The same with what each row's record asks for (`accepted_settings`), what the slots hold, and the ISDs kept of rows before."""
    answers, packets = _foreseen(configuration, rows, settings, slots, memory)
    moves = passages(
        configuration,
        packets,
        result.source,
        result.sink,
        result.ready_from,
        result.statistics_sink,
    )
    tells = configuration.what.statistics_stream
    different, mistimed, sentence = [], [], ""
    for index, (row, got, answer, move) in enumerate(
        zip(rows, result.rows, answers, moves, strict=True)
    ):
        wrong = _difference(row, got, answer.bits, answer.flags)
        if tells and not wrong:
            wrong = _misstated(got, answer)
        came, right = _cycles(got), _cycles(move)
        if wrong:
            different.append(index)
        if came != right:
            mistimed.append(index)
            wrong = wrong or f"beats moved {_told(*came)}, but {_told(*right)} is right"
        if wrong and not sentence:
            sentence = f"row {index}, {settings[index]}: {wrong}"
    return Verdict(different, mistimed, sentence)


def foreseen(
    configuration: Configuration, rows: Sequence[Row], parameters: Sequence[ParameterVector]
) -> list[Packet]:
    """What the cycles of rows depend on, as golden sees it before any simulation."""
    settings = _settings(configuration, rows)
    return _foreseen(configuration, rows, settings, slots(configuration, parameters), None)[1]


def _foreseen(
    configuration: Configuration,
    rows: Sequence[Row],
    settings: Sequence[LayerSettings | None],
    slots: Mapping[int, Slot],
    memory: IsdMemory | None,
) -> tuple[list[OutputRow], list[Packet]]:
    how = configuration.how
    parts = [row_packet(configuration, row) for row in rows]
    received = [
        ReceivedRow.collected(*part, how.p_n, row.token, float32_bits(row.x_scale))
        for row, part in zip(rows, parts, strict=True)
    ]
    answers = row_outputs(received, settings, configuration, slots, memory)
    packets = [
        Packet(
            len(part[0]),
            layer,
            *_asked(configuration, row, layer),
            answer.predicted,
            len(came.halves().data) if _is_halved(configuration, row, layer) else None,
        )
        for row, part, layer, came, answer in zip(
            rows, parts, settings, received, answers, strict=True
        )
    ]
    return answers, packets


def slots(configuration: Configuration, parameters: Sequence[ParameterVector]) -> dict[int, Slot]:
    """What the slots hold after the parameters were written."""
    width = np.float32 if configuration.what.parameter_format == "fp32" else np.float16
    found: dict[int, Slot] = {}
    for slot in {vector.slot for vector in parameters}:
        kinds = {vector.kind: vector for vector in parameters if vector.slot == slot}
        values = {kind: vector.bits.view(width) for kind, vector in kinds.items()}
        one_plus = "gamma" in kinds and kinds["gamma"].one_plus
        found[slot] = Slot(values.get("gamma"), values.get("beta"), one_plus)
    return found


def _settings(configuration: Configuration, rows: Sequence[Row]) -> list[LayerSettings | None]:
    """What each row's record asks for; equal ones share the work."""
    known: dict[object, LayerSettings | None] = {}
    found = []
    for row in rows:
        # Without INT8 it doesn't matter.
        x_scale = float32_bits(row.x_scale) if configuration.what.int8 else 0
        key = row.settings, tuple(row.fields.items()), x_scale
        if key not in known:
            known[key] = accepted_settings(row.record(configuration), configuration, x_scale)
        found.append(known[key])
    return found


def _asked(
    configuration: Configuration, row: Row, settings: LayerSettings | None
) -> tuple[bool, bool]:
    """Whether a row's record asks for `keep_isd` and `skip`, though it may be refused."""
    if settings is not None:
        return settings.keep_isd, settings.skip
    record = row.record(configuration)
    valid = record["valid"] == 1
    return valid and record["keep_isd"] == 1, valid and record["skip"] == 1


def _is_halved(configuration: Configuration, row: Row, settings: LayerSettings | None) -> bool:
    """Whether a row's beats are two inside each, though it may be refused: those of INT8 beside FP16."""
    if not configuration.what.mixed:
        return False
    if settings is not None:
        return settings.int8_input
    record = row.record(configuration)
    return record["valid"] == 1 and record["input_format"] == FORMATS.index(INT8.name)


_Cycles = tuple[list[int], list[int], int | None]


def _cycles(moves: RowResult | Passage) -> _Cycles:
    return moves.in_cycles, moves.out_cycles, moves.statistics_cycle


def _told(taken: list[int], given: list[int], statistics: int | None) -> str:
    """Cycles in words."""
    words = f"in at {taken}, out at {given}"
    return words if statistics is None else f"{words}, mean and ISD at {statistics}"


def _misstated(got: RowResult, answer: OutputRow) -> str:
    """What is wrong with mean and ISD; "" if nothing is."""
    for name, came, right in (("mean", got.mean, answer.mean), ("ISD", got.isd, answer.isd)):
        if came != right:
            shown = "none" if came is None else f"{came:#010x}"
            return f"as {name} {shown} came, but {right:#010x} is right (FP32 bits)"
    return ""


def _difference(row: Row, got: RowResult, bits: np.ndarray, flags: int) -> str:
    """What is wrong with a result; "" if nothing is."""
    labels = (row.ids.get(0, row.layer), row.token)
    if (got.layer, got.token) != labels:
        return f"TID and token slot are {(got.layer, got.token)}, but {labels} came in"
    if got.flags != flags:
        return f"flags are {got.flags!r}, but {flags!r} is right"
    came = got.bits
    if came.size % bits.itemsize == 0:
        # A build with INT8 may not have been told which format it is.
        came = np.ascontiguousarray(came).view(bits.dtype) if came.dtype == np.uint8 else came
    if came.shape != bits.shape:
        return f"{came.size} elements came, but {bits.size} is right"
    different = np.flatnonzero(bits != came)
    if not different.size:
        return ""
    first = int(different[0])
    return (
        f"{different.size} elements differ, the first is {first}: "
        f"{came[first]:#06x} came, but {bits[first]:#06x} is right"
    )
