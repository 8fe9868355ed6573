# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Long random runs of `haan_axi`: rows of every kind under random stalls while registers are written and read. Every element, flag, cycle,
answer and counter is compared with what golden and the description of the registers say.

from haan.sim.soak import BUILDS, run

report = run(BUILDS[0], rows=20_000, seed=0)
report.sentence       # the first difference, or ""
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..config import Configuration
from ..flags import RowFlag
from ..layer import LayerSettings
from ..registers import Register, register_map
from . import runner, stimulus
from .jobs import AxiJob, AxiRecord, Beat, BusAccess, Delays, Moment
from .replay import Replay
from .rows import (
    ParameterVector,
    Row,
    SimulationResult,
    Willing,
    row_beats,
    row_results,
    stream_fields,
)
from .runner import SimulationError
from .top import build_top
from .verdict import judge
from .writes import layer_writes, parameter_writes

_SMALL = {"max_n": 200, "layers": 5, "slots": 4, "token_slots": 64}
BUILDS = [
    Configuration().with_(**_SMALL, name="lanes-8"),
    Configuration().with_(
        **_SMALL,
        name="all-options",
        p_n=4,
        p_d=2,
        parameter_format="fp32",
        one_plus_gamma=True,
        cast_before_gamma=True,
        subsampling=True,
    ),
    Configuration().with_(
        **_SMALL,
        name="lanes-16-short",
        p_n=16,
        p_d=4,
        isd_interval=16,
        pipeline="short",
        accumulator="window",
    ),
    Configuration().with_(
        **_SMALL, name="rmsnorm", p_n=4, p_d=4, norms=["rmsnorm"], affine="gamma"
    ),
    Configuration().with_(**_SMALL, name="narrow-bus", p_n=8, p_d=4, bus_bytes=8),
    Configuration().with_(
        **_SMALL | {"token_slots": 4}, name="skipping", p_n=4, p_d=2, skipping=True
    ),
    Configuration().with_(
        **_SMALL | {"token_slots": 4},
        name="skipping-rmsnorm",
        norms=["rmsnorm"],
        affine="gamma",
        skipping=True,
        anchors=2,
        subsampling=True,
    ),
    Configuration().with_(
        **_SMALL | {"token_slots": 4},
        name="int8-skipping",
        p_n=4,
        p_d=4,
        formats=["fp16", "int8"],
        norms=["rmsnorm"],
        affine="gamma",
        skipping=True,
        anchors=2,
    ),
    Configuration().with_(
        **_SMALL,
        name="int8-narrow-bus",
        p_n=8,
        p_d=4,
        bus_bytes=4,
        formats=["fp16", "int8"],
        cast_before_gamma=True,
        subsampling=True,
    ),
    Configuration().with_(
        **_SMALL,
        name="int8-alone",
        formats=["int8"],
        p_n=8,
        p_d=4,
        isd_interval=16,
        isd_multipliers=False,
        subsampling=True,
    ),
]
"""Builds that a soak takes in turn: small, because short rows meet each other more often."""

_PHASE = 400
"""The longest stretch of a schedule of one kind, in cycles."""
_SCHEDULE_CYCLES = 30_000
_OPERATIONS = 0.1
"""Operations on registers, a row."""
_COUNTERS = ("rows_in", "rows_out", "stall_in", "stall_out", "rows_in_flight", "status")


@dataclass(frozen=True, eq=False)
class Plan:
    """A run, fixed beforehand."""

    configuration: Configuration
    rows: list[Row]
    """Without settings: those that the layer has when a row comes."""
    beats: list[Beat]
    parameters: list[ParameterVector]
    setup: list[BusAccess]
    moments: list[Moment]
    source: Willing
    sink: Willing


@dataclass(frozen=True)
class SoakReport:
    """What a run found, and how much it did."""

    rows: int = 0
    beats: int = 0
    cycles: int = 0
    seconds: float = 0.0
    flags: Counter[str] = field(default_factory=Counter)
    """Rows by flag."""
    accesses: Counter[str] = field(default_factory=Counter)
    """Accesses to registers by kind."""
    sentence: str = ""
    """The first difference, or ""."""

    def __add__(self, other: "SoakReport") -> "SoakReport":
        return SoakReport(
            self.rows + other.rows,
            self.beats + other.beats,
            self.cycles + other.cycles,
            self.seconds + other.seconds,
            self.flags + other.flags,
            self.accesses + other.accesses,
            self.sentence or other.sentence,
        )


def run(configuration: Configuration, rows: int, seed: int) -> SoakReport:
    """Plans a run, simulates it, and judges it. The seconds are those of the three without the build of the Verilog."""
    build_top(configuration, optimized=True)
    start = time.perf_counter()
    planned = plan(configuration, rows, seed)
    report = judge_run(planned, simulate_plan(planned))
    return replace(report, seconds=time.perf_counter() - start)


def simulate_plan(planned: Plan) -> AxiRecord:
    """What the hardware does."""
    configuration = planned.configuration
    job = AxiJob(
        beats=planned.beats,
        setup=planned.setup,
        moments=planned.moments,
        **stream_fields(configuration, planned.rows, planned.source, planned.sink),
    )
    record: AxiRecord = runner.run(
        build_top(configuration, optimized=True), "haan.sim.bench_axi", job
    )
    return record


def judge_run(planned: Plan, record: AxiRecord) -> SoakReport:
    """Compares all that was seen with what is right."""
    configuration = planned.configuration
    try:
        results = row_results(configuration, planned.beats, record, record.start)
    except SimulationError as error:
        return SoakReport(sentence=str(error))
    replay = Replay(configuration, planned.rows, planned.beats, planned.parameters, record)
    accesses = [*planned.setup, *(access for moment in planned.moments for access in moment.bus)]
    answers = [*record.setup, *(answer for each in record.answers for answer in each)]
    wrong = replay.run(accesses, answers)
    result = SimulationResult(results, planned.source, planned.sink, 0)
    verdict = judge(configuration, replay.met, replay.settings, replay.slots, result)
    return SoakReport(
        rows=len(results),
        beats=len(record.accepted) + len(record.seen),
        cycles=record.seen[-1].cycle,
        flags=Counter(
            flag.name for row in results for flag in RowFlag if flag.name and flag in row.flags
        ),
        accesses=replay.kinds,
        sentence=verdict.sentence or wrong,
    )


def plan(configuration: Configuration, rows: int, seed: int) -> Plan:
    """Everything that goes in."""
    return _Planner(configuration, seed).plan(rows)


@lru_cache(maxsize=8)
def _registers(configuration: Configuration) -> tuple[list[Register], set[int]]:
    """The registers, and the addresses that have none."""
    registers = list(register_map(configuration).values())
    empty = set(range(0, 0x1000, 4)) - {register.address for register in registers}
    return registers, empty


class _Planner:
    def __init__(self, configuration: Configuration, seed: int) -> None:
        self.configuration, self.what = configuration, configuration.what
        self.random = np.random.default_rng(seed)
        self.map = register_map(configuration)
        self.vectors: list[Literal["gamma", "beta"]] = []
        self.affines: list[Literal["none", "gamma", "beta", "gamma+beta"]] = ["none"]
        if self.what.gamma:
            self.vectors.append("gamma")
            self.affines.append("gamma")
        if self.what.beta:
            self.vectors.append("beta")
            self.affines += ["beta", "gamma+beta"]
        if self.what.integer:
            self.affines = [each for each in self.affines if "gamma" in each]
        self.layers: list[LayerSettings | None] = [self.settings() for _ in range(self.what.layers)]
        self.parameters = [
            ParameterVector(
                kind,
                self.vector(("plain", "wide", "special")[slot % 3]),
                slot,
                one_plus=self.one_plus(kind == "beta", slot),
            )
            for slot in range(self.what.slots)
            for kind in self.vectors
        ]
        self.operations: list[Callable[[], list[BusAccess]]] = [
            *[self.commit] * 5,
            *[self.write_parameters] * 5,
            *[self.read_counters] * 4,
            *[self.refused_commit] * 2,
            *[self.load] * 2,
            *[self.stray] * 2,
        ]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def below(self, count: int) -> int:
        return int(self.random.integers(count))

    def vector(self, spread: str) -> NDArray[Any]:
        """Parameters of `stimulus.parameters`; in builds with INT8 plain ones make results of all its sizes."""
        width = self.what.parameters.width
        bits = stimulus.parameters(spread, self.what.max_n, width, self.random)
        if self.what.int8 and spread == "plain":
            numbers = bits.view(np.float32 if width == 32 else np.float16)
            bits = np.multiply(numbers, 40, dtype=numbers.dtype).view(bits.dtype)
        return bits

    def plan(self, count: int) -> Plan:
        bus = [
            each
            for vector in self.parameters
            for each in parameter_writes(self.configuration, vector)
        ]
        for layer, settings in enumerate(self.layers):
            assert settings is not None
            bus += layer_writes(self.configuration, layer, settings.record(self.configuration))
        setup = [*bus, self.write("control", self.map["control"].pack(clear=1))]
        rows, moments = [], []
        beats: list[Beat] = []
        for _ in range(count):
            if self.chance(_OPERATIONS):
                moments.append(Moment(self.operation(), beats=len(beats), holds=False))
            rows.append(self.row())
            beats += row_beats(self.configuration, rows[-1])
        moments.append(Moment(self.all_counters(), beats=len(beats), packets=count))
        source, sink = self.schedule(), self.schedule()
        return Plan(self.configuration, rows, beats, self.parameters, setup, moments, source, sink)

    def schedule(self) -> NDArray[np.bool_]:
        """Stretches in which a side is always willing, at random, in bursts, or never."""
        parts: list[NDArray[np.bool_]] = []
        while sum(map(len, parts)) < _SCHEDULE_CYCLES:
            length = 1 + self.below(_PHASE)
            kind = self.random.random()
            if kind < 0.5:
                parts.append(np.ones(length, dtype=np.bool_))
            elif kind < 0.75:
                parts.append(self.random.random(length) < self.random.uniform(0.2, 1.0))
            elif kind < 0.92:
                bursts = self.random.random(length) < self.random.uniform(0.3, 0.9)
                parts.append(np.repeat(bursts, self.random.integers(1, 12, length))[:length])
            else:
                parts.append(np.zeros(length, dtype=np.bool_))
        return np.concatenate(parts)

    # Rows

    def length(self) -> int:
        """Of a row: mostly short."""
        most = self.random.choice((12, 40, self.what.max_n), p=(0.7, 0.27, 0.03))
        return 1 + self.below(most)

    def settings(self) -> LayerSettings:
        what, n = self.what, self.length()
        more: dict[str, Any] = {}
        if what.subsampling and self.chance(0.6):
            first, stride = self.below(n), 1 << self.below(4)
            more = {
                "first": first,
                "stride": stride,
                "n_sub": 1 + self.below(1 + (n - 1 - first) // stride),
            }
        if what.skipping:
            more |= self.skipping()
        mode = what.norms[self.below(len(what.norms))]
        eps = (1e-5, 0.0, 1e-12, 1e-6, 0.1)[self.below(5)]
        affine = self.affines[self.below(len(self.affines))]
        slot = self.below(what.slots)
        cast = what.cast_before_gamma and self.chance(0.5)
        if what.int8:
            more |= self.formats(integers="gamma" in affine and not cast)
        return LayerSettings(
            n=n,
            mode=mode,
            eps=eps,
            affine=affine,
            slot=slot,
            cast_before_gamma=cast,
            **more,
        )

    def formats(self, integers: bool) -> dict[str, Any]:
        """Of a layer; `integers`: its results may be INT8."""
        found: dict[str, Any] = {}
        if self.what.integer or self.chance(0.6):
            found["input_format"] = "int8"
            if self.chance(0.4):
                found["x_scale"] = float(np.exp2(self.random.normal(0.0, 8.0)))
        if self.what.integer or (integers and self.chance(0.7)):
            found["output_format"] = "int8"
        return found

    def x_scale(self) -> float:
        """Of a row: mostly one that works, where it matters."""
        if not self.what.int8:
            return float(self.random.normal())
        if self.chance(0.9):
            return float(np.exp2(self.random.normal(0.0, 8.0)))
        return (0.0, -0.0, -1.0, 1e-39, math.inf, math.nan, 2.0**-126, 3e38)[self.below(8)]

    def skipping(self) -> dict[str, Any]:
        """Of a layer: an anchor, a skipped one that any other may be the anchor of, or neither."""
        kind = self.random.random()
        if kind < 0.4:
            return {"keep_isd": True}
        if kind < 0.6:
            return {}
        return {
            "skip": True,
            "anchor": self.below(self.what.layers),
            "ratio": float(np.exp2(self.random.normal())),
            "guard_low": (0.0, 0.05)[self.below(2)],
            "guard_high": (math.inf, 20.0)[self.below(2)],
            "guard_action": ("hold", "exact")[self.below(2)],
        }

    def row(self) -> Row:
        """A row as its layer wants it when all commits before have been done, or with a fault."""
        octets = self.configuration.bus
        layer = self.below(self.what.layers)
        settings = self.layers[layer]
        int8 = self.what.integer or (settings is not None and settings.int8_input)
        length = self.length() if settings is None else settings.n
        fault = self.random.random()
        if fault < 0.04:
            length = self.below(length + 1)
        elif fault < 0.08:
            length += self.below(3 * self.configuration.how.p_n)
        bits = self.integers(length) if int8 else self.numbers(length)
        beats = max(1, -(-bits.nbytes // octets))
        keep, ids = {}, {}
        if 0.08 <= fault < 0.14:
            patterns = [
                0,
                1 << self.below(octets),
                self.below(1 << 16),
                (1 << octets) - 1,
            ]
            for _ in range(1 + self.below(2)):
                keep[self.below(beats)] = patterns[self.below(4)] & (1 << octets) - 1
        elif fault < 0.17:
            ids[self.below(beats)] = self.below(1 << self.what.id_bits)
        elif fault < 0.19:
            ids = dict.fromkeys(range(beats), self.below(1 << self.what.id_bits))
        elif fault < 0.22 and length and not int8:
            bits[self.below(length)] = (0x7C00, 0xFC00, 0x7E01, 0xFFFF)[self.below(4)]
        return Row(
            bits,
            None,
            layer,
            self.below(self.what.token_slots),
            x_scale=self.x_scale(),
            keep=keep,
            ids=ids,
        )

    def numbers(self, length: int) -> NDArray[Any]:
        """FP16 elements."""
        kinds = (*stimulus.KINDS, "any bits")
        return stimulus.row(kinds[self.below(len(kinds))], max(1, length), self.random)[:length]

    def integers(self, length: int) -> NDArray[Any]:
        """INT8 elements."""
        kinds = tuple(stimulus.INTEGER_KINDS)
        return stimulus.integers(kinds[self.below(len(kinds))], max(1, length), self.random)[
            :length
        ]

    # Registers

    def write(self, name: str, data: int, strobe: int = 0xF) -> BusAccess:
        return BusAccess(self.map[name].address, data, strobe)

    def operation(self) -> list[BusAccess]:
        """Accesses for one purpose, each channel late at random."""
        make = self.operations[self.below(len(self.operations))]
        hurry = self.chance(0.5)
        return [
            access
            if hurry or self.chance(0.7)
            else access._replace(delays=Delays(*self.random.integers(0, 5, 5).tolist()))
            for access in make()
        ]

    def any_record(self) -> dict[str, int]:
        return self.settings().record(self.configuration)

    def shadow(self, record: dict[str, int]) -> list[BusAccess]:
        """An entry is written, some words in two parts."""
        found = []
        for access in layer_writes(self.configuration, 0, record)[:-1]:
            if self.chance(0.9):
                found.append(access)
                continue
            assert access.data is not None
            strobe = self.below(16)
            data = access.data ^ int(self.random.integers(1 << 32))
            parts = [(strobe, access.data), (0xF & ~strobe, access.data)]
            found.append(access._replace(data=data))
            found += [access._replace(strobe=part, data=word) for part, word in parts]
        return found

    def commit(self) -> list[BusAccess]:
        layer = self.below(self.what.layers)
        old = self.layers[layer]
        settings = self.settings()
        if old is not None and self.chance(0.5) and settings.samples == settings.n:
            settings = settings.model_copy(update={"n": old.n, "n_sub": None, "stride": 1})
        record = settings.record(self.configuration)
        if self.chance(0.06):
            record["valid"] = 0
        self.layers[layer] = settings if record["valid"] else None
        return [*self.shadow(record), self.write("commit", layer)]

    def refused_commit(self) -> list[BusAccess]:
        what = self.what
        layer = self.below(what.layers)
        changes = [
            {"n": 0},
            {"n": what.max_n + 1},
            {"n": 1 << 31 | 5},
            {"eps": 0xB727C5AC},
            {"eps": 0x7F800000},
            {"eps": 0x7FC00001},
            {"slot": what.slots},
            {"skip": 1, "anchor": layer},
            {"skip": 1, "anchor": what.layers},
            {"input_format": 2 if what.int8 else 1},
            {"output_format": 2},
            {"reciprocal_shift": 32},
            {"x_scale": 0},
        ]
        changes += [{"beta": 1}] * (not what.beta) + [{"rmsnorm": 0}] * (not what.layernorm)
        changes += [{"n_sub": 0}, {"first": 1 << 20}] * what.subsampling
        if what.int8:
            bad_scales = (0x80000000, 0xBF800000, 0x00000001, 0x7F800000, 0x7FC00000)
            changes += [{"input_format": 1, "x_scale": scale} for scale in bad_scales]
            changes.append({"output_format": 1, "gamma": 0})
            changes.append({"output_format": 1, "gamma": 1, "cast_before_gamma": 1})
        changes += [{"input_format": 0}, {"output_format": 0}] * what.integer
        change = changes[self.below(len(changes))]
        # The last one is good, but the layer isn't there.
        number = layer if change != {"x_scale": 0} else what.layers + self.below(1 << 30)
        return [*self.shadow(self.any_record() | change), self.write("commit", number)]

    def one_plus(self, beta: bool, slot: int) -> bool:
        return self.what.one_plus_gamma and not beta and slot % 2 == 1

    def write_parameters(self) -> list[BusAccess]:
        """Some parameters, perhaps of a slot that is in use, or beyond the build."""
        what = self.what
        slot, beta = self.below(what.slots + self.chance(0.3)), self.chance(0.5)
        start = self.map["parameter_address"].pack(
            slot=slot,
            beta=int(beta),
            one_plus=int(self.one_plus(beta, slot)),
            index=self.below(what.max_n) if self.chance(0.8) else what.max_n - self.below(8),
        )
        values = stimulus.parameters("wide", 1 + self.below(12), what.parameters.width, self.random)
        return [
            self.write("parameter_address", start),
            *(
                self.write("parameter_data", value, 0xF if self.chance(0.95) else 0)
                for value in values.tolist()
            ),
        ]

    def reads(self, *names: str) -> list[BusAccess]:
        return [BusAccess(self.map[name].address) for name in names]

    def all_counters(self) -> list[BusAccess]:
        return self.reads(
            *_COUNTERS, *(name for name in self.map if name.startswith("row_flags")), "cycles_low"
        )

    def read_counters(self) -> list[BusAccess]:
        names = [
            *_COUNTERS,
            "cycles_low",
            "cycles_high",
            "control",
            "parameter_address",
            "identity",
        ]
        names += [f"row_flags_{self.below(16)}", f"layer_{self._layer_register()}"]
        found = self.reads(*(names[self.below(len(names))] for _ in range(1 + self.below(6))))
        if self.chance(0.05):
            found.append(self.write("control", self.map["control"].pack(clear=1)))
        return found

    def _layer_register(self) -> str:
        names = [name for name in self.map if name.startswith("layer_")]
        return names[self.below(len(names))].removeprefix("layer_")

    def load(self) -> list[BusAccess]:
        number = self.below(self.what.layers + 2)
        return [
            self.write("load", number, 0xF if self.chance(0.9) else self.below(16)),
            *self.reads(
                *(name for name in self.map if name.startswith("layer_") and self.chance(0.3))
            ),
        ]

    def stray(self) -> list[BusAccess]:
        """Addresses without a register, directions that one hasn't, addresses between words, writes with some strobes or none."""
        registers, empty = _registers(self.configuration)
        hollow = sorted(empty)
        plain = [each for each in registers if not each.external and each.name != "control"]
        found = []
        for _ in range(1 + self.below(4)):
            data, strobe = int(self.random.integers(1 << 32)), self.below(16)
            register = plain[self.below(len(plain))]
            outside = registers if self.chance(0.5) else []
            address = hollow[self.below(len(hollow))]
            if self.chance(0.6):
                address = register.address
            address |= self.below(4)
            if self.chance(0.5):
                found.append(BusAccess(address, data, strobe))
            else:
                if outside:
                    address = outside[self.below(len(outside))].address
                found.append(BusAccess(address))
        if self.chance(0.3):
            found.append(self.write("commit", self.below(1 << 30), 0))
        return found
