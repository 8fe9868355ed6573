# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""What a build gives, before any synthesis: cycles, memory and multipliers, computed from the configuration and a row's settings."""

from dataclasses import asdict, dataclass

from rich.table import Table

from .config import Configuration, ConfigurationError
from .formats import FP16, FP32, INT8
from .golden import Packet, passages
from .latency import row_products
from .layer import LayerSettings
from .layout import Memory, memories
from .numerics import (
    D_BITS,
    INTEGER_ISD_BITS,
    INTEGER_PARAMETER_BITS,
    ISD_BITS,
    VARIANCE_BITS,
    Numerics,
)
from .products import Products

BlockShape = tuple[int, int]
"""Bits of a word, words."""

DP16KD: list[BlockShape] = [(36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384)]
"""Shapes of ECP5's block RAM with a write and a read port, and of half of UltraScale+'s RAMB36."""
SQUARE_BITS = 14
"""Operands of a statistics lane's multiplier: a significand, shifted by up to three places; with INT8 alone the element."""


def blocks(memory: Memory, shapes: list[BlockShape]) -> int:
    """The fewest block RAMs of one shape that hold a memory; none if it can't be made of them."""
    if memory.immediate:
        return 0
    return memory.count * min(
        -(-memory.width // width) * -(-memory.depth // depth) for width, depth in shapes
    )


@dataclass(frozen=True)
class MemoryEstimate:
    """A kind of memory of the build."""

    name: str
    width: int
    depth: int
    count: int
    immediate: bool
    """Read in the same cycle: always made of LUTs."""
    bits: int
    """Of all."""
    dp16kd: int
    """ECP5 block RAMs, if it were made of these. Tools make small memories of LUTs."""
    ramb36: float
    """UltraScale+ block RAMs; a RAMB18 is half of one."""

    @classmethod
    def of(cls, memory: Memory) -> "MemoryEstimate":
        halves = blocks(memory, DP16KD)
        return cls(**asdict(memory), bits=memory.bits, dp16kd=halves, ramb36=halves / 2)


@dataclass(frozen=True)
class Estimate:
    """Figures of a build and of equal rows through it. Cycles are clock cycles."""

    configuration: str
    mode: str
    n: int
    n_sub: int
    mhz: float
    cycles_per_row: int
    """From one row to the next, when rows are equal and neither source nor sink waits."""
    latency_cycles: int
    """From idle, first beat in to last beat out."""
    rows_per_second: float
    latency_us: float
    limited_by: str
    """What takes as many cycles as the interval: `output`, `statistics`, `isd_interval` or `bus`."""
    skipped_cycles_per_row: int | None
    """From one row to the next, if their ISDs are predicted from ones that are known when they come. None: the build can't, or the rows
    take statistics anyway (LayerNorm)."""
    skipped_latency_cycles: int | None
    """Of such a row, from idle."""
    beats_per_row: int
    """On the bus, in; as many out where the formats are equal."""
    bytes_per_row: int
    """Likewise."""
    bytes_per_second: float
    """Likewise."""
    bubble_free_n: int | None
    """The smallest N of which a beat leaves in every cycle; None: no N up to max_n."""
    memories: list[MemoryEstimate]
    memory_bits: int
    dp16kd: int
    ramb36: float
    memory_bits_for_n: int
    """Of a build for rows of up to N elements."""
    multipliers: dict[str, int]
    """Unit -> multipliers, a MULT18X18D or a DSP48E2 each."""
    mult18x18d: int
    dsp48e2: int


def estimate(configuration: Configuration, settings: LayerSettings, mhz: float = 100.0) -> Estimate:
    """Raises ConfigurationError where the build can't do what the settings ask, or for a clock that is none."""
    settings.check(configuration)
    if not 0 < mhz < float("inf"):
        raise ConfigurationError(f"mhz = {mhz}: a clock is a positive number of MHz")
    found = [MemoryEstimate.of(memory) for memory in memories(configuration)]
    multipliers = {
        kind: multiplier_counts(configuration, multiplier)
        for kind, multiplier in _MULTIPLIERS.items()
    }
    cycles, latency = interval(configuration, settings), row_latency(configuration, settings)
    octets = _octets(settings, settings.input_format)
    rows = mhz * 1e6 / cycles
    skips = configuration.what.skipping and settings.mode == "rmsnorm"
    return Estimate(
        configuration=configuration.name,
        mode=settings.mode,
        n=settings.n,
        n_sub=settings.samples,
        mhz=mhz,
        cycles_per_row=cycles,
        latency_cycles=latency,
        rows_per_second=rows,
        latency_us=latency / mhz,
        limited_by=_limit(configuration, settings),
        skipped_cycles_per_row=skipped_interval(configuration, settings) if skips else None,
        skipped_latency_cycles=(
            row_latency(configuration, settings, skipped=True) if skips else None
        ),
        beats_per_row=_bus_beats(configuration, octets),
        bytes_per_row=octets,
        bytes_per_second=rows * octets,
        bubble_free_n=bubble_free_n(configuration, settings),
        memories=found,
        memory_bits=sum(memory.bits for memory in found),
        dp16kd=sum(memory.dp16kd for memory in found),
        ramb36=sum(memory.ramb36 for memory in found),
        memory_bits_for_n=memory_bits(_for_rows(configuration, settings.n)),
        multipliers=multipliers["MULT18X18D"],
        mult18x18d=sum(multipliers["MULT18X18D"].values()),
        dsp48e2=sum(multipliers["DSP48E2"].values()),
    )


# Cycles


def _beats(configuration: Configuration, n: int) -> int:
    return -(-n // configuration.how.p_n)


def _octets(settings: LayerSettings, element: str) -> int:
    """Bytes of a row of elements of a format."""
    return settings.n * (INT8 if element == INT8.name else FP16).width // 8


def _bus_beats(configuration: Configuration, octets: int) -> int:
    return -(-octets // configuration.bus)


def feed_cycles(configuration: Configuration, settings: LayerSettings) -> int:
    """Cycles for which the statistics unit is fed with a row: groups of p_d·min(stride, p_n/p_d) neighbours that hold samples."""
    how = configuration.how
    if settings.stride > how.p_n:
        return settings.samples
    group = how.p_d * min(settings.stride, how.p_n // how.p_d)
    last = settings.first + settings.stride * (settings.samples - 1)
    return last // group - settings.first // group + 1


def _takes(configuration: Configuration, settings: LayerSettings) -> dict[str, int]:
    """Part -> cycles that it needs for a row."""
    return {
        "output": _beats(configuration, settings.n),
        "statistics": feed_cycles(configuration, settings),
        "isd_interval": configuration.how.isd_interval,
        "bus": max(
            _bus_beats(configuration, _octets(settings, element))
            for element in (settings.input_format, settings.output_format)
        ),
    }


def interval(configuration: Configuration, settings: LayerSettings) -> int:
    """Cycles from one row to the next."""
    return max(_takes(configuration, settings).values())


def _limit(configuration: Configuration, settings: LayerSettings) -> str:
    takes = _takes(configuration, settings)
    return max(takes, key=lambda part: takes[part])


def skipped_interval(configuration: Configuration, settings: LayerSettings) -> int:
    """The same of rows that take no statistics."""
    takes = _takes(configuration, settings)
    return max(takes["output"], takes["bus"])


def row_latency(
    configuration: Configuration, settings: LayerSettings, *, skipped: bool = False
) -> int:
    """From the transfer of a row's first beat to that of its result's last one, from idle."""
    if skipped:
        settings = settings.model_copy(update={"skip": True, "keep_isd": False})
    inside = (
        _beats(configuration, settings.n)
        if settings.int8_input and configuration.what.mixed
        else None
    )
    beats = _bus_beats(configuration, _octets(settings, settings.input_format))
    row = Packet(beats, settings, predicted=skipped, inside=inside)
    (passage,) = passages(configuration, [row], [True], [True])
    return passage.out_cycles[-1] - passage.in_cycles[0]


def bubble_free_n(configuration: Configuration, settings: LayerSettings) -> int | None:
    """The smallest N from which on output alone sets the interval: with the settings' N_sub, or with all elements sampled."""
    whole = settings.samples == settings.n
    start = 1 if whole else settings.first + settings.stride * (settings.samples - 1) + 1
    for n in range(start, configuration.what.max_n + 1):
        row = settings.model_copy(update={"n": n, "n_sub": n if whole else settings.n_sub})
        if interval(configuration, row) == _beats(configuration, n):
            return n
    return None


# Memory


def memory_bits(configuration: Configuration) -> int:
    return sum(memory.bits for memory in memories(configuration))


def _for_rows(configuration: Configuration, n: int) -> Configuration:
    """The build with rows of up to n elements."""
    n_sub = configuration.what.n_sub
    return configuration.with_(max_n=n, n_sub=None if n_sub is None else min(n_sub, n))


# Multipliers


@dataclass(frozen=True)
class Multiplier:
    """A kind of multiplier."""

    a_bits: int
    """Of its wider operand, signed."""
    b_bits: int
    least: int
    """The least width of a product for which a tool takes one; a product with a single bit is none."""

    def parts(self, a_bits: int, b_bits: int) -> list[tuple[int, int]]:
        """Widths of the operands of those that a product of signed ones takes; b is not the wider one."""
        return [(a, b) for a in _digits(a_bits, self.a_bits) for b in _digits(b_bits, self.b_bits)]


def _digits(width: int, most: int) -> list[int]:
    """Widths of the digits of a signed operand: a bit of the lower ones is lost to the sign."""
    if width <= most:
        return [width]
    return [most, *_digits(width - most + 1, most)]


_MULTIPLIERS = {"MULT18X18D": Multiplier(18, 18, 0), "DSP48E2": Multiplier(27, 18, 9)}


def multiplier_counts(
    configuration: Configuration, multiplier: Multiplier = _MULTIPLIERS["MULT18X18D"]
) -> dict[str, int]:
    """Unit -> multipliers."""
    what, how = configuration.what, configuration.how
    if what.integer:
        # The ISD is unsigned; x-hat has a place for -2^25 and one for 2^25.
        products = [(INTEGER_ISD_BITS + 1, INT8.width)]
        products.append((INTEGER_ISD_BITS + 2, INTEGER_PARAMETER_BITS))
        lane = [part for product in products for part in multiplier.parts(*product)]
        square = INT8.width
    else:
        # None is wider than a multiplier of either kind.
        lane = [(D_BITS, ISD_BITS)]
        lane += [(D_BITS, Numerics(configuration).gamma_bits)] * what.gamma
        square = SQUARE_BITS
    row = [
        widths
        for a_bits, b_bits in row_products(configuration)
        for widths in how.products.operand_widths(a_bits, b_bits)
    ]
    units: dict[str, list[tuple[int, int]]] = {
        "normalization": lane * how.p_n,
        "statistics": [(square, square)] * how.p_d,
        "row": row,
    }
    if what.skipping:
        units["prediction"] = [(ISD_BITS, FP32.significand_bits // 2)] * 2
        if what.int8:
            # Rows that are predicted may follow each other at once: nothing is shared.
            units["prediction"] += Products().operand_widths(VARIANCE_BITS, VARIANCE_BITS)
    return {
        unit: sum(min(a, b) > 1 and a + b >= multiplier.least for a, b in widths)
        for unit, widths in units.items()
    }


# For the terminal


def as_table(figures: Estimate) -> Table:
    """The estimate for a terminal."""
    table = Table(title=f"{figures.configuration}, estimated", show_header=False)
    samples = "" if figures.n_sub == figures.n else f", statistics from {figures.n_sub}"
    bubble = figures.bubble_free_n
    skipped = (
        f"{figures.skipped_cycles_per_row} cycles a row, latency {figures.skipped_latency_cycles}"
    )
    for name, text in (
        ("Rows", f"N = {figures.n} ({figures.mode}{samples})"),
        ("Cycles a row", f"{figures.cycles_per_row}, limited by {figures.limited_by}"),
        ("Latency", f"{figures.latency_cycles} cycles, first beat in to last beat out"),
        *[("  with a known anchor", skipped)] * (figures.skipped_latency_cycles is not None),
        ("Beats, bytes a row", f"{figures.beats_per_row}, {figures.bytes_per_row} each way"),
        (
            f"At {figures.mhz:g} MHz",
            f"{figures.rows_per_second:,.0f} rows/s, {figures.bytes_per_second / 1e9:.3g} GB/s each way, "
            f"latency {figures.latency_us:.3g} µs",
        ),
        ("Smallest N without a bubble", "none" if bubble is None else f"{bubble}"),
    ):
        table.add_row(name, text)
    table.add_section()
    for memory in figures.memories:
        many = f"{memory.count} × " if memory.count > 1 else ""
        table.add_row(
            memory.name.capitalize() if memory.name.islower() else memory.name,
            f"{many}{memory.depth} × {memory.width} bits: {memory.bits:,} bits",
        )
    table.add_row(
        "Memory",
        f"{figures.memory_bits:,} bits: {figures.dp16kd} DP16KD or {figures.ramb36:g} RAMB36",
    )
    table.add_row(f"  built for N = {figures.n} alone", f"{figures.memory_bits_for_n:,} bits")
    table.add_section()
    units = ", ".join(f"{unit} {count}" for unit, count in figures.multipliers.items())
    table.add_row(
        "Multipliers", f"{figures.mult18x18d} MULT18X18D ({units}) or {figures.dsp48e2} DSP48E2"
    )
    return table
