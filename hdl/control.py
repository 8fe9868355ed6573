# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The control plane: registers, layer table, writing of gamma and beta, counters."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import Configuration
from ..flags import ERROR_BITS, RowFlag
from ..layer import record_layout
from ..layout import row_number_bits
from ..numerics import Numerics, clog2
from ..registers import WORD_BITS, RegisterMap, register_map
from .framer import eps_works, last_sample
from .int8 import formats_work
from .predictor import prediction_works
from .registers import AXI_LITE, RegisterBlock, pass_on

Records = Mapping[int, Mapping[str, int]]
"""Layer -> its record (`haan.layer.LayerSettings.record`)."""


def pick(bits: Value, index: Value) -> Value:
    """The bit at a place that is a signal."""
    return Cat(bit & (index == place) for place, bit in enumerate(bits)).any()


def put(m: Module, bits: Signal, index: Value, enable: Value, value: Value) -> None:
    """Changes the bit at a place that is a signal."""
    for place, bit in enumerate(bits):
        with m.If(enable & (index == place)):
            m.d.sync += bit.eq(value)


def table_layout(configuration: Configuration) -> data.StructLayout:
    """An entry of the layer table."""
    return data.StructLayout(record_layout(configuration))


def shadow_layout(registers: RegisterMap) -> data.StructLayout:
    """An entry as it stands in the shadow: with room for more than a build can hold."""
    fields = registers.layer_fields()
    return data.StructLayout(
        {name: sum(field.width for _, field in parts) for name, parts in fields.items()}
    )


class Validator(wiring.Component):
    """Whether the shadow is an entry that works. Latency: 2 cycles.

    Members
    -------
    shadow : the entry
    works : it may be committed, as far as it doesn't depend on other entries
    """

    LATENCY = 2

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.what = configuration.what
        layout = shadow_layout(register_map(configuration))
        super().__init__({"shadow": In(layout), "works": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shadow, what = self.shadow, self.what
        checks = [
            self._fits(),
            self._is_able(),
            (shadow.n != 0) & (shadow.n <= what.max_n),
            shadow.slot < what.slots,
            eps_works(shadow.eps),
        ]
        if what.skipping:
            checks.append(prediction_works(shadow))
        if what.int8:
            checks.append(formats_work(shadow, what))
        if what.subsampling:
            last = last_sample(m, shadow, Numerics(self.configuration).n_bits)
            checks.append((shadow.n_sub != 0) & (last < shadow.n))
        seen = Signal(len(checks))
        m.d.sync += [seen.eq(Cat(checks)), self.works.eq(seen.all())]
        return m

    def _fits(self) -> Value:
        """No field has a bit that the table doesn't hold."""
        widths = record_layout(self.configuration)
        return ~Cat(self.shadow[name][width:] for name, width in widths.items()).any()

    def _is_able(self) -> Value:
        """Nothing is asked for that the build can't do."""
        shadow, what = self.shadow, self.what
        missing = [
            shadow.rmsnorm if not what.rmsnorm else ~shadow.rmsnorm & (not what.layernorm),
            shadow.gamma & (not what.gamma),
            shadow.beta & (not what.beta),
            shadow.cast_before_gamma & (not what.cast_before_gamma),
            (shadow.skip | shadow.keep_isd) & (not what.skipping),
        ]
        if not what.int8:
            missing += [shadow.input_format.any(), shadow.output_format.any()]
        return ~Cat(missing).any()


class LayerTable(wiring.Component):
    """The settings of all layers. Commits take `Validator.LATENCY` cycles and one, loads two.

    Parameters
    ----------
    records : entries that exist from the start. After a reset those of them exist that were never written.

    Members
    -------
    id, entry : the entry of a layer, in the same cycle. Without `valid`, `gamma`, `beta`, `keep_isd` and `skip` are 0.
    shadow : an entry to write
    commit_write, commit_layer : it shall become that of a layer; commit_ack, commit_error : it has, or isn't good
    load_write, load_layer : the entry of a layer is wanted; load_ack, load_error, loaded : it is there, or there is no such layer
    """

    def __init__(self, configuration: Configuration, records: Records | None = None) -> None:
        self.configuration = configuration
        self.records = records or {}
        self.layout = table_layout(configuration)
        super().__init__(
            {
                "id": In(configuration.what.id_bits),
                "entry": Out(self.layout),
                "shadow": In(shadow_layout(register_map(configuration))),
                "commit_write": In(1),
                "commit_layer": In(WORD_BITS),
                "commit_ack": Out(1),
                "commit_error": Out(1),
                "load_write": In(1),
                "load_layer": In(WORD_BITS),
                "load_ack": Out(1),
                "load_error": Out(1),
                "loaded": Out(self.layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = 1 << self.configuration.what.id_bits
        init = [self.records.get(layer, {}) for layer in range(depth)] if self.records else []
        m.submodules.memory = memory = Memory(shape=self.layout, depth=depth, init=init)
        look = memory.read_port(domain="comb")
        # A memory can't be cleared by a reset; these bits of its entries can.
        self.valid, self.skipped = Signal(depth), Signal(depth)
        self._begin()
        entry = look.data
        valid = pick(self.exist, self.id)
        m.d.comb += [
            look.addr.eq(self.id),
            self.entry.eq(entry),
            self.entry.valid.eq(valid),
            *[
                self.entry[name].eq(entry[name] & valid)
                for name in ("gamma", "beta", "keep_isd", "skip")
            ],
        ]
        self._commit(m, memory)
        self._load(m, memory)
        return m

    def _begin(self) -> None:
        """Which layers exist, and which of them skip."""
        self.exist: Value = self.valid
        self.skip: Value = self.skipped
        if self.records:
            # A reset can't bring back what was overwritten: an entry is the first one only until it is written.
            there = sum(1 << layer for layer in self.records)
            skips = sum(record["skip"] << layer for layer, record in self.records.items())
            self.first = Signal(len(self.valid), init=there, reset_less=True)
            self.exist = self.valid | self.first
            self.skip = self.skipped | (self.first & skips)

    def _commit(self, m: Module, memory: Memory) -> None:
        what, shadow = self.configuration.what, self.shadow
        m.submodules.validator = validator = Validator(self.configuration)
        write = memory.write_port()
        layer = Signal(WORD_BITS, reset_less=True)
        steps = Signal(Validator.LATENCY)
        m.d.sync += steps.eq(Cat(self.commit_write, steps))
        with m.If(self.commit_write):
            m.d.sync += layer.eq(self.commit_layer)
        number, anchor = layer[: what.id_bits], shadow.anchor[: what.id_bits]
        is_anchor = (shadow.anchor < what.layers) & (anchor != number)
        is_anchor &= ~pick(self.skip, anchor)
        exists, follows = Signal(reset_less=True), Signal(reset_less=True)
        m.d.sync += [exists.eq(layer < what.layers), follows.eq(~shadow.skip | is_anchor)]
        works = exists & (~shadow.valid | (validator.works & follows))
        m.d.comb += [
            validator.shadow.eq(shadow),
            self.commit_ack.eq(steps[-1]),
            self.commit_error.eq(~works),
            write.addr.eq(number),
            write.en.eq(self.commit_ack & works),
            *[write.data[name].eq(shadow[name]) for name in self.layout.members],
        ]
        put(m, self.valid, number, write.en, shadow.valid)
        put(m, self.skipped, number, write.en, shadow.valid & shadow.skip)
        if self.records:
            put(m, self.first, number, write.en, Const(0, 1))

    def _load(self, m: Module, memory: Memory) -> None:
        what = self.configuration.what
        read = memory.read_port()
        valid = Signal(reset_less=True)
        exists = Signal(reset_less=True)
        number = self.load_layer[: what.id_bits]
        m.d.comb += [
            read.addr.eq(number),
            read.en.eq(self.load_write),
            self.load_error.eq(~exists),
            self.loaded.eq(read.data),
            self.loaded.valid.eq(valid),
        ]
        m.d.sync += [
            self.load_ack.eq(self.load_write),
            exists.eq(self.load_layer < what.layers),
            valid.eq(pick(self.exist, number)),
        ]


class SlotsInFlight(wiring.Component):
    """Which slots of gamma and beta the rows inside use: for each slot the last row that used it is kept, by number.

    Members
    -------
    begins, begin_uses, begin_slot : a row comes in, and whether it uses a slot's parameters; `row` is its number
    ends, end_uses, end_slot : a row has left, `left` is its number
    slot, busy : a row inside uses this slot
    """

    def __init__(self, slot_bits: int, row_bits: int) -> None:
        self.slot_bits, self.row_bits = slot_bits, row_bits
        super().__init__(
            {
                "begins": In(1),
                "begin_uses": In(1),
                "begin_slot": In(slot_bits),
                "row": In(row_bits),
                "ends": In(1),
                "end_uses": In(1),
                "end_slot": In(slot_bits),
                "left": In(row_bits),
                "slot": In(slot_bits),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = 1 << self.slot_bits
        m.submodules.last_users = last_users = Memory(shape=self.row_bits, depth=depth, init=[])
        write, read = last_users.write_port(), last_users.read_port(domain="comb")
        busy = Signal(depth)
        m.d.comb += [
            write.en.eq(self.begins & self.begin_uses),
            write.addr.eq(self.begin_slot),
            write.data.eq(self.row),
            read.addr.eq(self.end_slot),
            self.busy.eq(pick(busy, self.slot)),
        ]
        was_last = self.ends & self.end_uses & (read.data == self.left)
        put(m, busy, self.end_slot, was_last, Const(0, 1))
        put(m, busy, self.begin_slot, write.en, Const(1, 1))
        return m


class Control(wiring.Component):
    """Registers, layer table, parameter writes and counters beside the two streams, which it watches at the outside.

    Parameters
    ----------
    records : layers that exist from the start

    Members
    -------
    aw*, w*, b*, ar*, r* : AXI4-Lite
    in_valid, in_ready, in_last, in_id : the input stream; `entry` : the layer table's entry of in_id, in the same cycle
    hold : the input must not take a beat
    out_valid, out_ready, out_last, out_flags : the output stream; out_parameters, out_slot : the row uses gamma or beta of a slot
    parameter_* : one parameter a cycle for the core
    sum_active, root_active : counted; isd_clear, isd_clearing : of the core (without skipping unused)
    """

    def __init__(self, configuration: Configuration, records: Records | None = None) -> None:
        self.configuration = configuration
        self.records = records
        self.what = configuration.what
        super().__init__(
            AXI_LITE
            | {
                "in_valid": In(1),
                "in_ready": In(1),
                "in_last": In(1),
                "in_id": In(self.what.id_bits),
                "entry": Out(table_layout(configuration)),
                "hold": Out(1),
                "out_valid": In(1),
                "out_ready": In(1),
                "out_last": In(1),
                "out_flags": In(ERROR_BITS),
                "out_parameters": In(1),
                "out_slot": In(self.what.slot_bits),
                "sum_active": In(1),
                "root_active": In(1),
                "isd_clear": Out(1),
                "isd_clearing": In(1),
                "parameter_valid": Out(1),
                "parameter_beta": Out(1),
                "parameter_slot": Out(self.what.slot_bits),
                "parameter_index": Out(max(1, clog2(self.what.max_n))),
                "parameter_data": Out(self.what.parameters.width),
                "parameter_one_plus": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.registers = block = RegisterBlock(self.configuration)
        pass_on(m, block, self)
        m.submodules.layers = layers = LayerTable(self.configuration, self.records)
        m.d.comb += [layers.id.eq(self.in_id), self.entry.eq(layers.entry)]
        self._connect_table(m, block, layers)
        begins, ends, row, left = self._watch(m, block)
        self._count(m, block, begins, ends)
        busy = self._find_busy_slots(m, block, begins, ends, row, left)
        self._write_parameters(m, block, busy)
        return m

    def _connect_table(self, m: Module, block: RegisterBlock, layers: LayerTable) -> None:
        for name in ("commit", "load"):
            m.d.comb += [
                getattr(layers, f"{name}_write").eq(getattr(block, f"{name}_write")),
                getattr(layers, f"{name}_layer").eq(getattr(block, f"{name}_data")),
                getattr(block, f"{name}_ack").eq(getattr(layers, f"{name}_ack")),
                getattr(block, f"{name}_error").eq(getattr(layers, f"{name}_error")),
            ]
        for name, parts in register_map(self.configuration).layer_fields().items():
            ports = [f"{register.name}_{field.name}" for register, field in parts]
            m.d.comb += layers.shadow[name].eq(Cat(getattr(block, port) for port in ports))
            m.d.comb += Cat(getattr(block, f"{port}_next") for port in ports).eq(
                layers.loaded[name]
            )
            for port in ports:
                m.d.comb += getattr(block, f"{port}_we").eq(layers.load_ack & ~layers.load_error)

    def _watch(self, m: Module, block: RegisterBlock) -> tuple[Signal, Signal, Signal, Signal]:
        """(a row begins, a row has left, their numbers), and FLUSH."""
        bits = row_number_bits(self.configuration)
        row, left = Signal(bits), Signal(bits)
        inside, begins, ends = Signal(), Signal(), Signal()
        takes = self.in_valid & self.in_ready
        m.d.comb += [
            begins.eq(takes & ~inside),
            ends.eq(self.out_valid & self.out_ready & self.out_last),
        ]
        with m.If(takes):
            m.d.sync += inside.eq(~self.in_last)
        m.d.sync += [row.eq(row + begins), left.eq(left + ends)]
        idle = ~inside & (row == left)
        stops = block.control_flush | block.control_isd_clear
        m.d.comb += [
            block.rows_in_flight_count_next.eq((row - left)[: len(row)]),
            block.status_idle_next.eq(idle),
            block.status_flushing_next.eq(stops),
            self.hold.eq(stops & ~inside),
            block.control_flush_hwclr.eq(idle),
        ]
        # What is kept is forgotten only when no row is inside that could still keep something.
        asked = Signal()
        forgets = block.control_isd_clear & idle
        m.d.sync += asked.eq(forgets)
        m.d.comb += [
            self.isd_clear.eq(forgets & ~asked),
            block.control_isd_clear_hwclr.eq(forgets & asked & ~self.isd_clearing),
        ]
        return begins, ends, row, left

    def _count(self, m: Module, block: RegisterBlock, begins: Signal, ends: Signal) -> None:
        cycles = Signal(2 * WORD_BITS)
        latched = Signal(WORD_BITS)
        events = {
            "rows_in": begins,
            "rows_out": ends,
            "stall_in": self.in_valid & ~self.in_ready,
            "stall_out": self.out_valid & ~self.out_ready,
            "sum_cycles": self.sum_active,
            "roots": self.root_active,
        }
        events |= {
            f"row_flags_{place}": ends & self.out_flags[place] for place in range(len(RowFlag))
        }
        m.d.sync += cycles.eq(cycles + 1)
        counts = {name: Signal(WORD_BITS, name=f"{name}_total") for name in events}
        for name, event in events.items():
            with m.If(event):
                m.d.sync += counts[name].eq(counts[name] + 1)
            m.d.comb += getattr(block, f"{name}_count_next").eq(counts[name])
        with m.If(block.control_clear):
            m.d.sync += [count.eq(0) for count in (cycles, *counts.values())]
        with m.If(block.cycles_low_count_swacc):
            m.d.sync += latched.eq(cycles[WORD_BITS:])
        m.d.comb += [
            block.cycles_low_count_next.eq(cycles[:WORD_BITS]),
            block.cycles_high_count_next.eq(latched),
        ]

    def _find_busy_slots(
        self,
        m: Module,
        block: RegisterBlock,
        begins: Signal,
        ends: Signal,
        row: Signal,
        left: Signal,
    ) -> Value:
        if not self.what.gamma:
            return Const(0, 1)
        m.submodules.slots = slots = SlotsInFlight(self.what.slot_bits, len(row))
        m.d.comb += [
            slots.begins.eq(begins),
            slots.begin_uses.eq(self.entry.gamma | self.entry.beta),
            slots.begin_slot.eq(self.entry.slot),
            slots.row.eq(row),
            slots.ends.eq(ends),
            slots.end_uses.eq(self.out_parameters),
            slots.end_slot.eq(self.out_slot),
            slots.left.eq(left),
            slots.slot.eq(block.parameter_address_slot),
        ]
        return slots.busy

    def _write_parameters(self, m: Module, block: RegisterBlock, busy: Value) -> None:
        what = self.what
        index, slot = block.parameter_address_index, block.parameter_address_slot
        beta, one_plus = block.parameter_address_beta, block.parameter_address_one_plus
        able = Mux(beta, what.beta, what.gamma) & (~one_plus | what.one_plus_gamma)
        there = able & (index < what.max_n) & (slot < what.slots)
        writes = Signal()
        m.d.comb += [
            writes.eq(block.parameter_data_write & there & ~busy),
            block.parameter_data_ack.eq(block.parameter_data_write),
            block.parameter_data_error.eq(~(there & ~busy)),
            block.parameter_address_index_we.eq(writes),
            block.parameter_address_index_next.eq(index + 1),
            self.parameter_valid.eq(writes),
            self.parameter_beta.eq(beta),
            self.parameter_slot.eq(slot),
            self.parameter_index.eq(index),
            self.parameter_data.eq(block.parameter_data_data),
            self.parameter_one_plus.eq(one_plus),
        ]
