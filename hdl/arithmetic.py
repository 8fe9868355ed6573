# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Arithmetic shapes that synthesis does not find by itself: wide adders with short carry chains, shifters, counts, products."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, ValueLike

from ..numerics import clog2
from ..products import DIGIT, WIDE_DIGIT
from .pipe import Pipe, Staged

CARRY_CHAIN = 44
"""Longest carry chain of a wide adder, in bits."""


def named(m: Module, name: str, value: ValueLike) -> Signal:
    """A value as a signal of its own. A value that many places use, or use parts of, would be repeated whole in each of them."""
    signal = Signal(Value.cast(value).shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


def wide_add(
    m: Module, name: str, a: ValueLike, b: ValueLike, width: int, carry: ValueLike = 0
) -> Value:
    """a + b + carry modulo 2^width as a carry-select adder: no carry chain is longer than CARRY_CHAIN bits."""
    a, b = _extend(a, width), _extend(b, width)
    parts: list[Value] = []
    carry = Value.cast(carry)
    for index, low in enumerate(range(0, width, CARRY_CHAIN)):
        high = min(low + CARRY_CHAIN, width)
        size = high - low
        totals = [Signal(size + 1, name=f"{name}_{index}_{c}") for c in ((0, 1) if index else (0,))]
        for value, total in enumerate(totals):
            carry_in = Const(value, 1) if index else carry
            m.d.comb += total.eq(add_carry(a[low:high], b[low:high], carry_in, size + 1))
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


def above(value: Value, limit: int) -> Value:
    """value > limit; a plain 0 where the value's width already says so, which linters take for a mistake else."""
    return Const(0, 1) if limit >= (1 << len(value)) - 1 else value > limit


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
            m.d.comb += count.eq(
                Cat(*[Mux(high_zero, lo, hi) for lo, hi in zip(low, high, strict=True)], high_zero)
            )
            merged.append((zero, list(count)))
        level, depth = merged, depth + 1
    zero, count_bits = level[0]
    return Cat(*[bit & ~zero for bit in count_bits], zero)


def shift_left(
    m: Module, name: str, value: Value, amount: Value, width: int, unit: int = 1
) -> Value:
    """value << (amount·unit) modulo 2^width, fine shifts first: cheapest where the value is narrow and the result wide."""
    for low in range(0, len(amount), 2):
        bits = amount[low : low + 2]
        step = unit << low
        grown = min(width, len(value) + step * ((1 << len(bits)) - 1))
        shifted = Signal(Shape(grown, value.shape().signed), name=f"{name}_{low}")
        choices = [_shifted(value, k * step, grown) for k in range(1 << len(bits))]
        m.d.comb += shifted.eq(choose(bits, choices))
        value = shifted
    return value


def _shifted(value: Value, distance: int, width: int) -> Value:
    moved = Cat(Const(0, distance), value)
    return _extend(moved.as_signed() if value.shape().signed else moved, width)


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
        choices = [
            Mux(bit, high, low) for low, high in zip(choices[::2], choices[1::2], strict=True)
        ]
    return choices[0]


def low_bits(
    m: Module, name: str, value: Value, amount: Value, width: int, fill: ValueLike = 0
) -> Value:
    """The `width` low bits of value >> amount; vacated places get `fill`."""
    return top_bits(m, name, value[::-1], amount, width, fill)[::-1]


def add_carry(a: Value, b: Value, carry: Value, width: int) -> Value:
    """a + b + carry modulo 2^width as one carry chain: the carry enters through a place below the operands."""
    total = Cat(Const(1, 1), _extend(a, width)) + Cat(carry, _extend(b, width))
    return total[1 : width + 1]


def choose_any(select: Value, choices: Sequence[Value]) -> Value:
    """choices[select] for any number of choices; the last one beyond."""
    size = 1 << len(select)
    return choose(select, [*choices, *[choices[-1]] * (size - len(choices))][:size])


def multiply(pipe: Pipe, name: str, a: Staged, b: Staged) -> list[Staged]:
    """Rows whose sum is the unsigned product a·b, after the cuts `products` and, where there is more than one, `spread_products`.

    At one row a cycle all partial products are made at once; with an interval they share as many multipliers as it takes, or none.
    """
    a_bits, b_bits = len(a.signal), len(b.signal)
    a_digits, b_digits = pipe.products.digits(a_bits, b_bits)
    if pipe.products.is_serial(a_bits, b_bits):
        return _serial(pipe, name, a, b)
    rows: list[list[tuple[int, Value]]] = []
    for i in range(a_digits):
        for j in range(b_digits):
            x = pipe(a)[i * WIDE_DIGIT : (i + 1) * WIDE_DIGIT]
            y = pipe(b)[j * DIGIT : (j + 1) * DIGIT]
            part = Signal(len(x) + len(y), name=f"{name}_{i}_{j}")
            pipe.m.d.comb += part.eq(x * y)
            _place(rows, i * WIDE_DIGIT + j * DIGIT, part)
    values = [pipe.let(f"{name}_row{k}", _join(row)) for k, row in enumerate(rows)]
    pipe.cut("products")
    if pipe.products.is_summed(a_bits, b_bits):
        # A register beside the multiplier, one beside what adds its product to others': multipliers stand far apart.
        pipe.cut("spread_products")
    return values


def _place(rows: list[list[tuple[int, Value]]], low: int, part: Value) -> None:
    """Puts a partial product into the first row in which it overlaps nothing."""
    for row in rows:
        if all(low >= start + len(other) or low + len(part) <= start for start, other in row):
            row.append((low, part))
            return
    rows.append([(low, part)])


def _join(row: list[tuple[int, Value]]) -> Value:
    pieces: list[Value] = []
    position = 0
    for low, part in sorted(row, key=lambda item: item[0]):
        pieces += [Const(0, low - position), part]
        position = low + len(part)
    return Cat(*pieces)


def _serial(pipe: Pipe, name: str, a: Staged, b: Staged) -> list[Staged]:
    """Column by column through shared multipliers; the result's digits leave the accumulator from the low end."""
    start = pipe.now
    a_bits, b_bits = len(a.signal), len(b.signal)
    a_digits, b_digits = pipe.products.digits(a_bits, b_bits)
    a_digit, b_digit = pipe.products.digit_bits(a_bits, b_bits)
    left = Cat(pipe(a), Const(0, a_digits * a_digit - a_bits))
    right = Cat(pipe(b), Const(0, b_digits * b_digit - b_bits))
    end = start + pipe.products.serial_latency(a_bits, b_bits)
    rows = []
    for index, group in enumerate(pipe.products.groups(a_bits, b_bits)):
        low = group[0] * b_digit
        factors = (left, a_digit), (right[low : (group[-1] + 1) * b_digit], b_digit)
        result = _serial_group(pipe, f"{name}_{index}", *factors, start)
        row = Cat(Const(0, low), result) if low else result
        pipe.now = end
        rows.append(pipe.let(f"{name}_row{index}", row[: a_bits + b_bits]))
    return rows


def _serial_group(
    pipe: Pipe, name: str, left: tuple[Value, int], right: tuple[Value, int], start: int
) -> Value:
    """The product of two operands, each with the width of its digits: equal ones, or one of the operands is a single digit."""
    m = pipe.m
    (a, a_digit), (b, b_digit) = left, right
    a_digits, b_digits = len(a) // a_digit, len(b) // b_digit
    column = a_digit if b_digits == 1 else b_digit
    order = sorted(
        ((i, j) for i in range(a_digits) for j in range(b_digits)),
        key=lambda d: (d[0] + d[1], d[0]),
    )
    steps = len(order)
    held_a, held_b = Signal(len(a), name=f"{name}_a"), Signal(len(b), name=f"{name}_b")
    step = Signal(range(steps + 1), name=f"{name}_step", init=steps)
    chosen_a, chosen_b = Signal(a_digit, name=f"{name}_x"), Signal(b_digit, name=f"{name}_y")
    ends = Signal(name=f"{name}_ends")
    with m.If(pipe.valid(start)):
        m.d.sync += [step.eq(0), held_a.eq(a), held_b.eq(b)]
    with m.Elif(step != steps):
        m.d.sync += step.eq(step + 1)
    with m.Switch(step):
        for position, (i, j) in enumerate(order):
            final = position + 1 == steps
            with m.Default() if final else m.Case(position):
                m.d.comb += [
                    chosen_a.eq(held_a[i * a_digit : (i + 1) * a_digit]),
                    chosen_b.eq(held_b[j * b_digit : (j + 1) * b_digit]),
                    ends.eq(final or sum(order[position + 1]) != i + j),
                ]
    size = a_digit + b_digit
    product, shift = Signal(size, name=f"{name}_product"), Signal(name=f"{name}_shift")
    busy, fresh = Signal(name=f"{name}_busy"), Signal(name=f"{name}_fresh")
    m.d.sync += [
        product.eq(
            chosen_a * chosen_b if pipe.products.multipliers else _added(chosen_a, chosen_b)
        ),
        shift.eq(ends),
        busy.eq(step != steps),
        fresh.eq(step == 0),
    ]
    columns = a_digits + b_digits - 1
    wide = size + clog2(min(a_digits, b_digits) + 1) + 1
    total = Signal(wide, name=f"{name}_total")
    digits = Signal(columns * column, name=f"{name}_digits")
    summed = Signal(wide, name=f"{name}_sum")
    m.d.comb += summed.eq(Mux(fresh, 0, total) + product)
    with m.If(busy):
        m.d.sync += total.eq(Mux(shift, summed >> column, summed))
        with m.If(shift):
            m.d.sync += digits.eq(Cat(digits[column:], summed[:column]))
    return Cat(digits, total[: size - column])


def _added(a: Value, b: Value) -> Value:
    """a·b without a multiplier: the one of fewer bits chooses what is added."""
    narrow, wide = sorted((a, b), key=len)
    return sum(
        (Cat(Const(0, place), Mux(bit, wide, 0)) for place, bit in enumerate(narrow)), Const(0, 1)
    )


def add_rows(
    pipe: Pipe,
    name: str,
    plus: Sequence[Staged],
    minus: Sequence[Staged],
    width: int,
    *,
    constant: int = 0,
    deep: bool = False,
) -> Staged:
    """constant + sum of plus − sum of minus, modulo 2^width, after the cut `total`.

    A `deep` sum, of more than four rows, passes the cut `carry_save` before it.
    """
    rows = [pipe(row) for row in plus]
    rows += [~_extend(pipe(row), width) for row in minus]
    constant = (constant + len(minus)) % (1 << width)
    if constant:
        rows.append(Const(constant, width))
    first, second = carry_save(pipe.m, f"{name}_save", rows, width)
    a, b = pipe.let(f"{name}_a", first), pipe.let(f"{name}_b", second)
    if deep:
        pipe.cut("carry_save")
    total = pipe.let(name, wide_add(pipe.m, f"{name}_sum", pipe(a), pipe(b), width))
    pipe.cut("total")
    return total


def product(pipe: Pipe, name: str, a: Staged, b: Staged) -> Staged:
    """a·b, after the cut `products` and, where it takes more than one multiplier, those of `add_rows`."""
    rows = multiply(pipe, name, a, b)
    if not pipe.products.is_summed(len(a.signal), len(b.signal)):
        return rows[0]
    return add_rows(pipe, f"{name}_total", rows, [], len(a.signal) + len(b.signal))
