# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What the registers of `haan_axi` must have answered in a run, and which settings and parameters each row met: `docs/registers.md`."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import numpy as np

from ..config import Configuration
from ..golden import Slot, acceptable, accepted_settings
from ..layer import LayerSettings, float32_bits, record_layout
from ..registers import Register, register_map
from .jobs import Answer, AxiRecord, Beat, BusAccess
from .rows import ParameterVector, Row

_OKAY, _SLVERR = 0, 2
_Record = dict[str, int]


class Replay:
    """Goes through a run in the order of its cycles.

    In a cycle, what is read and what a row finds in the layer table are as they were before it; then writes act. A slot is in use from the
    cycle after a row's first beat up to that of its answer's last beat.

    Members, after `run`
    --------------------
    settings : of each row, with `slot` naming one of `slots`
    met : the rows, each with the record that its layer had
    slots : contents that slots had while rows used them
    kinds : accesses by kind
    """

    def __init__(
        self,
        configuration: Configuration,
        rows: Sequence[Row],
        beats: Sequence[Beat],
        parameters: Sequence[ParameterVector],
        record: AxiRecord,
    ) -> None:
        self.configuration, self.what = configuration, configuration.what
        self.map = register_map(configuration)
        self.at = {register.address: register for register in self.map.values()}
        self.words = {
            register.name: sum((field.reset or 0) << field.low for field in register.fields)
            for register in self.map.values()
        }
        self.rows = rows
        self.beats, self.record = beats, record
        self.table: dict[int, _Record] = {}
        self.settings: list[LayerSettings | None] = []
        self.met: list[Row] = []
        self.slots: dict[int, Slot] = {}
        self.kinds: Counter[str] = Counter()
        self.known: dict[object, LayerSettings | None] = {}
        width = {16: np.uint16, 32: np.uint32}[self.what.parameters.width]
        self.contents = np.zeros((2, self.what.slots, self.what.max_n), dtype=width)
        self.one_plus = {
            vector.slot: vector.one_plus for vector in parameters if vector.kind == "gamma"
        }
        self.version: dict[int, int] = {}
        self.uses: dict[int, int] = {}
        self._events()

    def _events(self) -> None:
        """When rows begin and end, and what else counters count."""
        self.starts, self.whole = [], []
        inside = False
        for beat, cycle in zip(self.beats, self.record.accepted, strict=True):
            if not inside:
                self.starts.append(cycle)
            if beat.last:
                self.whole.append(cycle)
            inside = not beat.last
        self.ends = [beat.cycle for beat in self.record.seen if beat.last]
        flags = [beat.user >> self.what.token_bits for beat in self.record.seen if beat.last]
        self.events = {
            "rows_in": self.starts,
            "rows_out": self.ends,
            "stall_in": self.record.waited_in,
            "stall_out": self.record.waited_out,
        } | {
            f"row_flags_{bit}": [
                cycle for cycle, each in zip(self.ends, flags, strict=True) if each >> bit & 1
            ]
            for bit in range(16)
        }
        self.cleared: list[int] = []

    def run(self, accesses: Sequence[BusAccess], answers: Sequence[Answer]) -> str:
        """Replays all; the first wrong answer in a sentence, or ""."""
        happenings: list[tuple[int, int, int]] = []
        for index, (access, (_, _, cycle)) in enumerate(zip(accesses, answers, strict=True)):
            late = access.delays.r if access.data is None else access.delays.b
            # An answer is there in the cycle after what it tells of.
            happenings.append((cycle - late - 1, 0 if access.data is None else 2, index))
        happenings += [(cycle, 1, index) for index, cycle in enumerate(self.starts)]
        happenings += [(cycle, 3, index) for index, cycle in enumerate(self.ends)]
        happenings.sort()
        wrong = ""
        for cycle, group in groupby(happenings, key=itemgetter(0)):
            begun: list[int] = []
            for _, kind, index in group:
                if kind == 1:
                    self._begin(index)
                    begun.append(index)
                elif kind == 3:
                    self._use(begun)
                    begun = []
                    self._end(index)
                else:
                    access = accesses[index]
                    want = self._read(access, cycle) if kind == 0 else self._write(access, cycle)
                    got = answers[index]
                    if not wrong and (got[0] != want[0] or want[1] not in (None, got[1])):
                        wrong = (
                            f"access {index}, {access}: response {got[0]}, data {got[1]:#x} came in cycle {got[2]}, "
                            f"but {want[0]}, {'any' if want[1] is None else hex(want[1])} is right"
                        )
            self._use(begun)
        return wrong

    # Rows

    def _begin(self, index: int) -> None:
        """A row takes the entry of its layer."""
        row = self.rows[index]
        record = self.table.get(row.ids.get(0, row.layer), {"valid": 0})
        self.met.append(replace(row, fields=record))
        # Without INT8 it doesn't matter.
        x_scale = float32_bits(row.x_scale) if self.what.int8 else 0
        key = tuple(record.items()), x_scale
        if key not in self.known:
            self.known[key] = (
                accepted_settings(record, self.configuration, x_scale) if record["valid"] else None
            )
        self.settings.append(self.known[key])

    def _use(self, begun: Sequence[int]) -> None:
        """Rows use the parameters as they are after the writes of this cycle."""
        for index in begun:
            settings = self.settings[index]
            if settings is None or settings.affine == "none":
                continue
            slot = settings.slot
            self.uses[index] = slot
            if slot not in self.version:
                self.version[slot] = len(self.slots)
                gamma, beta = (each[slot].copy() for each in self.contents)
                number = np.float32 if self.contents.itemsize == 4 else np.float16
                self.slots[self.version[slot]] = Slot(
                    gamma.view(number), beta.view(number), self.one_plus.get(slot, False)
                )
            self.settings[index] = settings.model_copy(update={"slot": self.version[slot]})

    def _end(self, index: int) -> None:
        self.uses.pop(index, None)

    # Registers

    def _read(self, access: BusAccess, cycle: int) -> tuple[int, int | None]:
        register = self.at.get(access.address & ~3)
        if register is None or not register.readable:
            self.kinds["read refused"] += 1
            return _SLVERR, None
        self.kinds["read"] += 1
        if register.name in ("sum_cycles", "roots"):
            return _OKAY, None
        if register.name in self.events:
            return _OKAY, self._count(self.events[register.name], cycle)
        inside = self._before(self.starts, cycle) - self._before(self.ends, cycle)
        begun = self._before(self.starts, cycle) - self._before(self.whole, cycle)
        live: Mapping[str, Callable[[], int]] = {
            "rows_in_flight": lambda: inside,
            "status": lambda: int(not inside and not begun),
            "cycles_low": lambda: cycle - 1 - self._last_clear(cycle),
            "cycles_high": lambda: 0,
        }
        if register.name in live:
            return _OKAY, live[register.name]()
        readable = sum(field.mask for field in register.fields if field.readable)
        return _OKAY, self.words[register.name] & readable

    def _last_clear(self, cycle: int) -> int:
        place = bisect_left(self.cleared, cycle)
        # Before the first clear, which belongs to the setup, nothing is read.
        return self.cleared[place - 1]

    @staticmethod
    def _before(events: Sequence[int], cycle: int) -> int:
        return bisect_left(events, cycle)

    def _count(self, events: Sequence[int], cycle: int) -> int:
        """Events since the counters were cleared; what happens in that very cycle isn't counted."""
        return self._before(events, cycle) - self._before(events, self._last_clear(cycle) + 1)

    def _write(self, access: BusAccess, cycle: int) -> tuple[int, int | None]:
        register = self.at.get(access.address & ~3)
        if register is None or not register.writable:
            self.kinds["write refused"] += 1
            return _SLVERR, None
        assert access.data is not None
        strobed = sum(0xFF << 8 * byte for byte in range(4) if access.strobe >> byte & 1)
        data = access.data & strobed
        if not register.external:
            return self._plain(register, data, strobed, cycle)
        if not access.strobe:
            self.kinds["write without strobes"] += 1
            return _OKAY, None
        act = {"commit": self._commit, "load": self._load, "parameter_data": self._parameter}
        name = register.name.removesuffix("_data")
        kind, works = act[register.name](data)
        self.kinds[f"{name}{kind}"] += 1
        return _OKAY if works else _SLVERR, None

    def _plain(self, register: Register, data: int, strobed: int, cycle: int) -> tuple[int, None]:
        self.kinds["write"] += 1
        if register.name == "control":
            if data & register.field("clear").mask:
                self.kinds["clear"] += 1
                self.cleared.append(cycle + 1)
            return _OKAY, None
        mask = strobed & sum(field.mask for field in register.fields if field.writable)
        self.words[register.name] = self.words[register.name] & ~mask | data & mask
        return _OKAY, None

    def _commit(self, layer: int) -> tuple[str, bool]:
        record = self.map.layer_record(self.words)
        if not self._works(layer, record):
            return " refused", False
        layout = record_layout(self.configuration)
        self.table[layer] = {
            name: record[name] & (1 << width) - 1 for name, width in layout.items()
        }
        return "", True

    def _works(self, layer: int, record: _Record) -> bool:
        """The rules of COMMIT in `registers.rdl`."""
        what = self.what
        if layer >= what.layers:
            return False
        if not record["valid"]:
            return True
        anchor = record["anchor"]
        follows = self.table.get(anchor, {"valid": 0, "skip": 0})
        return (
            all(
                not record[name] >> width
                for name, width in record_layout(self.configuration).items()
            )
            and acceptable(record, self.configuration)
            and record["slot"] < what.slots
            and (record["rmsnorm"] == 0 or what.rmsnorm)
            and (record["rmsnorm"] == 1 or what.layernorm)
            and record["gamma"] <= what.gamma
            and record["beta"] <= what.beta
            and record["cast_before_gamma"] <= what.cast_before_gamma
            and record["skip"] | record["keep_isd"] <= what.skipping
            and (what.int8 or record["input_format"] == record["output_format"] == 0)
            and not (
                record["skip"]
                and (
                    anchor >= what.layers
                    or anchor == layer
                    or (follows["valid"] and follows["skip"])
                )
            )
        )

    def _load(self, layer: int) -> tuple[str, bool]:
        if layer >= self.what.layers:
            return " refused", False
        never = dict.fromkeys(record_layout(self.configuration), 0)
        self.words |= self.map.layer_words(self.table.get(layer, never))
        return "", True

    def _parameter(self, data: int) -> tuple[str, bool]:
        what = self.what
        address = self.map["parameter_address"].unpack(self.words["parameter_address"])
        beta, slot, index = address["beta"], address["slot"], address["index"]
        if (
            not (what.beta if beta else what.gamma)
            or slot >= what.slots
            or index >= what.max_n
            or address["one_plus"] > what.one_plus_gamma
        ):
            return " refused", False
        if slot in self.uses.values():
            return " refused in flight", False
        self.contents[beta, slot, index] = data & (1 << what.parameters.width) - 1
        self.version.pop(slot, None)
        places = self.map["parameter_address"].field("index")
        self.words["parameter_address"] &= ~places.mask
        self.words["parameter_address"] |= (index + 1) << places.low & places.mask
        return "", True
