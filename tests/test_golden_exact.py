# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The golden model against `docs/numerics.md` read once more: an element at a time, in fractions, values in place of fields."""

import struct
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from haan.config import Configuration
from haan.flags import RowFlag
from haan.golden import normalize, reference, ulp_error
from haan.golden.inverse_sqrt import inverse_sqrt
from haan.seeds import SEGMENTS

NAN = 0x7E00
EXPONENT_ONES = {16: 0x7C00, 32: 0x7F800000}


def exponent(value: Fraction) -> int:
    """e with 2^e ≤ |value| < 2^(e+1)."""
    value = abs(value)
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if value >= power(e) else e - 1


def power(e: int) -> Fraction:
    return Fraction(2) ** e


def down(value: Fraction, unit: int) -> Fraction:
    """Rounded to a multiple of 2^unit, towards minus infinity."""
    return floor(value / power(unit)) * power(unit)


def half_up(value: Fraction, unit: int) -> Fraction:
    return floor(value / power(unit) + Fraction(1, 2)) * power(unit)


def half_even(value: Fraction, unit: int) -> Fraction:
    return round(value / power(unit)) * power(unit)


def truncated(value: Fraction, bits: int) -> Fraction:
    return down(value, exponent(value) - bits + 1) if value else value


def number(bits: int, width: int) -> Fraction | None:
    """The value of a pattern; None for infinities and NaNs."""
    if bits & EXPONENT_ONES[width] == EXPONENT_ONES[width]:
        return None
    code = {16: "<H<e", 32: "<I<f"}[width]
    return Fraction(struct.unpack(code[2:], struct.pack(code[:2], bits))[0])


def half_bits(value: Fraction, negative: bool) -> int:
    """FP16 of a value, to nearest even; `negative` is the sign of a zero that was none before."""
    magnitude = half_even(abs(value), max(exponent(value) - 10, -24)) if value else Fraction(0)
    sign = 0x8000 if negative else 0
    if magnitude >= 65536:
        return sign | 0x7C00
    return sign | struct.unpack("<H", struct.pack("<e", float(magnitude)))[0]


def mean_square(values: list[Fraction], layernorm: bool, window: bool) -> Fraction:
    n = len(values)
    squares = sum(down(z * z, -20) if window else z * z for z in values)
    v = n * squares - (sum(values) ** 2 if layernorm else 0)
    reciprocal = Fraction(1, n * n)
    reciprocal = half_up(reciprocal, exponent(reciprocal) - 23)
    return truncated(truncated(max(v, Fraction(0)), 24) * reciprocal, 24)


def plus(variance: Fraction, eps: Fraction) -> Fraction:
    if not variance or not eps:
        return variance + eps
    unit = max(exponent(variance), exponent(eps)) - 23
    return truncated(down(variance, unit) + down(eps, unit), 24)


def first_estimate(x: Fraction, how) -> Fraction:
    # A significand of 20 fraction bits: above 2 the last bit of x is lost.
    x = down(x, -19 if x >= 2 else -20)
    if how.seed == "segmented":
        table = SEGMENTS[how.segments, how.segment_slopes]
        octave = how.segments // 2
        upper = x >= 2
        fraction = (x / 2 if upper else x) - 1
        index = floor(fraction * octave)
        constant, slope = table[octave * upper + index]
        rest = fraction - Fraction(index, octave)
        return Fraction(min(constant - floor(slope * rest * 512), 8191), 8192)
    (bits,) = struct.unpack("<I", struct.pack("<f", float(x)))
    magic = {"classic": 0x5F3759DF, "tuned": 0x5F1FFFF9}[how.seed]
    return down(number(magic - (bits >> 1), 32), -16)


def root(x: Fraction, how) -> Fraction:
    """1/√x before it is rounded, for x in [1, 4) a multiple of 2^-20."""
    y = first_estimate(x, how)
    for step in range(how.newton_steps):
        if step:
            y = down(y, -22)
        a, b = Fraction(3, 2), Fraction(1, 2)
        if how.seed == "tuned" and step == 0:
            factor = Fraction("0.703952253")
            a = half_even(factor * Fraction("2.38924456") - factor, -25) + half_even(factor, -25)
            b = half_even(factor, -25)
        residual = down(1 - x * down(y * y, -26), -24)
        y *= a - b + down(b * residual, -25)
    return y


def inverse_root(x: Fraction, how) -> Fraction:
    """1/√x, likewise, with 17 bits."""
    y = root(x, how)
    return half_up(y, exponent(y) - 16)


def stored_gamma(bits: int, width: int, one_plus: bool) -> Fraction | None:
    gamma = number(bits, width)
    if one_plus and gamma is not None:
        total = 1 + gamma
        gamma = half_even(total, max(exponent(total) - 23, -149)) if total else total
    if gamma is None or width == 16:
        return gamma
    if not gamma or exponent(gamma) < -126:
        return Fraction(0)
    magnitude = half_up(abs(gamma), exponent(gamma) - 16)
    return magnitude if gamma > 0 else -magnitude


def stored_beta(bits: int, width: int) -> Fraction | None:
    beta = number(bits, width)
    if beta is None or width == 16:
        return beta
    if not beta or exponent(beta) < -126:
        return Fraction(0)
    magnitude = half_up(abs(beta), max(exponent(beta), -14) - 21)
    return magnitude if beta > 0 else -magnitude


def exact_row(bits, gamma, beta, build, mode, eps, sample, cast, one_plus):
    """(FP16 patterns, flags) of one row: patterns are integers, `sample` the indices that enter the statistics."""
    what, how = build.what, build.how
    n, width = len(bits), what.parameters.width
    layernorm, subsampled = mode == "layernorm", len(sample) < n
    values = [number(b, 16) for b in bits]
    if any(values[i] is None for i in sample):
        return [NAN] * n, RowFlag.NONFINITE
    taken = [values[i] for i in sample]
    eps32 = number(struct.unpack("<I", struct.pack("<f", eps))[0], 32)
    if eps32 and exponent(eps32) < -126:
        eps32 = Fraction(0)
    total = plus(mean_square(taken, layernorm, how.accumulator == "window"), eps32)

    flags = RowFlag(0) if total else RowFlag.ZERO_VARIANCE
    growth = (what.max_n - 1).bit_length()
    lossy = how.accumulator == "window"
    guard = 32 + (growth + 1) // 2 + 2
    window = 58 if what.subsampling else max(guard + lossy, 41)
    k = exponent(total) // 2 if total else 0
    isd = inverse_root(down(total / power(2 * k), -20), how) / power(k) if total else Fraction(0)
    lsb = -24
    if layernorm:
        lsb = max(k - 32, 18 - window if subsampled else -24 - guard)
        if lossy and not subsampled:
            lsb = max(lsb, (growth + 1) // 2 - 8 - window)
    mean = floor(sum(taken) / len(taken) / power(lsb)) if layernorm else 0

    result = []
    for index, (pattern, z) in enumerate(zip(bits, values, strict=True)):
        g = stored_gamma(int(gamma[index]), width, one_plus) if gamma is not None else Fraction(1)
        b = stored_beta(int(beta[index]), width) if beta is not None else Fraction(0)
        if z is None or g is None or b is None:
            result.append(NAN)
            continue
        negative = pattern >= 0x8000
        wide = floor(abs(z) / power(lsb)) + (mean if negative else -mean)
        delta = (wide + (1 << window - 1)) % (1 << window) - (1 << window - 1)
        if total:
            assert delta == wide, "the window is too narrow for the difference"
        length = (delta if delta >= 0 else -delta - 1).bit_length()
        d = abs(half_up(Fraction(delta), length - 18)) * power(lsb)
        xhat = d * isd
        if xhat and cast:
            xhat = half_even(xhat, max(exponent(xhat) - 10, -24))
        elif xhat:
            xhat = half_up(xhat, exponent(xhat) - 17)
        product = xhat * abs(g)
        if what.beta and product:
            unit = exponent(product) - (17 if width == 16 else 20)
            kept = floor(product / power(unit))
            product = (kept if kept * power(unit) == product else kept | 1) * power(unit)
        if negative ^ (delta < 0) ^ (g < 0):
            product = -product
        y = product + b
        result.append(half_bits(y, y < 0))
        if result[-1] & 0x7FFF == 0x7C00:
            flags |= RowFlag.OVERFLOW
    return result, flags


def make_rows(random, count, n):
    """Rows of every kind that rounding and windows can tell apart, as bit patterns."""
    rows = []
    for kind in range(count):
        scale = 2.0 ** random.integers(-20, 11)
        values = random.normal(size=n)
        with np.errstate(over="ignore"):
            row = (
                [
                    values * scale,
                    values * scale + scale * 2.0 ** random.integers(1, 12),
                    values * 2.0**-24 * random.integers(1, 9),
                    np.full(n, values[0] * scale),
                    np.where(np.arange(n) == random.integers(n), 6e4, values * scale),
                    np.where(random.random(n) < 0.5, -0.0, scale),
                    values,
                    values,
                ][kind % 8]
                .astype(np.float16)
                .view(np.uint16)
            )
        if kind % 8 == 6:
            row = random.integers(0, 0x7C00, n).astype(np.uint16) | np.uint16(0x8000) * (
                random.random(n) < 0.5
            ).astype(np.uint16)
        if kind % 8 == 7 and kind % 16 == 15:
            row[random.integers(n)] = random.choice([0x7C00, 0xFC00, 0x7E01, 0xFDFF])
        rows.append(np.where(row & 0x7FFF > 0x7BFF, row if kind % 16 == 15 else 0x7BFF, row))
    return np.array(rows, dtype=np.uint16)


def make_parameter(random, n, width):
    """Parameters about one, with every pattern there is among them."""
    kind = np.uint16 if width == 16 else np.uint32
    values = random.normal(0.5, 1.0, n).astype(f"f{width // 8}").view(kind)
    anything = random.integers(0, 1 << width, n, dtype=np.uint64).astype(kind)
    special = random.choice([0, 1 << (width - 1), EXPONENT_ONES[width], 1], n).astype(kind)
    choice = random.random(n)
    return np.where(choice < 0.7, values, np.where(choice < 0.9, anything, special))


SEEDS = [
    *(
        {"seed": "segmented", "segments": s, "segment_slopes": on}
        for s in (16, 32, 64)
        for on in (0, 1)
    ),
    {"seed": "classic"},
    {"seed": "tuned"},
]
PLAIN = {"max_n": 64}
BUILDS = {
    "plain": PLAIN,
    "gamma": PLAIN | {"affine": "gamma"},
    "none": PLAIN | {"affine": "none"},
    "cast": PLAIN | {"affine": "gamma", "cast_before_gamma": True},
    "cast-beta": PLAIN | {"cast_before_gamma": True, "parameter_format": "fp32"},
    "fp32": PLAIN | {"parameter_format": "fp32", "one_plus_gamma": True},
    "fp32-gamma": {
        "max_n": 65536,
        "affine": "gamma",
        "parameter_format": "fp32",
        "one_plus_gamma": True,
    },
    "subsampling": PLAIN | {"subsampling": True},
    "window": PLAIN | {"accumulator": "window"},
    "window-subsampling": PLAIN
    | {"accumulator": "window", "subsampling": True, "parameter_format": "fp32"},
}


def build_of(changes: dict, seed: dict, steps: int) -> Configuration:
    seed = seed | {"segment_slopes": bool(seed.get("segment_slopes", True))}
    return Configuration().with_(**changes, **seed, newton_steps=steps)


def options_of(random, build: Configuration, n: int):
    """(gamma, beta, keyword arguments): what a row of this build may ask for."""
    what, width = build.what, build.what.parameters.width
    gamma = make_parameter(random, n, width) if what.gamma and random.random() < 0.7 else None
    beta = make_parameter(random, n, width) if what.beta and random.random() < 0.7 else None
    options = {
        "mode": str(random.choice(["layernorm", "rmsnorm"])),
        "eps": float(random.choice([0.0, 1e-5, 1e-12, 1e-30, 1e-42, 1.0, 3e38])),
        "cast_before_gamma": bool(what.cast_before_gamma and random.random() < 0.7),
        "one_plus_gamma": bool(what.one_plus_gamma and gamma is not None and random.random() < 0.5),
    }
    if what.subsampling and random.random() < 0.8:
        first, stride = int(random.integers(0, n)), int(random.choice([1, 2, 4]))
        samples = int(random.integers(1, (n - 1 - first) // stride + 2))
        options |= {"first": first, "stride": stride, "n_sub": samples}
    return gamma, beta, options


def as_numbers(parameter):
    return None if parameter is None else parameter.view(f"f{parameter.itemsize}")


def compare(build, x, gamma, beta, options):
    got = normalize(x, as_numbers(gamma), as_numbers(beta), configuration=build, **options)
    n = x.shape[1]
    first, stride = options.get("first", 0), options.get("stride", 1)
    sample = [first + stride * j for j in range(options.get("n_sub", n))]
    for row, (bits, y, flags) in enumerate(zip(x, got.y.view(np.uint16), got.flags, strict=True)):
        want, want_flags = exact_row(
            bits.tolist(),
            gamma,
            beta,
            build,
            options["mode"],
            options["eps"],
            sample,
            options["cast_before_gamma"],
            options["one_plus_gamma"],
        )
        where = f"row {row}: {bits.tolist()} {options}"
        assert y.tolist() == want, where
        assert int(flags) == int(want_flags), where


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("changes", BUILDS.values(), ids=BUILDS)
def test_rows_are_what_the_specification_says(changes, steps):
    random = np.random.default_rng([steps, list(BUILDS.values()).index(changes)])
    for index in range(len(SEEDS)):
        build = build_of(changes, SEEDS[index], steps)
        n = int(random.integers(1, 33))
        compare(build, make_rows(random, 16, n), *options_of(random, build, n))


def test_a_minus_zero_is_centred_with_its_sign():
    """-0 and +0 lie at the same distance from the mean, but a tie of it is rounded up for one and down for the other."""
    random = np.random.default_rng(11)
    build = Configuration().with_(**PLAIN)
    x = np.abs(random.normal(8, 4, size=(1 << 14, 32))).astype(np.float16).view(np.uint16)
    x[:, 0], x[:, 1] = 0x8000, 0x0000
    y = normalize(x, configuration=build).y
    different = x[y[:, 0] != y[:, 1]]
    assert len(different)
    options = {"cast_before_gamma": False, "one_plus_gamma": False}
    compare(build, different, None, None, options | {"mode": "layernorm", "eps": 1e-5})


@pytest.mark.parametrize("how", SEEDS, ids=str)
def test_inverse_square_root_of_random_arguments(how):
    """(im, exponent) at the ends, around the octave and the segments' ends, and at random arguments."""
    random = np.random.default_rng(7)
    ends = np.arange(32, 129) << 15
    x = np.concatenate([ends[:-1], ends[1:] - 1, random.integers(1 << 20, 1 << 22, 200)])
    for steps in range(4):
        build = build_of(PLAIN, how, steps)
        for argument, value in zip(x.tolist(), units(x, build), strict=True):
            assert value == inverse_root(Fraction(argument, 1 << 20), build.how), argument


def units(x, build):
    """1/√(x/2^20) as the golden model's unit gives it, as fractions."""
    x = x.astype(np.int64)
    im, ie = inverse_sqrt(x, np.zeros_like(x), build.how)
    return [Fraction(m) * power(e - 16) for m, e in zip(im.tolist(), ie.tolist(), strict=True)]


def worst_root(build) -> float:
    """Largest relative error of the inverse square root, over all arguments."""
    x = np.arange(1 << 20, 1 << 22, dtype=np.int64)
    im, ie = inverse_sqrt(x, np.zeros_like(x), build.how)
    return float(np.max(np.abs(np.ldexp(im, ie - 16) * np.sqrt(x / 2**20) - 1)))


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("changes", [{}, {"parameter_format": "fp32"}], ids=["fp16", "fp32"])
@pytest.mark.parametrize("seed", [{}, {"seed": "tuned", "newton_steps": 2}], ids=["seed", "tuned"])
def test_error_stays_within_the_sum_of_the_roundings(changes, mode, seed):
    build = Configuration().with_(**changes, **seed)
    random = np.random.default_rng(3)
    n = 256
    x = random.normal(size=(64, n)) * 2.0 ** random.integers(-12, 10, (64, 1))
    x += x[:, :1] * 2.0 ** random.integers(0, 6, (64, 1))
    x = np.clip(x, -6e4, 6e4).astype(np.float16)
    kind = "f4" if changes else "f2"
    gamma = random.normal(1, 0.3, n).astype(kind)
    beta = random.normal(0, 1, n).astype(kind)
    got = normalize(x, gamma, beta, configuration=build, mode=mode, eps=1e-6)
    want = reference(x, gamma, beta, mode=mode, eps=1e-6)
    # Relative: |d| and x-hat to 18 bits, X down to 2^-20, the five truncations of var + eps to 24 bits (halved by the root),
    # the root itself; FP32: gamma to 17 bits, and beta, at most twice the larger term, to 22; the product to odd.
    relative = 2**-18 + 2**-18 + 2**-21 + 5 * 2**-24 + worst_root(build)
    relative += 2**-17 + 2 * 2**-22 + 2**-20 if changes else 2**-17
    # Absolute: z and mean each lose less than 2^-32 of the deviation, in steps of 2^-24 at least.
    absolute = 2 * 2.0**-32 * float(np.abs(gamma).max()) * 2**24
    bound = 0.5 + relative * 1.001 * 2**11 + absolute
    assert bound < 0.6
    assert ulp_error(got.y, want[0], want[1]).max() <= bound
    assert not got.flags.any()
