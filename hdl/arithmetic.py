# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Arithmetic shapes that synthesis does not find by itself: wide adders with short carry chains, shifters, counts, products."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike

from ..numerics import clog2
from .pipe import Pipe, Staged

CARRY_CHAIN = 40
"""Longest carry chain of a wide adder, in bits."""
DIGIT = 17
"""Digit of wide products: with it an unsigned product fits DSP48E2's signed 27 x 18 bits and ECP5's 18 x 18."""
WIDE_DIGIT = 18
"""Digit of the other operand."""


def wide_add(m: Module, name: str, a: ValueLike, b: ValueLike, width: int, carry: ValueLike = 0) -> Value:
    """a + b + carry modulo 2^width as a carry-select adder: no carry chain is longer than CARRY_CHAIN bits."""
    a, b = _extend(a, width), _extend(b, width)
    pieces = -(-width // CARRY_CHAIN)
    step = -(-width // pieces)
    parts: list[Value] = []
    carry = Value.cast(carry)
    for index, low in enumerate(range(0, width, step)):
        high = min(low + step, width)
        size = high - low
        totals = [Signal(size + 1, name=f"{name}_{index}_{c}") for c in ((0, 1) if index else (0,))]
        for value, total in enumerate(totals):
            m.d.comb += total.eq(a[low:high] + b[low:high] + (value if index else carry))
        total = totals[0] if index == 0 else Mux(carry, totals[1], totals[0])
        parts.append(total[:size])
        carry = Signal(name=f"{name}_{index}_carry")
        m.d.comb += carry.eq(total[size])
    return Cat(*parts)


def _extend(value: ValueLike, width: int) -> Value:
    value = Value.cast(value)
    if len(value) >= width:
        return value[:width]
    fill = value[-1] if value.shape().signed else Const(0, 1)
    return Cat(value, *[fill] * (width - len(value)))


def carry_save(m: Module, name: str, rows: Sequence[Value], width: int) -> tuple[Value, Value]:
    """Reduces rows to two with the same sum modulo 2^width, by 3:2 compressors (no carry chain)."""
    rows = [_extend(row, width) for row in rows]
    level = 0
    while len(rows) > 2:
        reduced: list[Value] = []
        for i in range(0, len(rows) - 2, 3):
            a, b, c = rows[i : i + 3]
            total = Signal(width, name=f"{name}_{level}_{i}_sum")
            carry = Signal(width, name=f"{name}_{level}_{i}_carry")
            m.d.comb += [total.eq(a ^ b ^ c), carry.eq((a & b | a & c | b & c) << 1)]
            reduced += [total, carry]
        rows = reduced + rows[len(rows) - len(rows) % 3 :]
        level += 1
    return (rows[0], rows[1]) if len(rows) == 2 else (rows[0], Const(0, width))


def leading_zeros(m: Module, name: str, value: Value) -> Value:
    """Zeros above the most significant one; len(value) for 0."""
    width = 1 << clog2(len(value))
    padded = Cat(Const(-1, width - len(value)), value) if width > len(value) else value
    # pairs of (all zero, count), merged in a tree
    level: list[tuple[Value, list[Value]]] = [(~padded[i], []) for i in range(width)]
    depth = 0
    while len(level) > 1:
        merged: list[tuple[Value, list[Value]]] = []
        for i in range(0, len(level), 2):
            (low_zero, low), (high_zero, high) = level[i], level[i + 1]
            zero = Signal(name=f"{name}_zero_{depth}_{i}")
            count = Signal(depth + 1, name=f"{name}_count_{depth}_{i}")
            m.d.comb += zero.eq(low_zero & high_zero)
            m.d.comb += count.eq(Cat(*[Mux(high_zero, lo, hi) for lo, hi in zip(low, high)], high_zero))
            merged.append((zero, list(count)))
        level, depth = merged, depth + 1
    zero, count_bits = level[0]
    return Cat(*[bit & ~zero for bit in count_bits], zero)


def shift_left(m: Module, name: str, value: Value, amount: Value, width: int) -> Value:
    """value << amount modulo 2^width, fine shifts first: cheapest where the value is narrow and the result wide."""
    for low in range(0, len(amount), 2):
        bits = amount[low : low + 2]
        step = 1 << low
        grown = min(width, len(value) + step * ((1 << len(bits)) - 1))
        shifted = Signal(grown, name=f"{name}_{low}")
        choices = [_shifted(value, k * step, grown) for k in range(1 << len(bits))]
        m.d.comb += shifted.eq(choose(bits, choices))
        value = shifted
    return value


def _shifted(value: Value, distance: int, width: int) -> Value:
    return _extend(Cat(Const(0, distance), value) if distance else value, width)


def top_bits(
    m: Module, name: str, value: Value, amount: Value, width: int, fill: ValueLike = 0
) -> Value:
    """The `width` leading bits of value << amount (in value's own width), coarse shifts first: cheapest where few bits are kept.

    Vacated places get `fill`.
    """
    fill = Value.cast(fill)
    pairs = list(range(0, len(amount), 2))
    for low in reversed(pairs):
        bits = amount[low : low + 2]
        step = 1 << low
        keep = width + step - 1  # bits that finer shifts can still reach
        size = max(len(value), keep)
        value = Cat(*[fill] * (size - len(value)), value) if size > len(value) else value
        choices = [
            Cat(*[fill] * min(k * step, size), value[: max(size - k * step, 0)])[size - keep :]
            for k in range(1 << len(bits))
        ]
        shifted = Signal(keep, name=f"{name}_{low}")
        m.d.comb += shifted.eq(choose(bits, choices))
        value = shifted
    return value if len(value) == width else value[len(value) - width :]


def shift_right_jam(m: Module, name: str, value: Value, amount: Value) -> Value:
    """value >> amount in value's width; the last bit is set if anything was lost."""
    width = len(value)
    lost: Value = Const(0, 1)
    for low in range(0, len(amount), 2):
        bits = amount[low : low + 2]
        step = 1 << low
        choices, losses = [], []
        for k in range(1 << len(bits)):
            distance = min(k * step, width)
            choices.append(_extend(value[distance:], width))
            losses.append(value[:distance].any() if distance else Const(0, 1))
        shifted = Signal(width, name=f"{name}_{low}")
        sticky = Signal(name=f"{name}_{low}_lost")
        m.d.comb += [shifted.eq(choose(bits, choices)), sticky.eq(lost | choose(bits, losses))]
        value, lost = shifted, sticky
    return Cat(value[0] | lost, value[1:])


def choose(select: Value, choices: Sequence[Value]) -> Value:
    """choices[select] as a tree of multiplexers."""
    for bit in select:
        choices = [Mux(bit, high, low) for low, high in zip(choices[::2], choices[1::2])]
    return choices[0]


def partial_products(a_bits: int, b_bits: int) -> tuple[int, int]:
    """Digits of the two operands of a wide product: a in WIDE_DIGIT, b in DIGIT bits."""
    return -(-a_bits // WIDE_DIGIT), -(-b_bits // DIGIT)


def products(pipe: Pipe, name: str, a: Staged, b: Staged) -> list[Staged]:
    """All partial products of a·b, registered: rows whose sum is the product. Products that don't overlap share a row."""
    rows: list[list[tuple[int, Value]]] = []
    left, right = pipe(a), pipe(b)
    a_digits, b_digits = partial_products(len(left), len(right))
    for i in range(a_digits):
        for j in range(b_digits):
            x = left[i * WIDE_DIGIT : (i + 1) * WIDE_DIGIT]
            y = right[j * DIGIT : (j + 1) * DIGIT]
            low = i * WIDE_DIGIT + j * DIGIT
            part = Signal(len(x) + len(y), name=f"{name}_{i}_{j}")
            pipe.m.d.comb += part.eq(x * y)
            for row in rows:
                if all(low >= start + len(v) or low + len(part) <= start for start, v in row):
                    row.append((low, part))
                    break
            else:
                rows.append([(low, part)])
    values = []
    for index, row in enumerate(rows):
        pieces: list[Value] = []
        position = 0
        for low, part in sorted(row, key=lambda item: item[0]):
            pieces += [Const(0, low - position), part] if low > position else [part]
            position = low + len(part)
        values.append(pipe.let(f"{name}_row{index}", Cat(*pieces)))
    return values
