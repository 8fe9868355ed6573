# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""A normalization lane against the golden model, one element of another row in each cycle, at its latency."""

from typing import Any

import numpy as np
import pytest

from haan.config import Configuration
from haan.golden.normalization import Affine, RowConstants, lane, normalized
from haan.hdl import generate_unit
from haan.latency import lane_latency, operand_time
from haan.numerics import SUBSAMPLED_LSB, WINDOW_GUARD, Numerics
from haan.sim import run_vectors, stimulus

NAN = 0x7E00
BUILDS = {
    "layernorm, all": {},
    "all, fp32": {"parameter_format": "fp32", "cast_before_gamma": True, "subsampling": True},
    "layernorm, none": {"norms": ["layernorm"], "affine": "none", "pipeline": "short"},
    "layernorm, gamma": {"affine": "gamma", "cast_before_gamma": True, "pipeline": "short"},
    "rmsnorm, all": {"norms": ["rmsnorm"], "pipeline": "short"},
    "rmsnorm, gamma fp32": {
        "norms": ["rmsnorm"],
        "affine": "gamma",
        "parameter_format": "fp32",
        "cast_before_gamma": True,
    },
    "int8": {"formats": ["fp16", "int8"], "cast_before_gamma": True},
    "int8, gamma": {"formats": ["fp16", "int8"], "affine": "gamma", "pipeline": "short"},
    "int8, rmsnorm, fp32": {
        "formats": ["fp16", "int8"],
        "norms": ["rmsnorm"],
        "parameter_format": "fp32",
    },
    "rmsnorm, none": {"norms": ["rmsnorm"], "affine": "none", "subsampling": True},
}
COUNT = 20_000


def rows(build: Configuration, z: np.ndarray, random: np.random.Generator) -> RowConstants:
    """Constants of a row for each element: any standard deviation, any mean, near the element or far from it."""
    numerics = Numerics(build)
    k = random.integers(-25, 17, z.size)
    rms = np.full(z.size, "layernorm" not in build.what.norms)
    if len(build.what.norms) == 2:
        rms = random.random(z.size) < 0.3
    lowest = SUBSAMPLED_LSB if build.what.subsampling else numerics.lowest_lsb
    lsb = np.where(rms, -24, np.maximum(k - WINDOW_GUARD, lowest))
    values = z.view(np.float16).astype(np.float64)
    values[~np.isfinite(values)] = 0.0
    sigma = np.exp2(k + random.random(z.size))
    distance = random.normal(size=z.size) * sigma * np.exp2(random.integers(-40, 4, z.size))
    distance[random.random(z.size) < 0.05] = 0.0
    exact = [
        int(np.ldexp(v, 60)) + int(np.ldexp(d, 60)) for v, d in zip(values, distance, strict=True)
    ]
    mean = [
        0 if r else (m >> 60 + e if e > -60 else m << -60 - e) % (1 << numerics.window)
        for m, e, r in zip(exact, lsb.tolist(), rms.tolist(), strict=True)
    ]
    isd = random.integers(1 << 16, 1 << 17, z.size)
    isd[random.random(z.size) < 0.02] = 0
    return RowConstants(lsb, np.array(mean), isd, -k - random.integers(0, 2, z.size))


def stored_gamma(values: np.ndarray, build: Configuration) -> list[int]:
    """As `GammaLayout` stores them: fraction, exponent, sign; the two lowest exponents for zero and what isn't finite."""
    fraction_bits, exponent_bits = (16, 8) if build.what.parameter_format == "fp32" else (10, 6)
    lowest = -(1 << exponent_bits - 1)
    words = []
    for value in values.astype(np.float64).tolist():
        if not np.isfinite(value):
            fraction, exponent = 0, lowest + 1
        elif value == 0:
            fraction, exponent = 0, lowest
        else:
            mantissa, exponent = np.frexp(abs(value))
            fraction, exponent = (
                int(mantissa * (2 << fraction_bits)) & ~(1 << fraction_bits),
                exponent - 1,
            )
        word = (int(exponent) % (1 << exponent_bits)) << fraction_bits | fraction
        words.append(int(np.signbit(value)) << fraction_bits + exponent_bits | word)
    return words


def stored_beta(values: np.ndarray, build: Configuration) -> list[int]:
    """As `BetaLayout` stores them: mantissa, exponent above FP16's lowest, sign; the highest exponent for what isn't finite."""
    mantissa_bits, code_bits = (22, 8) if build.what.parameter_format == "fp32" else (11, 5)
    words = []
    for value in values.astype(np.float64).tolist():
        if not np.isfinite(value):
            mantissa, code = 0, (1 << code_bits) - 1
        else:
            exponent = max(int(np.frexp(value)[1]) - 1, -14) if value else -14
            mantissa, code = int(np.ldexp(abs(value), mantissa_bits - 1 - exponent)), exponent + 14
        sign = int(np.signbit(value))
        words.append((sign << code_bits | code) << mantissa_bits | mantissa)
    return words


def parameter(build: Configuration, kind: str, random: np.random.Generator) -> np.ndarray:
    """Numbers that the memory can hold as they are: FP16, or FP32 with as many bits as are stored."""
    width = build.what.parameters.width
    bits = stimulus.parameters("special", COUNT, width, random)
    if width == 16:
        return bits.view(np.float16).astype(np.float64)
    values = bits.view(np.float32).astype(np.float64)
    if kind == "gamma":
        mantissa, exponent = np.frexp(values)
        return np.ldexp(np.trunc(np.ldexp(mantissa, 17)), exponent - 17)
    exponent = np.maximum(np.frexp(values)[1] - 1, -14)
    return np.ldexp(np.trunc(np.ldexp(values, 21 - exponent)), exponent - 21)


def just_below_powers(z: np.ndarray, row: RowConstants, random: np.random.Generator) -> np.ndarray:
    """Makes the first elements such that x-hat is a power of two less its last bit; returns a gamma for them, a power of two too, so that
    results round up to a power of two: below, at and beyond the largest FP16 number."""
    few = slice(0, COUNT // 20)
    count = COUNT // 20
    place, target = random.integers(-5, 6, count), random.integers(-3, 6, count)
    z[few] = (
        (np.ldexp(1.0, place) * random.choice([-1, 1], count)).astype(np.float16).view(np.uint16)
    )
    row.mean[few] = 0
    row.lsb[few] = np.minimum(row.lsb[few], -24)
    row.isd[few] = (1 << 17) - 1
    row.isd_exponent[few] = target - place - 1
    return np.ldexp(1.0, random.integers(8, 16, count))


def about_ties(z: np.ndarray, row: RowConstants, random: np.random.Generator) -> np.ndarray:
    """Makes the second part of the elements such that x-hat is 1 or -1; returns a gamma for them: integers and halves about which INT8
    results round and saturate, and the FP16 numbers beside them."""
    count = COUNT // 20
    part = slice(count, 2 * count)
    z[part] = random.choice([0x3C00, 0xBC00], count)
    row.mean[part] = 0
    row.lsb[part] = -24
    row.isd[part] = 1 << 16
    row.isd_exponent[part] = 0
    values = [0.0, 0.5, 1.0, 1.5, 2.5, 63.5, 64.5, 126.5, 127.0, 127.5, 128.0, 128.5, 129.5, 65504]
    bits = np.array(values, np.float16)[random.integers(len(values), size=count)].view(np.uint16)
    beside = bits + np.where(bits % 0x7BFF, random.integers(-1, 2, count), 0)
    return beside.astype(np.uint16).view(np.float16).astype(np.float64)


@pytest.mark.parametrize("changes", BUILDS.values(), ids=list(BUILDS))
def test_lane(changes):
    build = Configuration().with_(**changes)
    what = build.what
    random = np.random.default_rng(3)
    z = stimulus.finite(random, COUNT)
    if what.subsampling:
        z[random.random(COUNT) < 0.05] = random.choice([0x7C00, 0xFC00, 0x7E01])
    row = rows(build, z, random)
    chosen_gamma = np.concatenate(
        [make(z, row, random) for make in (just_below_powers, about_ties)]
    )
    # A row of max_n elements has no larger x-hat.
    sane = np.abs(normalized(z[:, None], row, build, False)[:, 0]) <= np.sqrt(what.max_n)
    row = RowConstants(row.lsb, row.mean, np.where(sane, row.isd, 0), row.isd_exponent)
    nan = random.random(COUNT) < 0.02
    int8 = (random.random(COUNT) < 0.5) & what.int8
    cast = (random.random(COUNT) < 0.5) & what.cast_before_gamma & ~int8
    gamma = parameter(build, "gamma", random) if what.gamma else None
    beta = parameter(build, "beta", random) if what.beta else None
    few = chosen_gamma.size
    if gamma is not None:
        gamma[:few] = chosen_gamma
    if beta is not None:
        beta[:few] = random.choice([0.0, 2.0**-24, -(2.0**-24), 1.0, -0.5], few)

    y, overflow = np.empty_like(z), np.empty(COUNT, dtype=np.bool_)
    affine = Affine(
        # A stored zero is +0.
        *(
            None if a is None else np.where(np.isfinite(a), a, 0.0)[:, None] + 0.0
            for a in (gamma, beta)
        ),
        np.any(
            [np.zeros(COUNT), *(~np.isfinite(a) for a in (gamma, beta) if a is not None)], axis=0
        )[:, None],
    )
    for rounded, integer in ((False, False), (True, False), (False, True)):
        some = lane(z[:, None], row, affine, build, rounded, integer)
        chosen = (cast == rounded) & (int8 == integer)
        y[chosen], overflow[chosen] = some[0][chosen, 0], some[1][chosen, 0]
    y[nan], overflow[nan] = np.where(int8[nan], 0, NAN), False
    if what.int8:
        assert {0, 1, 2, 126, 127, 0x80, 0x81, 0xFE, 0xFF} <= set(y[int8].tolist())

    operands: dict[str, Any] = {
        "scale_exponent": (row.lsb + row.isd_exponent + 15) % 256,
        "isd": row.isd,
        "nan": nan,
    }
    if what.layernorm:
        operands |= {"shift": (-15 - row.lsb) % 256, "mean": row.mean}
    if what.cast_before_gamma:
        operands["cast"] = cast
    if what.int8:
        operands["int8"] = int8
    if gamma is not None:
        operands["gamma"] = stored_gamma(gamma, build)
    if beta is not None:
        operands["beta"] = stored_beta(beta, build)
    inputs = {"z": z.tolist()}
    for name, values in operands.items():
        inputs[name] = [0] * operand_time(build, name) + [int(value) for value in values]
    latency = lane_latency(build)
    got = run_vectors(
        generate_unit(build, "lane"), "lane", inputs, ["y", "overflow"], COUNT + latency
    )
    # An INT8 result is the low byte.
    came = np.array(got["y"][latency:]) & np.where(int8, 0xFF, 0xFFFF)
    different = np.flatnonzero(came != y)
    first = {
        name: inputs[name][i + operand_time(build, name) if name != "z" else i]
        for i in different[:1].tolist()
        for name in inputs
    }
    assert not different.size, (
        f"{different.size} of {COUNT} differ; {y[different[:1]]} is right for {first}, not "
        f"{got['y'][latency + different[0]]}"
    )
    assert got["overflow"][latency:] == overflow.astype(int).tolist()
