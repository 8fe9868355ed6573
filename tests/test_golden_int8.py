# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""INT8 rows in the golden model: against section 12 of `docs/numerics.md` read once more in fractions, packets, refusals, cycles, accuracy."""

from dataclasses import replace
from fractions import Fraction
from math import floor
from pathlib import Path

import numpy as np
import pytest

from haan.config import Configuration, ConfigurationError
from haan.flags import RowFlag
from haan.golden import (
    Packet,
    ReceivedRow,
    Slot,
    absolute_error,
    accepted_settings,
    error_bound,
    integer_error,
    lsb_error,
    normalize,
    passages,
    reference,
    row_output,
    row_outputs,
    ulp_error,
)
from haan.golden.bounds import error_terms
from haan.golden.int8 import Scale, as_fp16
from haan.golden.inverse_sqrt import Root, scaled
from haan.golden.pipeline import row_statistics
from haan.golden.reference import ulp
from haan.layer import LayerSettings, float32_bits
from haan.scaling import divided, quantized

from .test_golden_accuracy import table, up
from .test_golden_exact import (
    down,
    exponent,
    half_bits,
    half_even,
    half_up,
    inverse_root,
    make_parameter,
    make_rows,
    mean_square,
    number,
    plus,
    power,
    root,
    stored_beta,
    stored_gamma,
    truncated,
)

P_N = 4
BUILD = Configuration.preset("tiny").with_(
    formats=["fp16", "int8"], p_n=P_N, p_d=P_N, subsampling=True, cast_before_gamma=True, slots=4
)
SKIPPING = BUILD.with_(skipping=True, anchors=2, layers=4, token_slots=4)
DEFAULT = Configuration().with_(formats=["fp16", "int8"])
FP32 = DEFAULT.with_(parameter_format="fp32", one_plus_gamma=True)
DATA = Path(__file__).parent / "data"
NAN = 0x7E00
ONE = float32_bits(1.0)


def packet(elements, x_scale=1.0, beats=None, count=None, keep=(), tid=(), p_n=P_N) -> ReceivedRow:
    """FP16 numbers or INT8 numbers in beats, dense, `count` of them present; `keep` and `tid` are {beat: value} in place of the right
    ones, bits of TKEEP for INT8 elements."""
    array = np.asarray(elements)
    size = array.dtype.itemsize
    count = len(array) if count is None else count
    beats = -(-count * size // (2 * p_n)) if beats is None else beats
    data = np.zeros(beats * 2 * p_n, dtype=np.uint8)
    given = array.view(np.uint8)[: len(data)]
    data[: len(given)] = given
    kept = (np.arange(len(data)) < count * size).reshape(beats, -1)
    ids = np.zeros(beats, dtype=np.int64)
    for beat, value in dict(keep).items():
        kept[beat] = value >> np.arange(2 * p_n) & 1
    for beat, value in dict(tid).items():
        ids[beat] = value
    bits = float32_bits(x_scale)
    return ReceivedRow(data.view("<u2").reshape(beats, p_n), kept, ids, 0, bits)


# The specification in fractions


def lanes_isd(isd: Fraction, scale: Fraction) -> Fraction:
    product = isd * scale
    if not product:
        return product
    product = half_up(product, exponent(product) - 16)
    if exponent(product) > 63:
        return power(63)
    return product if exponent(product) >= -56 else Fraction(0)


def exact_row(x, scale, gamma, beta, build, layer, isd=None):
    """(patterns, flags) of a whole row of finite elements, int8 or uint16 FP16 patterns; `isd`: predicted."""
    what, how = build.what, build.how
    width, int8 = what.parameters.width, x.dtype == np.int8
    values = [Fraction(int(q)) if int8 else number(int(q), 16) for q in x]
    negative = [q < 0 if int8 else q >= 0x8000 for q in x.tolist()]
    layernorm = layer.mode == "layernorm"
    taken = [values[layer.first + layer.stride * j] for j in range(layer.samples)]
    n, one = len(taken), Fraction(1)
    if int8:
        v = n * sum(z * z for z in taken) - (sum(taken) ** 2 if layernorm else 0)
        reciprocal = half_up(Fraction(1, n * n), exponent(Fraction(1, n * n)) - 23)
        share = truncated(reciprocal * truncated(scale * scale, 24), 24)
        variance = truncated(truncated(v, 24) * share, 24)
    else:
        variance = mean_square(taken, layernorm, how.accumulator == "window")
    eps = number(float32_bits(layer.eps), 32)
    total = plus(variance, eps)
    flags = RowFlag(0) if total or isd is not None else RowFlag.ZERO_VARIANCE
    k = exponent(total) // 2 if total else -128
    if isd is None:
        argument = down(total / power(2 * k), -20)
        if int8 and total:
            isd = truncated(root(argument, how), 24) / power(k)
        else:
            isd = inverse_root(argument, how) / power(k) if total else Fraction(0)
    if int8:
        isd = lanes_isd(isd, scale)

    growth = (what.max_n - 1).bit_length()
    lossy = how.accumulator == "window"
    guard = 32 + (growth + 1) // 2 + 2
    window = 58 if what.subsampling else max(guard + lossy, 41)
    lsb = -24
    if layernorm and int8:
        lsb = 9 - window
    elif layernorm:
        subsampled = layer.samples < layer.n
        lsb = max(k - 32, 18 - window if subsampled else -24 - guard)
        if lossy and not subsampled:
            lsb = max(lsb, (growth + 1) // 2 - 8 - window)
    mean = floor(sum(taken) / n / power(lsb)) if layernorm else 0

    result = []
    for index, z in enumerate(values):
        g = stored_gamma(int(gamma[index]), width, False) if "gamma" in layer.affine else one
        b = stored_beta(int(beta[index]), width) if "beta" in layer.affine else Fraction(0)
        if g is None or b is None:
            result.append(0 if layer.int8_output else NAN)
            continue
        wide = floor(abs(z) / power(lsb)) + (mean if negative[index] else -mean)
        assert int8 <= (abs(wide) < 1 << (window - 1))
        delta = (wide + (1 << window - 1)) % (1 << window) - (1 << window - 1)
        length = (delta if delta >= 0 else -delta - 1).bit_length()
        xhat = abs(half_up(Fraction(delta), length - 18)) * power(lsb) * isd
        if xhat and layer.cast_before_gamma:
            xhat = half_even(xhat, max(exponent(xhat) - 10, -24))
        elif xhat:
            xhat = half_up(xhat, exponent(xhat) - 17)
        product = xhat * abs(g)
        if what.beta and product:
            unit = exponent(product) - (17 if width == 16 else 20)
            kept = floor(product / power(unit))
            product = (kept if kept * power(unit) == product else kept | 1) * power(unit)
        y = (-product if negative[index] ^ (delta < 0) ^ (g < 0) else product) + b
        if layer.int8_output:
            q = min(max(round(y), -128), 127)
            beyond = q != round(y)
            result.append(q & 0xFF)
        else:
            result.append(half_bits(y, y < 0))
            beyond = result[-1] & 0x7FFF == 0x7C00
        flags |= RowFlag.OVERFLOW if beyond else RowFlag(0)
    return result, flags


def integers(random: np.random.Generator, n: int) -> np.ndarray:
    """A row of INT8 numbers of any kind."""
    return [
        lambda: np.clip(np.rint(random.normal(0, 30, n)), -128, 127),
        lambda: random.integers(-128, 128, n),
        lambda: np.full(n, random.choice([0, 0, 1, -128, 127])),
        lambda: random.choice([-1, 0, 1], n),
        lambda: np.where(np.arange(n) == random.integers(n), random.choice([-128, 1]), 0),
        lambda: random.choice([-128, 127], n),
        lambda: np.where(random.random(n) < 0.2, random.integers(-128, 128, n), 100),
    ][random.integers(7)]().astype(np.int8)


def any_scale(random: np.random.Generator) -> float:
    kind = random.random()
    if kind < 0.1:
        return float(random.choice(np.float32([0.0, 1.0, 2.0**-126, 1e-30, 3e38, 2.0**23])))
    spread = (-126, 127) if kind < 0.3 else (-8, 4)
    return float(np.float32(random.uniform(1, 2) * 2.0 ** random.integers(*spread)))


PLAIN = {"max_n": 64, "formats": ["fp16", "int8"]}
BUILDS = {
    "plain": PLAIN,
    "gamma": PLAIN | {"affine": "gamma"},
    "none": PLAIN | {"affine": "none"},
    "fp32": PLAIN | {"parameter_format": "fp32", "max_n": 65536},
    "fp32-gamma": PLAIN | {"parameter_format": "fp32", "affine": "gamma", "newton_steps": 2},
    "subsampling": PLAIN | {"subsampling": True, "newton_steps": 0, "segments": 16},
    "window": PLAIN | {"accumulator": "window", "seed": "tuned", "cast_before_gamma": True},
}


def any_layer(random, build, n: int) -> LayerSettings:
    what = build.what
    affine = ["none", *["gamma"] * what.gamma, *["beta", "gamma+beta"] * what.beta]
    samples = {"n_sub": n} if what.subsampling else {}
    if what.subsampling and random.random() < 0.7:
        first, stride = int(random.integers(0, n)), int(random.choice([1, 2, 4]))
        count = int(random.integers(1, (n - 1 - first) // stride + 2))
        samples = {"first": first, "stride": stride, "n_sub": count}
    x = str(random.choice(["int8", "int8", "fp16"]))
    scale = any_scale(random) if x == "int8" and random.random() < 0.3 else None
    affine = str(random.choice(affine))
    y = "int8" if "gamma" in affine and random.random() < 0.6 else "fp16"
    return LayerSettings(
        n=n,
        mode=str(random.choice(["layernorm", "rmsnorm"])),
        eps=float(random.choice(np.float32([0.0, 1e-5, 1e-12, 1e-30, 1.0, 3e38]))),
        affine=affine,
        slot=int(random.integers(8)),
        input_format=x,
        output_format=y,
        x_scale=scale or None,
        cast_before_gamma=bool(
            what.cast_before_gamma and y == "fp16" and "gamma" in affine and random.random() < 0.5
        ),
        **samples,
    )


def slot_of(random, build) -> Slot:
    """Parameters that make INT8 of x-hat, now and then any."""
    width = build.what.parameters.width
    gamma, beta = (make_parameter(random, 64, width).view(f"f{width // 8}") for _ in range(2))
    if random.random() < 0.8:
        with np.errstate(all="ignore"):
            gamma, beta = gamma * gamma.dtype.type(40), beta * beta.dtype.type(20)
    return Slot(gamma, beta)


@pytest.mark.parametrize("name", BUILDS)
def test_rows_are_what_the_specification_says(name):
    """Rows of all formats, layers and slots in one call."""
    random = np.random.default_rng(len(name))
    build = Configuration().with_(**BUILDS[name])
    slots = {slot: slot_of(random, build) for slot in range(8)}
    rows, layers, wanted = [], [], []
    for _ in range(40):
        n = int(random.integers(1, 33))
        layer = any_layer(random, build, n)
        for row in range(4):
            own = any_scale(random)
            x = integers(random, n) if layer.int8_input else make_rows(random, row + 1, n)[-1]
            slot = slots[layer.slot]
            gamma, beta = (array.view(f"u{array.itemsize}") for array in (slot.gamma, slot.beta))
            scale = Fraction(own if layer.x_scale is None else layer.x_scale)
            rows.append(packet(x, own, p_n=build.how.p_n))
            layers.append(layer)
            wanted.append(exact_row(x, scale, gamma, beta, build, layer))
    records = [layer.record(build) for layer in layers]
    accepted = [
        accepted_settings(record, build, row.x_scale)
        for record, row in zip(records, rows, strict=True)
    ]
    assert accepted == layers
    got = row_outputs(rows, accepted, build, slots)
    for layer, out, (bits, flags) in zip(layers, got, wanted, strict=True):
        assert out.bits.dtype == (np.uint8 if layer.int8_output else np.uint16)
        assert out.bits.tolist() == bits, layer
        assert out.flags == flags, layer
    assert {flag for out in got for flag in out.flags} >= {RowFlag.ZERO_VARIANCE}


def test_the_isd_times_the_scale():
    """Random ones, and the ends of the exponents that lanes take."""
    random = np.random.default_rng(3)
    ym = np.concatenate([random.integers(1 << 23, 1 << 24, 4000), [1 << 23, (1 << 24) - 1] * 2])
    bits = random.integers(0x00800000, 0x7F800000, ym.size).astype(np.uint32)
    bits[-4:] = [ONE, ONE - 1, 0x3FFFFFFF, 0]
    scale = Scale.of(bits)
    # The product of exponents in and around -56 to 63.
    exponents = random.choice([-58, -57, -56, 0, 62, 63, 64], ym.size) - scale.exponent
    got = scaled(Root(ym, exponents), scale)
    for y, e, s, im, ie in zip(ym.tolist(), exponents.tolist(), bits.tolist(), *got, strict=True):
        want = lanes_isd(y * power(e - 23), number(s, 32))
        assert int(im) * power(int(ie) - 16) == want
        assert want or not im


@pytest.mark.parametrize("changes", [{}, {"max_n": 65536}, {"subsampling": True}], ids=str)
def test_the_window_of_integers(changes):
    """W is 41, 42 and 58: any difference fits, and the mean has all the other bits."""
    build = Configuration().with_(**PLAIN | changes)
    window = {"max_n": 42, "subsampling": 58}.get(next(iter(changes), ""), 41)
    random = np.random.default_rng(4)
    q = np.array([integers(random, 61) for _ in range(30)])
    scale = Scale.of(np.full(30, ONE, np.uint32))
    for samples in (61, 7) if build.what.subsampling else (61,):
        layer = LayerSettings(n=61, input_format="int8", n_sub=samples)
        rows = row_statistics(as_fp16(q), layer, build, scale=scale).constants
        assert rows.lsb.tolist() == [9 - window] * 30
        for row, mean in zip(q.astype(int).tolist(), rows.mean.tolist(), strict=True):
            exact = Fraction(sum(row[:samples]), samples)
            assert mean == floor(exact * power(window - 9)) % (1 << window)


@pytest.mark.parametrize("parameters", ["fp16", "fp32"])
def test_fp16_rows_are_as_in_builds_without_int8(parameters):
    """Also where the ISD is smaller than that of any INT8 row."""
    random = np.random.default_rng(5)
    build = Configuration().with_(parameter_format=parameters)
    gamma = (random.normal(1, 0.3, 32) * (1e20 if parameters == "fp32" else 1)).astype(
        f"f{build.what.parameters.width // 8}"
    )
    x = make_rows(random, 64, 32)
    for eps in (0.0, 1e-5, 3e38):
        alone = normalize(x, gamma, configuration=build, eps=eps)
        beside = normalize(x, gamma, configuration=build.with_(formats=["fp16", "int8"]), eps=eps)
        assert (alone.bits == beside.bits).all()
        assert (alone.flags == beside.flags).all()
    assert parameters == "fp16" or (alone.bits & 0x7FFF).max() > 1


def test_a_scale_of_one_is_fp16():
    """The statistics and the ISD of INT8 numbers are those of the same FP16 numbers; with RMSNorm so is all the rest."""
    q = np.random.default_rng(1).integers(-128, 128, (50, 77)).astype(np.int8)
    for mode in ("layernorm", "rmsnorm"):
        whole = normalize(q, configuration=DEFAULT, x_scale=1.0, mode=mode)
        half = normalize(q.astype(np.float16), configuration=DEFAULT, mode=mode)
        assert (whole.isd == half.isd).all()
        assert mode == "layernorm" or (whole.bits == half.bits).all()


def test_a_power_of_two_as_scale_changes_nothing_without_eps():
    q = np.random.default_rng(2).integers(-128, 128, (1, 77)).astype(np.int8)
    for mode in ("layernorm", "rmsnorm"):
        scales = 2.0 ** np.arange(-126, 128)
        got = normalize(q.repeat(254, 0), configuration=DEFAULT, x_scale=scales, mode=mode, eps=0.0)
        assert (got.bits == got.bits[0]).all()
        assert (got.isd * scales == got.isd[126]).all()


# Rows that are hard


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_rows_of_tiny_scale(mode):
    """Without eps the scale doesn't matter; next to eps = 1e-12 a scale of 1e-30 is nothing, and one of 1e-5 is much."""
    q = np.random.default_rng(3).integers(-128, 128, (1, 64)).astype(np.int8)
    for scale in (1e-30, 2.0**-126, 1e-5, 1.0, 1e30):
        for eps in (0.0, 1e-12):
            got = normalize(q, configuration=DEFAULT, mode=mode, x_scale=scale, eps=eps)
            exact = reference(q, mode=mode, x_scale=scale, eps=eps)
            # What FP16 doesn't hold is 0.
            assert np.allclose(got.y, exact.y, rtol=2e-3, atol=2.0**-25)
            assert got.isd == pytest.approx(exact.isd, rel=2e-5)
            assert not got.flags.any()
            if eps == 0:
                assert abs(got.y).max() > 1
    assert (
        abs(normalize(q, configuration=DEFAULT, mode=mode, x_scale=1e-30, eps=1e-12).y).max() == 0
    )


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_scale_zero_and_rows_of_zeros_are_beta(mode):
    q = np.random.default_rng(4).integers(-128, 128, (3, 64)).astype(np.int8)
    q[2] = 0
    beta = np.arange(-31, 33).astype(np.float16)
    for eps in (0.0, 1e-12):
        got = normalize(
            q,
            None,
            beta,
            configuration=DEFAULT,
            mode=mode,
            x_scale=[0.0, 0.02, 0.3],
            eps=eps,
            output_format="int8",
            y_scale=0.25,
        )
        assert (got.y[[0, 2]] == np.clip(beta * 4, -128, 127)).all()
        flag = RowFlag(0) if eps else RowFlag.ZERO_VARIANCE
        assert got.flags.tolist() == [flag | RowFlag.OVERFLOW] + [got.flags[1]] + [
            flag | RowFlag.OVERFLOW
        ]
        assert RowFlag.ZERO_VARIANCE not in RowFlag(int(got.flags[1]))


@pytest.mark.parametrize("value", [-128, -1, 1, 127])
def test_constant_rows(value):
    """The mean is exact: LayerNorm leaves beta, RMSNorm one."""
    q = np.full((1, 100), value, np.int8)
    for scale in (1e-30, 0.7, 1e30):
        options = {"configuration": DEFAULT, "x_scale": scale, "output_format": "int8", "eps": 0.0}
        got = normalize(q, np.full(100, 3.0, np.float16), np.full(100, 5.0, np.float16), **options)
        assert (got.y == 5).all() and got.flags.tolist() == [RowFlag.ZERO_VARIANCE]
        got = normalize(q, np.full(100, 3.0, np.float16), mode="rmsnorm", y_scale=0.1, **options)
        assert (got.y == np.sign(value) * 30).all() and not got.flags.any()


ROUNDED = [
    (127.25, 127, False),
    (127.5, 127, True),
    (128.0, 127, True),
    (-128.0, -128, False),
    (-128.5, -128, False),
    (-128.75, -128, True),
    (0.5, 0, False),
    (1.5, 2, False),
    (-2.5, -2, False),
    (-1.5, -2, False),
    (-0.5, 0, False),
    (60000.0, 127, True),
    (-60000.0, -128, True),
]
"""A number, the INT8 result, whether it is saturated."""


@pytest.mark.parametrize(("y", "want", "beyond"), ROUNDED)
def test_rounding_and_saturation(y, want, beyond):
    """A row whose result is beta."""
    layer = LayerSettings(
        n=2, affine="gamma+beta", input_format="int8", output_format="int8", x_scale=1.0
    )
    gamma, beta = np.float16([1, 1]), np.float16([y, 0])
    out = row_output(packet(np.int8([3, 3])), layer, BUILD, gamma, beta)
    assert out.bits.view(np.int8).tolist() == [want, 0]
    assert out.flags == (RowFlag.OVERFLOW if beyond else 0)


def test_parameters_that_are_not_finite_make_zeros():
    layer = LayerSettings(n=3, affine="gamma+beta", input_format="int8", output_format="int8")
    gamma, beta = np.float16([np.nan, 1, 2]), np.float16([0, np.inf, 4])
    out = row_output(packet(np.int8([3, 3, 3])), layer, BUILD, gamma, beta)
    assert out.bits.tolist() == [0, 0, 4] and out.flags == 0


def test_a_non_finite_element_makes_zeros():
    x = np.float16([1, np.inf, 2, 3])
    for layer, bits in (
        (LayerSettings(n=4, affine="gamma", output_format="int8"), [0, 0, 0, 0]),
        (LayerSettings(n=4, n_sub=1, affine="gamma", output_format="int8"), [0, 0, 127, 127]),
    ):
        out = row_output(packet(x), layer, BUILD, np.ones(4, np.float16))
        assert out.bits.tolist() == bits


# Packets

N = 10
ELEMENTS = np.random.default_rng(0).integers(-128, 128, 40).astype(np.int8)
LAYER = LayerSettings(n=N, affine="gamma", input_format="int8", output_format="int8")
GAMMA = np.full(64, 30.0, np.float16)
SHORT, LONG, KEEP, ID = RowFlag.SHORT, RowFlag.LONG, RowFlag.KEEP, RowFlag.ID


def of(count, **faults) -> ReceivedRow:
    return packet(ELEMENTS, 0.5, count=count, **faults)


def results(**options) -> list[int]:
    got = normalize(ELEMENTS[:N], GAMMA[:N], configuration=BUILD, x_scale=0.5, **options)
    return got.bits.tolist()


@pytest.mark.parametrize(
    ("row", "flags", "missing"),
    [
        (of(10), RowFlag(0), ()),
        (of(9), SHORT, (9,)),
        (of(8), SHORT, (8, 9)),
        (of(8, beats=2), SHORT, (8, 9)),
        (of(7), SHORT, (7, 8, 9)),
        (of(4), SHORT, (4, 5, 6, 7, 8, 9)),
        (of(4, beats=2), SHORT | KEEP, (4, 5, 6, 7, 8, 9)),
        (of(11), LONG, ()),
        (of(12), LONG, ()),
        (of(13), LONG, ()),
        (of(33), LONG, ()),
        (of(10, beats=3), LONG | KEEP, ()),
        (of(16, beats=3), LONG, ()),
        (of(16, keep={1: 0x13}), LONG | KEEP, ()),
        (of(16, keep={1: 0x83}), LONG | KEEP, ()),
        (of(16, keep={1: 0x8F}), LONG, ()),
        (of(16, keep={1: 0x30}), LONG | KEEP, (8, 9)),
        (of(10, keep={0: 0x7F}), KEEP, (7,)),
        (of(10, keep={0: 0xEF}), KEEP, (4,)),
        (of(10, keep={0: 0x0F}), KEEP, (4, 5, 6, 7)),
        (of(10, keep={1: 0x01}), SHORT, (9,)),
        (of(10, keep={1: 0x02}), SHORT | KEEP, (8,)),
        (of(10, keep={1: 0x05}), SHORT | LONG | KEEP, (9,)),
        (of(7, keep={0: 0x5F}), SHORT | KEEP, (5, 7, 8, 9)),
        (of(10, tid={1: 1}), ID, ()),
        (of(24, tid={2: 1}), LONG, ()),
    ],
)
def test_faults(row, flags, missing):
    """All zeros, or NaN, where the statistics took all elements; else only what is missing."""
    out = row_output(row, LAYER, BUILD, GAMMA)
    assert out.flags & ~RowFlag.OVERFLOW == flags
    assert out.bits.tolist() == ([0] * N if flags else results(output_format="int8"))
    half = LAYER.model_copy(update={"output_format": "fp16"})
    out = row_output(row, half, BUILD, GAMMA)
    assert out.flags == flags
    assert out.bits.tolist() == ([NAN] * N if flags else results())
    for layer, nothing in ((LAYER, 0), (half, NAN)):
        sampled = layer.model_copy(update={"n_sub": 4})
        out = row_output(row, sampled, BUILD, GAMMA)
        want = results(output_format=layer.output_format, n_sub=4)
        assert out.flags & ~RowFlag.OVERFLOW == flags
        assert out.bits.tolist() == [nothing if i in missing else y for i, y in enumerate(want)]


def test_a_row_that_ends_in_a_lower_half():
    """What lies in the upper half is beyond the row, and its TID is that of the whole beat."""
    layer = LAYER.model_copy(update={"n": 4})
    assert len(of(4).halves().data) == 1 and len(of(5).halves().data) == 2
    assert row_output(of(4), layer, BUILD, GAMMA).flags & ~RowFlag.OVERFLOW == 0
    assert row_output(of(5), layer, BUILD, GAMMA).flags == LONG
    assert row_output(of(4, beats=2), layer, BUILD, GAMMA).flags == LONG
    assert row_output(of(16, tid={1: 1}), layer, BUILD, GAMMA).flags == LONG


def test_a_missing_sample_makes_zeros():
    sampled = LAYER.model_copy(update={"n_sub": 6})
    assert row_output(of(10, keep={0: 0xDF}), sampled, BUILD, GAMMA).bits.tolist() == [0] * N
    assert row_output(of(5), sampled, BUILD, GAMMA).bits.tolist() == [0] * N
    assert row_output(of(6), sampled, BUILD, GAMMA).bits.tolist()[6:] == [0] * 4
    assert any(row_output(of(6), sampled, BUILD, GAMMA).bits)


@pytest.mark.parametrize("size", [1, 2])
def test_a_narrow_bus_makes_the_same_packets(size):
    """Beats of 2·size elements; TLAST in the middle of a wide one, a null one, a hole between two, another TID in one."""

    def narrow(count, keep=(), tid=()):
        whole = packet(ELEMENTS, 0.5, count=count, keep=keep, tid=tid, p_n=size)
        return ReceivedRow.collected(whole.data, whole.keep, whole.tid, P_N, 0, whole.x_scale)

    for count in (1, 3, 4, 9, 10, 11, 14, 24):
        got, want = narrow(count).halves(), of(count).halves()
        assert (got.data * got.keep[:, ::2] == want.data * want.keep[:, ::2]).all()
        assert (got.keep == want.keep).all()
        got = row_output(narrow(count), LAYER, BUILD, GAMMA)
        want = row_output(of(count), LAYER, BUILD, GAMMA)
        assert got.bits.tolist() == want.bits.tolist() and got.flags == want.flags
    hole = row_output(narrow(10, keep={1: 0}), LAYER, BUILD, GAMMA)
    assert hole.flags == KEEP
    assert row_output(narrow(10, tid={1: 1}), LAYER, BUILD, GAMMA).flags == ID
    short = LAYER.model_copy(update={"n": 4})
    # In the beat whose lower half is the row's end.
    assert row_output(narrow(8, tid={4 // size - 1: 1}), short, BUILD, GAMMA).flags == LONG | ID


# Several layers, and predicted ISD


def test_rows_of_all_formats_follow_each_other():
    random = np.random.default_rng(8)
    layers = [
        LayerSettings(n=12, affine="gamma", input_format=x, output_format=y, slot=slot)
        for slot, (x, y) in enumerate(
            [("fp16", "fp16"), ("int8", "fp16"), ("fp16", "int8"), ("int8", "int8")]
        )
    ]
    slots = {slot: Slot(random.normal(20, 5, 12).astype(np.float16)) for slot in range(4)}
    rows, asked = [], []
    for index in random.integers(0, 4, 40):
        numbers = random.integers(-99, 99, 12)
        int8 = layers[index].int8_input
        rows.append(packet(numbers.astype(np.int8 if int8 else np.float16), random.random() + 0.1))
        asked.append(layers[index])
    together = row_outputs(rows, asked, BUILD, slots)
    for row, layer, out in zip(rows, asked, together, strict=True):
        alone = row_output(row, layer, BUILD, slots[layer.slot].gamma)
        assert out.bits.tolist() == alone.bits.tolist() and out.flags == alone.flags
    assert len({tuple(out.bits.tolist()) for out in together}) == 40


@pytest.mark.parametrize("x_format", ["fp16", "int8"])
@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_isds_are_kept_and_predicted_in_real_units(mode, x_format):
    """An INT8 row's ISD serves rows of either format: they all see the numbers times their scales."""
    random = np.random.default_rng(9)
    anchor = LayerSettings(n=16, keep_isd=True, mode=mode, input_format="int8", eps=1e-5)
    q = random.integers(-128, 128, 16).astype(np.int8)
    kept = normalize(q, configuration=SKIPPING, mode=mode, x_scale=0.05)
    ratio = 1.375
    skip = LayerSettings(
        n=16,
        mode=mode,
        skip=True,
        anchor=0,
        ratio=ratio,
        input_format=x_format,
    )
    x = random.integers(-128, 128, 16).astype(np.int8)
    x = x if x_format == "int8" else x.astype(np.float16)
    rows = [packet(q, 0.05), packet(x, 0.0625)]
    rows[1] = replace(rows[1], tid=rows[1].tid + 1)
    out = row_outputs(rows, [anchor, skip], SKIPPING, {})
    assert out[1].flags == RowFlag.PREDICTED
    product = Fraction(kept.isd[0]) * Fraction(ratio)
    isd = half_up(product, exponent(product) - 16)
    bits = x if x_format == "int8" else x.view(np.uint16)
    want, _ = exact_row(bits, Fraction(0.0625), None, None, SKIPPING, skip, isd)
    assert out[1].bits.tolist() == want
    # A scale of 0 makes zeros even so.
    rows[1] = replace(rows[1], x_scale=0)
    if x_format == "int8":
        out = row_outputs(rows, [anchor, skip], SKIPPING, {})
        assert out[1].flags == RowFlag.PREDICTED and not out[1].bits.any()


# What is refused

BAD_SETTINGS = [
    ({"input_format": 2}, ONE),
    ({"output_format": 3}, ONE),
    ({"x_scale": float32_bits(-1.0)}, ONE),
    ({"x_scale": 0x80000000}, ONE),
    ({"x_scale": 0x007FFFFF}, ONE),
    ({"x_scale": 0x7F800000}, ONE),
    ({"x_scale": 0x7FC00000}, ONE),
    ({}, float32_bits(-1.0)),
    ({}, 0x80000000),
    ({}, 1),
    ({}, 0x7F800000),
    ({}, 0xFFC00000),
    ({"gamma": 0}, ONE),
]
"""Fields of a record, and a row's scale."""
GOOD_SCALES = [
    ({}, 0),
    ({}, 0x00800000),
    ({}, 0x7F7FFFFF),
    ({"x_scale": 0x00800000}, 0x80000000),
    ({"x_scale": 0x7F7FFFFF}, 1),
    ({"y_scale": 0x7FC00000}, ONE),
]


@pytest.mark.parametrize(
    ("fields", "x_scale"),
    [
        *BAD_SETTINGS,
        ({"cast_before_gamma": 1}, ONE),
    ],
    ids=str,
)
def test_bad_settings_are_one_null_beat(fields, x_scale):
    record = LAYER.record(BUILD) | fields
    row = replace(of(10), x_scale=x_scale)
    assert accepted_settings(record, BUILD, x_scale) is None
    out = row_output(row, record, BUILD, GAMMA)
    assert out.flags == RowFlag.SETTINGS and out.bits.size == 0


@pytest.mark.parametrize(
    ("fields", "x_scale"),
    [
        *GOOD_SCALES,
        ({"input_format": 0, "x_scale": 1}, 0x7FC00000),
        ({"output_format": 0, "gamma": 0}, ONE),
        ({"output_format": 0, "cast_before_gamma": 1}, ONE),
    ],
    ids=str,
)
def test_settings_at_the_limits_work(fields, x_scale):
    """The layer's scale goes before the row's; with FP16 input neither matters, and y_scale never does."""
    record = LAYER.record(BUILD) | fields
    out = row_output(replace(of(10), x_scale=x_scale), record, BUILD, GAMMA)
    assert RowFlag.SETTINGS not in out.flags and out.bits.size == N


def test_without_int8_formats_and_scales_are_of_no_account():
    build = Configuration.preset("tiny").with_(p_n=P_N, p_d=P_N)
    fields = {"input_format": 1, "output_format": 3, "x_scale": 1}
    x = ELEMENTS[:N].astype(np.float16)
    out = row_output(packet(x, -1.0), LayerSettings(n=N).record(build) | fields, build)
    assert out.bits.tolist() == normalize(x, configuration=build).bits.tolist()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"x_scale": 0.5}, "x_scale = 0.5, but input_format = 'fp16'"),
        ({"y_scale": 0.5}, "y_scale = 0.5, but output_format = 'fp16'"),
        ({"input_format": "int8", "x_scale": 0.0}, "x_scale = 0.0"),
        ({"input_format": "int8", "x_scale": 1e-40}, "x_scale = 1e-40"),
        ({"input_format": "int8", "x_scale": -1.0}, "x_scale = -1.0"),
        ({"input_format": "int4"}, "input_format = 'int4'"),
        ({"output_format": "int8"}, "output_format = 'int8' needs a gamma"),
        ({"output_format": "int8", "affine": "beta"}, "affine = 'beta'"),
        (
            {"output_format": "int8", "affine": "gamma", "cast_before_gamma": True},
            "output_format = 'int8' and cast_before_gamma = true",
        ),
    ],
    ids=str,
)
def test_layers_that_cannot_be(fields, words):
    with pytest.raises(ConfigurationError, match="^layer settings: .*" + words):
        LayerSettings.from_dict({"n": 4, **fields})


def test_layers_that_a_build_cannot_do():
    build = Configuration.preset("tiny")
    for name in ("input_format", "output_format"):
        layer = LayerSettings.from_dict({"n": 4, "affine": "gamma", name: "int8"})
        with pytest.raises(ConfigurationError, match=rf"{name} = 'int8', .* formats = \['fp16'\]"):
            layer.check(build)
        layer.check(build.with_(formats=["int8", "fp16"]))


def test_the_record_of_a_layer():
    layer = LAYER.model_copy(update={"x_scale": 0.1, "y_scale": 0.25})
    record = layer.record(BUILD)
    assert [record[f"{x}_format"] for x in ("input", "output")] == [1, 1]
    assert record["x_scale"] == float32_bits(0.1) and record["y_scale"] == float32_bits(0.25)
    assert LAYER.record(BUILD)["x_scale"] == 0
    plain = LayerSettings(n=4).record(BUILD)
    assert [plain[f"{x}_format"] for x in ("input", "output")] == [0, 0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "x_scale, what its elements are multiplied by, is missing"),
        ({"x_scale": -1.0}, "x_scale = -1.0; allowed are 0 and positive normal"),
        ({"x_scale": [1.0, 1e-40]}, "x_scale = 1e-40"),
        ({"x_scale": np.nan}, "x_scale = nan"),
        ({"x_scale": 1e39}, "x_scale = 1e\\+39"),
        (
            {"x_scale": [1.0, 1.0, 1.0]},
            r"x_scale has shape \(3,\); allowed are a number and \(2,\)",
        ),
        ({"x_scale": 1.0, "y_scale": 0.5}, "y_scale = 0.5, but output_format = 'fp16'"),
        ({"x_scale": 1.0, "output_format": "int8", "y_scale": 0.0}, "y_scale = 0.0"),
        (
            {"x_scale": 1.0, "output_format": "int8", "y_scale": 1e-6},
            "gamma has 1.0, which divided by y_scale = 1e-06 is beyond the build's parameter_format = 'fp16'",
        ),
    ],
    ids=str,
)
def test_what_normalize_refuses(options, words):
    with pytest.raises(ConfigurationError, match=words):
        normalize(ELEMENTS.reshape(2, 20), configuration=DEFAULT, **options)
    with pytest.raises(ConfigurationError, match="formats = \\['fp16'\\]"):
        normalize(ELEMENTS, x_scale=1.0)
    with pytest.raises(ConfigurationError, match="x_scale is given, but x is not int8"):
        normalize(ELEMENTS.astype(np.float16), x_scale=1.0, configuration=DEFAULT)


def test_gamma_as_an_offset_is_added_before_it_is_divided():
    offset = np.random.default_rng(6).normal(0, 0.3, 20).astype(np.float32)
    options = {"configuration": FP32, "x_scale": 0.1, "output_format": "int8", "y_scale": 0.03}
    got = normalize(ELEMENTS.reshape(2, 20), offset, one_plus_gamma=True, **options)
    want = normalize(ELEMENTS.reshape(2, 20), 1 + offset.astype(np.float64), **options)
    assert (got.y == want.y).all()


def test_parameters_are_divided_in_float64_and_rounded_once():
    gamma = np.float32([1.0, 0.3, 7.0])
    stored, none = divided(gamma, None, 3, 0.1, DEFAULT)
    assert none is None and stored.dtype == np.float16
    assert stored.tolist() == (gamma.astype(np.float64) / 0.1).astype(np.float16).tolist()
    ones, beta = divided(None, gamma, 3, 0.1, FP32)
    assert ones.dtype == beta.dtype == np.float32
    assert ones.tolist() == [np.float32(10)] * 3


# Cycles

CORE = {"p_n": 4, "p_d": 4, "max_n": 64, "formats": ["fp16", "int8"], "affine": "gamma"}
TIMED = Configuration().with_(**CORE)


def int8_packet(build, n, output="fp16", count=None):
    layer = LayerSettings(n=n, affine="gamma", input_format="int8", output_format=output)
    row = packet(np.zeros(n if count is None else count, np.int8), p_n=build.how.p_n)
    beats = -(-len(row.keep.reshape(-1)[: row.keep.sum()]) // build.bus)
    return Packet(beats, layer, inside=len(row.halves().data))


def test_a_beat_comes_in_every_second_cycle():
    """The register slice takes two; then a place is free when both halves of a beat have moved on."""
    first, second = passages(TIMED, [int8_packet(TIMED, 40), int8_packet(TIMED, 4)], [True], [True])
    # M of the halves: 1, 2; 3, 4; ...
    assert first.in_cycles == [0, 1, 3, 5, 7]
    assert second.in_cycles == [9]


def test_a_beat_without_an_upper_half_takes_one_cycle():
    """Rows of 4 elements: as FP16 beats."""
    rows = passages(TIMED, [int8_packet(TIMED, 4)] * 9, [True], [True])
    assert [row.in_cycles for row in rows] == [[cycle] for cycle in range(9)]
    # 12 elements: three halves.
    rows = passages(TIMED, [int8_packet(TIMED, 12)] * 4, [True], [True])
    assert [row.in_cycles for row in rows] == [[0, 1], [3, 4], [6, 7], [9, 10]]


def test_int8_rows_are_inside_as_fp16_rows():
    """Nothing but the way in and the way out differs: N = 40 takes 10 beats inside."""
    layer = LayerSettings(n=40, affine="gamma")
    (half,) = passages(TIMED, [Packet(10, layer)], [True], [True])
    (whole,) = passages(TIMED, [int8_packet(TIMED, 40)], [True], [True])
    assert whole.out_cycles == half.out_cycles


def test_two_beats_leave_as_one():
    for n, beats in ((16, [1, 3]), (12, [1, 2]), (4, [0]), (8, [1])):
        (single,) = passages(TIMED, [int8_packet(TIMED, n)], [True], [True])
        (double,) = passages(TIMED, [int8_packet(TIMED, n, "int8")], [True], [True])
        assert double.out_cycles == [single.out_cycles[beat] for beat in beats]
        assert double.in_cycles == single.in_cycles


def test_the_first_of_two_does_not_wait_for_the_sink():
    """The sink takes nothing up to cycle 99: then one pair lies ready, and the next one needs two cycles."""
    sink = np.arange(1000) >= 100
    rows = [int8_packet(TIMED, 16, "int8"), int8_packet(TIMED, 4), int8_packet(TIMED, 12, "int8")]
    first, second, third = passages(TIMED, rows, [True], sink)
    assert first.out_cycles == [100, 102]
    assert second.out_cycles == [103]
    assert third.out_cycles == [105, 106]


def test_a_refused_row_is_taken_as_its_format_says():
    """Its beats are swallowed half by half; what comes out is one beat."""
    rows = [Packet(5, None, inside=10), int8_packet(TIMED, 8, "int8")]
    refused, _ = passages(TIMED, rows, [True], [True])
    assert refused.in_cycles == [0, 1, 3, 5, 7]
    assert len(refused.out_cycles) == 1
    refused, _ = passages(TIMED, [Packet(5, None), rows[1]], [True], [True])
    assert refused.in_cycles == [0, 1, 2, 3, 4]


def test_short_and_long_packets():
    """A row of 40 elements of which 5 come is made up at a beat a cycle; one of 4 of which 40 come is swallowed."""
    short = int8_packet(TIMED, 40, "int8", count=5)
    long = int8_packet(TIMED, 4, "int8", count=40)
    rows = passages(TIMED, [short, long, short], [True], [True])
    assert [len(row.in_cycles) for row in rows] == [1, 5, 1]
    assert [len(row.out_cycles) for row in rows] == [5, 1, 5]


def test_a_narrow_bus_carries_whole_pairs():
    """4 of 8 bytes: 10 elements are 3 beats of the bus each way, 8 of them in two; the third comes when the rest of the row is there."""
    build = TIMED.with_(bus_bytes=4)
    (row,) = passages(build, [int8_packet(build, 10, "int8")], [True], [True])
    assert len(row.in_cycles) == len(row.out_cycles) == 3
    half = LayerSettings(n=10, affine="gamma", input_format="int8")
    (wide,) = passages(build, [Packet(3, half, inside=3)], [True], [True])
    assert len(wide.out_cycles) == 5
    # Two beats of the bus to each beat inside: the first pair is whole one cycle after the first beat left, the sink takes it at once.
    assert row.out_cycles[0] == wide.out_cycles[0] + 1
    assert np.diff(row.out_cycles).tolist() == [1, 1]
    rows = passages(build, [int8_packet(build, 64, "int8")] * 20, [True], [True])
    assert {len(row.out_cycles) for row in rows} == {16}
    assert np.diff([row.out_cycles[-1] for row in rows[5:]]).tolist() == [16] * 14


# Accuracy


def real_rows():
    """(mode, x, gamma, beta, eps) of real norms."""
    stored = np.load(DATA / "smollm2_rmsnorm_selected.npz")
    for k in stored["norm_index"]:
        yield "rmsnorm", stored[f"n{k}_x"], stored[f"n{k}_gamma"], None, float(stored["eps"])
    stored = np.load(DATA / "minilm_layernorm.npz")
    for norm in (name.removesuffix("_x") for name in stored.files if name.endswith("_x")):
        x, gamma, beta = (stored[f"{norm}_{part}"] for part in ("x", "gamma", "beta"))
        yield "layernorm", x, gamma, beta, float(stored[f"{norm}_eps"])


def within(y, exact, bound, limit=1.0) -> np.ndarray:
    """Errors of INT8 results in LSB, by a bound before rounding that is below the limit where nothing is saturated."""
    assert ((bound < limit) | (np.abs(exact) > 129 + bound)).all()
    error = lsb_error(y, exact)
    # Where the exact result is farther from a tie than the bound, nothing else can come out.
    tie = np.abs(exact - np.floor(exact) - 0.5)
    assert (error <= (tie <= bound)).all()
    return error


def errors_of_real_rows(judge, build, share):
    """What `judge` says of the rows of each real norm; y_scale is of the whole norm: the largest result, or a quantile, becomes 127."""
    for mode, x, gamma, beta, eps in real_rows():
        q, scale = quantized(x)
        exact = reference(q, gamma, beta, mode=mode, eps=eps, x_scale=scale)
        y_scale = float(np.float32(np.quantile(np.abs(exact.y), share) / 127))
        yield judge(build, q, scale, gamma, beta, mode, eps, y_scale)


def judged(build, q, scale, gamma, beta, mode, eps, y_scale) -> np.ndarray:
    """Errors of INT8 results in LSB, of which it is proved that they can't be more than one; scale None: q is FP16."""
    options = {"mode": mode, "eps": eps, "y_scale": y_scale}
    options |= {} if scale is None else {"x_scale": scale}
    got = normalize(q, gamma, beta, configuration=build, output_format="int8", **options)
    exact = reference(q, gamma, beta, **options)
    layer = LayerSettings(
        n=q.shape[1],
        mode=mode,
        affine="gamma" if beta is None else "gamma+beta",
        input_format="fp16" if scale is None else "int8",
        output_format="int8",
    )
    # Of equal elements the mean is exact, however large their ISD.
    isd = exact.isd if scale is None else exact.isd * scale
    spread = np.where(np.ptp(q.astype(float), axis=1) == 0, 0, isd)
    absolute = absolute_error(build, layer, gamma / y_scale, spread[:, None])
    offset = 0.0 if beta is None else beta / y_scale
    bound = integer_error(build, layer, exact.gamma_xhat, offset, absolute)
    return within(got.y, exact.y, bound)


@pytest.mark.parametrize("share", [1.0, 0.999], ids=["all", "saturating"])
@pytest.mark.parametrize(
    ("build", "equal"), [(DEFAULT, 0.998), (FP32, 0.9995)], ids=["fp16", "fp32"]
)
def test_real_rows_are_as_exact_ones_rounded(build, equal, share):
    """At most one LSB off, and nearly all of them not at all."""
    same = total = 0
    for error in errors_of_real_rows(judged, build, share):
        same, total = same + int((error == 0).sum()), total + error.size
    assert total > 100_000
    assert same / total >= equal


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("build", [DEFAULT, FP32], ids=["fp16", "fp32"])
def test_integers_stay_within_their_bound(mode, build):
    """INT8 in and out, of all kinds and scales."""
    random = np.random.default_rng(12)
    for n in (2, 33, 768):
        q = np.array([integers(random, n) for _ in range(60)])
        scale = np.float32(2.0 ** random.uniform(-60, 60, 60))
        gamma, beta = random.normal(1, 0.5, n), random.normal(0, 1, n)
        for eps in (0.0, 1e-12, 1e-5):
            judged(build, q, scale, gamma, beta, mode, eps, 0.05)
            judged(build, q, scale, gamma, None, mode, eps, 0.02)


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("build", [DEFAULT, FP32], ids=["fp16", "fp32"])
def test_integers_of_fp16_rows_stay_within_their_bound(mode, build):
    random = np.random.default_rng(15)
    x = (random.normal(0, 1, (60, 768)) * 2.0 ** random.integers(-12, 10, (60, 1))).astype("f2")
    gamma, beta = random.normal(1, 0.5, 768), random.normal(0, 1, 768)
    for eps in (0.0, 1e-5):
        judged(build, x, None, gamma, beta, mode, eps, 0.05)
        judged(build, x, None, gamma, None, mode, eps, 0.02)


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("build", [DEFAULT, FP32], ids=["fp16", "fp32"])
def test_fp16_results_of_integers_stay_within_their_bound(mode, build):
    random = np.random.default_rng(13)
    kind = f"f{build.what.parameters.width // 8}"
    for n in (2, 33, 768):
        q = np.array([integers(random, n) for _ in range(60)])
        scale = np.float32(2.0 ** random.uniform(-60, 60, 60))
        gamma, beta = random.normal(1, 0.5, n).astype(kind), random.normal(0, 1, n).astype(kind)
        layer = LayerSettings(n=n, mode=mode, affine="gamma+beta", input_format="int8")
        for eps in (0.0, 1e-12, 1e-5):
            options = {"mode": mode, "eps": eps, "x_scale": scale}
            got = normalize(q, gamma, beta, configuration=build, **options)
            exact = reference(q, gamma, beta, **options)
            absolute = absolute_error(build, layer, gamma, (exact.isd * scale)[:, None])
            unit = ulp(np.maximum(abs(exact.y), abs(exact.gamma_xhat)))
            error = ulp_error(got.y, exact.y, exact.gamma_xhat)
            assert (error <= error_bound(build, layer) + absolute / unit).all()
    assert error_bound(build, layer) < 0.55


def test_the_documented_bounds():
    layer = LayerSettings(n=1, affine="gamma+beta", input_format="int8")
    builds = DEFAULT, DEFAULT.with_(parameter_format="fp32")
    rows = {("int8", "fp16, in ulp", *(up(error_bound(build, layer), 4) for build in builds))}
    for x in ("int8", "fp16"):
        layer = LayerSettings(n=1, affine="gamma+beta", input_format=x, output_format="int8")
        bounds = [integer_error(build, layer, np.array(127.0), 127.0) for build in builds]
        texts = (up(float(bound), 4) for bound in bounds)
        rows.add((x, "int8, in LSB before rounding", *texts))
    assert rows <= table(4)
    scale = error_terms(DEFAULT, layer.model_copy(update={"input_format": "int8"}))["scale"]
    assert [up(part, 5) for part in scale] == ["0.00025"] * 2
    assert "scale" not in error_terms(DEFAULT, layer)
    assert integer_error(builds[1], layer, np.array(2e4), 2e4) < 1


@pytest.mark.parametrize(
    ("y", "y64", "error"),
    [
        (3, 3.4, 0),
        (3, 3.6, 1),
        (2, 2.5, 0),
        (3, 2.5, 1),
        (127, 900.0, 0),
        (-128, -128.6, 0),
        (126, 127.9, 1),
    ],
)
def test_errors_in_lsb(y, y64, error):
    assert lsb_error(np.int8([y]), np.array([y64])).tolist() == [error]


def test_the_reference_takes_integers_as_the_numbers_that_they_are():
    q = np.random.default_rng(14).integers(-128, 128, (3, 50)).astype(np.int8)
    scale = np.float32([0.5, 0.25, 2.0])
    gamma, beta = np.linspace(0.5, 2, 50), np.linspace(-1, 1, 50)
    whole = reference(q, gamma, beta, x_scale=scale, y_scale=0.125)
    half = reference((q * scale[:, None]).astype(np.float16), gamma, beta)
    assert np.allclose(whole.y * 0.125, half.y, rtol=1e-12)
    assert np.allclose(whole.isd, half.isd, rtol=1e-12)
    assert np.allclose(whole.mean, half.mean, rtol=1e-12)
