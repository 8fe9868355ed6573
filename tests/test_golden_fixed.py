# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""INT8 alone in the golden model: against section 14 of `docs/numerics.md` read once more an element at a time, packets, refusals, cycles,
accuracy."""

from dataclasses import replace
from fractions import Fraction
from math import floor, isinf, isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haan.config import Configuration, ConfigurationError
from haan.flags import RowFlag
from haan.golden import (
    Packet,
    ReceivedRow,
    Slot,
    accepted_settings,
    fixed_error,
    lsb_error,
    normalize,
    passages,
    reference,
    row_output,
    row_outputs,
)
from haan.golden import fixed as lanes
from haan.golden.bounds import isd_error
from haan.latency import core_latency
from haan.layer import LayerSettings, float32_bits
from haan.scaling import quantized

from .test_golden_accuracy import table, up
from .test_golden_exact import (
    down,
    exponent,
    half_up,
    make_parameter,
    number,
    plus,
    root,
    truncated,
)
from .test_golden_int8 import (
    BAD_SETTINGS,
    GOOD_SCALES,
    ROUNDED,
    any_scale,
    errors_of_real_rows,
    integers,
    lanes_isd,
    real_rows,
    within,
)

P_N = 4
BUILD = Configuration.preset("tiny").with_(
    formats=["int8"], affine="gamma+beta", p_n=P_N, p_d=P_N, subsampling=True, slots=8
)
DEFAULT = Configuration().with_(formats=["int8"])
FP32 = DEFAULT.with_(parameter_format="fp32")
ONE = float32_bits(1.0)
INT8 = {"input_format": "int8", "output_format": "int8"}


def packet(q, x_scale=1.0, beats=None, count=None, keep=(), tid=(), p_n=P_N) -> ReceivedRow:
    """Elements in beats of p_n, `count` of them present; `keep` and `tid` are {beat: value} in place of the right ones."""
    count = len(q) if count is None else count
    beats = max(1, -(-count // p_n)) if beats is None else beats
    data = np.zeros(beats * p_n, dtype=np.uint8)
    taken = np.asarray(q, dtype=np.int8).view(np.uint8)[: data.size]
    data[: taken.size] = taken
    kept = (np.arange(data.size) < count).reshape(beats, p_n)
    ids = np.zeros(beats, dtype=np.int64)
    for beat, value in dict(keep).items():
        kept[beat] = value >> np.arange(p_n) & 1
    for beat, value in dict(tid).items():
        ids[beat] = value
    return ReceivedRow(data.reshape(beats, p_n), kept, ids, 0, float32_bits(x_scale))


# The specification in integers


def exact_isd(taken, scale, build, layer):
    """(ISD in real units, that times the scale): fractions; 0 both where var + eps = 0."""
    n = len(taken)
    v = Fraction(n * sum(q * q for q in taken))
    if layer.mode == "layernorm":
        v -= sum(taken) ** 2
    reciprocal = Fraction(1, n * n)
    reciprocal = half_up(reciprocal, exponent(reciprocal) - 23)
    share = truncated(reciprocal * truncated(scale * scale, 24), 24)
    eps = number(float32_bits(layer.eps), 32)
    if eps < Fraction(1, 2**126):
        eps = Fraction(0)
    total = plus(truncated(truncated(v, 24) * share, 24), eps)
    if not total:
        return Fraction(0), Fraction(0)
    k = exponent(total) // 2
    isd = root(down(total / Fraction(4) ** k, -20), build.how) / Fraction(2) ** k
    return half_up(isd, exponent(isd) - 16), lanes_isd(truncated(isd, 24), scale)


def exact_parameter(value: float) -> int:
    """In units of 2^-8."""
    if isnan(value):
        return 0
    if isinf(value) or abs(value) > 511:
        return 511 * 256 if value > 0 else -511 * 256
    return round(Fraction(value) * 256)


def exact_row(q, scale, gamma, beta, build, layer):
    """(INT8 numbers, flags) of a whole row; q, gamma and beta are numbers, beta is None where there is none."""
    growth = (build.what.max_n - 1).bit_length()
    xf, f = 24 - (growth + 1) // 2, 20
    taken = [q[layer.first + layer.stride * j] for j in range(layer.samples)]
    _, times_scale = exact_isd(taken, scale, build, layer)
    # im·2^(ie − 16) is times_scale.
    isd = min(floor(times_scale * 2**xf + Fraction(1, 2)), 2**25 - 1)
    mean = 0
    if layer.mode == "layernorm":
        m = sum(taken) * 2**f // len(taken)
        mean = (2 * m * isd + 2**f) // 2 ** (f + 1)
    results, flags = [], RowFlag(0)
    for at, element in enumerate(q):
        c = element * isd - mean
        assert abs(c) < 2**33
        x = c if -(2**25) <= c < 2**25 else (2**25 if c > 0 else -(2**25))
        p = x * exact_parameter(gamma[at])
        r = (p >> xf) + (0 if beta is None else exact_parameter(beta[at])) + 128
        y = r // 256
        if r % 256 == 0 and p % 2**xf == 0 and y % 2:
            y -= 1
        results.append(min(max(y, -128), 127))
        if results[-1] != y:
            flags |= RowFlag.OVERFLOW
    variance = sum(taken) ** 2 != len(taken) * sum(z * z for z in taken)
    if layer.mode == "rmsnorm":
        variance = any(taken)
    # Zero, and FP32's subnormals.
    if layer.eps < 2.0**-126 and not (variance and scale):
        flags |= RowFlag.ZERO_VARIANCE
    return results, flags


BUILDS = {
    "plain": {"max_n": 64},
    "gamma": {"max_n": 64, "affine": "gamma", "seed": "tuned"},
    "fp32": {"max_n": 4096, "parameter_format": "fp32"},
    "short": {"max_n": 33, "newton_steps": 2},
    "long": {"max_n": 65536, "newton_steps": 0, "segments": 16},
    "subsampling": {"max_n": 128, "subsampling": True},
    "one": {"max_n": 1},
    "two": {"max_n": 2, "parameter_format": "fp32", "affine": "gamma"},
}


def any_layer(random, build, n: int) -> LayerSettings:
    what = build.what
    more = {"n_sub": n} if what.subsampling else {}
    if what.subsampling and random.random() < 0.7:
        first, stride = int(random.integers(n)), int(random.choice([1, 2, 4]))
        count = int(random.integers(1, (n - 1 - first) // stride + 2))
        more = {"first": first, "stride": stride, "n_sub": count}
    scale = any_scale(random) if random.random() < 0.3 else None
    return LayerSettings(
        n=n,
        mode=str(random.choice(["layernorm", "rmsnorm"])),
        eps=float(random.choice(np.float32([0.0, 1e-5, 1e-12, 1e-30, 1e-40, 1.0, 3e38]))),
        affine=str(random.choice(["gamma", "gamma+beta"] if what.beta else ["gamma"])),
        slot=int(random.integers(8)),
        x_scale=scale or None,
        **INT8,
        **more,
    )


def slot_of(random, build) -> Slot:
    """Parameters that make INT8 of x-hat, multiples of a half, and any patterns."""
    kind = f"f{build.what.parameters.width // 8}"
    n = build.what.max_n if build.what.max_n < 64 else 64

    def vector(spread):
        values = make_parameter(random, n, build.what.parameters.width).view(kind)
        if random.random() < 0.7:
            with np.errstate(all="ignore"):
                values = np.multiply(values, spread, dtype=kind)
        if random.random() < 0.3:
            values = (random.integers(-300, 300, n) / 2).astype(kind)
        return values

    return Slot(vector(40), vector(20))


@pytest.mark.parametrize("name", BUILDS)
def test_rows_are_what_the_specification_says(name):
    """Rows of all layers and slots in one call."""
    random = np.random.default_rng(list(BUILDS).index(name))
    build = DEFAULT.with_(**BUILDS[name])
    slots = {slot: slot_of(random, build) for slot in range(8)}
    rows, layers, wanted = [], [], []
    for _ in range(60):
        n = int(random.integers(1, min(33, build.what.max_n), endpoint=True))
        layer = any_layer(random, build, n)
        for _ in range(5):
            own = any_scale(random)
            q = integers(random, n)
            gamma, beta = slots[layer.slot].gamma.tolist(), slots[layer.slot].beta.tolist()
            scale = Fraction(own if layer.x_scale is None else layer.x_scale)
            rows.append(packet(q, own, p_n=build.how.p_n))
            layers.append(layer)
            offset = beta if "beta" in layer.affine else None
            wanted.append(exact_row(q.tolist(), scale, gamma, offset, build, layer))
    records = [layer.record(build) for layer in layers]
    accepted = [
        accepted_settings(record, build, row.x_scale)
        for record, row in zip(records, rows, strict=True)
    ]
    assert accepted == layers
    got = row_outputs(rows, accepted, build, slots)
    for layer, out, (numbers, flags) in zip(layers, got, wanted, strict=True):
        assert out.bits.dtype == np.uint8
        assert out.bits.view(np.int8).tolist() == numbers, layer
        assert out.flags == flags, layer
    seen = {flag for out in got for flag in out.flags}
    assert seen == {RowFlag.ZERO_VARIANCE, RowFlag.OVERFLOW}, "both are met"


@given(
    im=st.integers(1 << 16, (1 << 17) - 1) | st.sampled_from([1 << 16, (1 << 17) - 1]),
    ie=st.integers(-56, 63) | st.integers(-30, 12),
    s1=st.integers(-128 * 4096, 127 * 4096),
    n=st.integers(1, 4096),
    max_n=st.sampled_from([4096, 5000, 65536]),
)
def test_isd_and_mean_in_fixed_point(im, ie, s1, n, max_n):
    build = DEFAULT.with_(max_n=max_n)
    xf = {4096: 18, 5000: 17, 65536: 16}[max_n]
    s1 = max(min(s1, 127 * n), -128 * n)
    layer = LayerSettings(n=n, affine="gamma", **INT8)
    isd = min(floor(Fraction(im) * Fraction(2) ** (ie + xf - 16) + Fraction(1, 2)), 2**25 - 1)
    m = floor(Fraction(s1, n) * 2**20)
    sums = np.array([s1 << 24], dtype=object)
    mean = lanes.row_mean(sums, layer, build)
    assert mean.tolist() == [m]
    got = lanes.row_constants(mean, np.array([im]), np.array([ie]), build)
    assert got.isd.tolist() == [isd]
    assert got.mean.tolist() == [floor(Fraction(m * isd, 2**20) + Fraction(1, 2))]
    rmsnorm = layer.model_copy(update={"mode": "rmsnorm"})
    assert lanes.row_mean(sums, rmsnorm, build).tolist() == [0]


@given(value=st.floats(width=32) | st.floats(-520, 520, width=32))
def test_parameters_as_they_are_stored(value):
    stored = lanes.stored(np.float32([value]), None).gamma
    assert Fraction(float(stored[0])) == Fraction(exact_parameter(value), 256)


def test_parameters_at_the_limits():
    """NaN is 0, what is beyond ±511 is ±511, ties go to even."""
    given = [np.nan, np.inf, -np.inf, 511.25, -60000.0, 511.0, 1 / 512, 3 / 512, -5 / 512, 2.0**-24]
    want = [0, 511, -511, 511, -511, 511, 0, 1 / 128, -1 / 128, 0]
    for kind in (np.float16, np.float32):
        stored = lanes.stored(np.array(given, kind), np.array(given, kind))
        assert stored.gamma.tolist() == stored.beta.tolist() == want


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_the_statistics_are_those_of_builds_with_fp16(mode):
    """The ISD bit by bit; the mean to 20 bits."""
    random = np.random.default_rng(1)
    q = np.array([integers(random, 77) for _ in range(100)])
    scale = np.float32(2.0 ** random.uniform(-30, 30, 100))
    beside = DEFAULT.with_(formats=["fp16", "int8"])
    for eps in (0.0, 1e-12, 1e-5):
        options = {"mode": mode, "eps": eps, "x_scale": scale}
        alone = normalize(q, configuration=DEFAULT, **options)
        mixed = normalize(q, configuration=beside, **options)
        assert (alone.isd == mixed.isd).all()
        assert ((mixed.mean - alone.mean) / scale < 2.0**-20).all()
        assert ((mixed.mean - alone.mean) / scale >= -(2.0**-30)).all()
        assert ((alone.flags ^ mixed.flags) & RowFlag.ZERO_VARIANCE == 0).all()


def test_rows_may_be_in_parts():
    """Long rows and many rows give what each gives alone."""
    random = np.random.default_rng(2)
    build = DEFAULT.with_(max_n=20000)
    for count, n in ((3, 20000), (300, 200)):
        q = random.integers(-128, 128, (count, n)).astype(np.int8)
        gamma = random.normal(30, 9, n).astype(np.float16)
        scale = random.random(count) + 0.1
        whole = normalize(q, gamma, configuration=build, x_scale=scale)
        for row in (0, count - 1):
            one = normalize(q[row], gamma, configuration=build, x_scale=scale[row])
            assert (one.y == whole.y[row]).all() and one.flags[0] == whole.flags[row]


# Rows that are hard


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_rows_of_tiny_scale(mode):
    """Without eps the scale doesn't matter; next to eps = 1e-12 a scale of 1e-30 is nothing."""
    q = np.random.default_rng(3).integers(-128, 128, (1, 64)).astype(np.int8)
    gamma = np.full(64, 50.0, np.float16)
    for scale in (1e-30, 2.0**-126, 1e-5, 1.0, 1e30):
        for eps in (0.0, 1e-12):
            options = {"mode": mode, "x_scale": scale, "eps": eps}
            got = normalize(q, gamma, configuration=DEFAULT, **options)
            assert lsb_error(got.y, reference(q, gamma, **options).y).max() <= 1
            assert not got.flags.any()
            assert np.abs(got.y).max() > 50 or (eps and scale < 1e-20)


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_one_in_a_row_of_zeros(mode):
    """The largest x-hat and the largest ISD that there are: they just fit."""
    for max_n in (1, 2, 3, 4, 64, 100, 4096, 65536):
        n = max_n
        build = DEFAULT.with_(max_n=max_n)
        for value in (-128, -1, 1, 127):
            q = np.zeros((1, n), np.int8)
            q[0, n // 2] = value
            gamma = np.full(n, 128 / n**0.5, np.float16)
            options = {"mode": mode, "x_scale": 1e-3, "eps": 0.0}
            got = normalize(q, gamma, configuration=build, **options)
            exact = reference(q, gamma, **options).y
            assert lsb_error(got.y, exact).max() <= 1
            constant = n == 1 and mode == "layernorm"
            assert abs(int(got.y[0, n // 2])) >= (0 if constant else 100 if n > 2 else 88)


@pytest.mark.parametrize("value", [-128, -1, 0, 1, 127])
def test_constant_rows(value):
    """The mean is exact, so LayerNorm leaves beta whatever the ISD; RMSNorm one."""
    gamma, beta = np.full(100, 30.0, np.float16), np.full(100, 5.0, np.float16)
    for scale, eps in ((1e-30, 0.0), (0.7, 1e-12), (1e30, 1e-37), (1e30, 0.0)):
        q = np.full((1, 100), value, np.int8)
        options = {"configuration": DEFAULT, "x_scale": scale, "eps": eps}
        got = normalize(q, gamma, beta, **options)
        assert (got.y == 5).all()
        assert got.flags.tolist() == [RowFlag(0) if eps else RowFlag.ZERO_VARIANCE]
        got = normalize(q, gamma, mode="rmsnorm", **options)
        assert (got.y == np.sign(value) * 30).all()
        assert got.flags.any() == (value == 0 and not eps)


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
def test_scale_zero_and_rows_of_zeros_are_beta(mode):
    q = np.random.default_rng(4).integers(-128, 128, (3, 64)).astype(np.int8)
    q[2] = 0
    beta = np.arange(-31, 33).astype(np.float16)
    for eps in (0.0, 1e-12):
        got = normalize(
            q, None, beta, configuration=DEFAULT, mode=mode, x_scale=[0.0, 0.02, 0.3], eps=eps
        )
        assert (got.y[[0, 2]] == beta).all() and (got.y[1] != beta).any()
        flag = RowFlag(0) if eps else RowFlag.ZERO_VARIANCE
        assert got.flags.tolist() == [flag, 0, flag]
        assert (got.isd[[0, 2]] == 0).all() != bool(eps)


@pytest.mark.parametrize("n", [1, 2])
def test_short_rows(n):
    """One element: LayerNorm is beta, RMSNorm the sign. Two: the signs of both."""
    q = np.arange(-128, 128).astype(np.int8)
    q = np.stack([q, -np.maximum(q, -127)], axis=1)[:, :n]
    gamma, beta = np.full(n, 100.0, np.float16), np.full(n, 7.0, np.float16)
    got = normalize(q, gamma, beta, configuration=DEFAULT, x_scale=1.0, eps=0.0)
    unlike = q != q[:, ::-1]
    assert (got.y == np.where(unlike, np.sign(q) * 100 + 7, 7)).all()
    got = normalize(q[1:], gamma, configuration=DEFAULT, x_scale=1.0, eps=0.0, mode="rmsnorm")
    assert (got.y == np.sign(q[1:]) * 100).all()


def test_xhat_saturates_beyond_what_a_row_can_have():
    """Samples that are all equal, and other elements: their x-hat is ±2^25/2^XF, whatever eps lets the ISD become."""
    build = DEFAULT.with_(max_n=64, subsampling=True)
    q = np.int8([[5, 5, 6, 4, 127, -128, 5, 5]])
    gamma = np.full(8, 4.0, np.float16)
    for eps in (1e-12, 1e-37):
        got = normalize(q, gamma, configuration=build, x_scale=1.0, n_sub=2, eps=eps)
        # XF = 21.
        assert got.y.tolist() == [[0, 0, 64, -64, 64, -64, 0, 0]]
        assert not got.flags.any()


@pytest.mark.parametrize(("y", "want", "beyond"), ROUNDED)
def test_rounding_and_saturation(y, want, beyond):
    """A row whose result is beta."""
    layer = LayerSettings(n=2, affine="gamma+beta", x_scale=1.0, **INT8)
    out = row_output(packet([3, 3]), layer, BUILD, np.float16([1, 1]), np.float16([y, 0]))
    assert out.bits.view(np.int8).tolist() == [want, 0]
    assert out.flags == (RowFlag.OVERFLOW if beyond else 0)


def test_ties_of_a_product():
    """x-hat is -1 and 1, exactly: gamma·x-hat is a tie by itself and together with beta; next to one it isn't."""
    layer = LayerSettings(n=2, affine="gamma+beta", x_scale=1.0, eps=0.0, **INT8)
    for gamma, beta, want in (
        (0.5, 0.0, [0, 0]),
        (1.5, 0.0, [-2, 2]),
        (2.5, 0.0, [-2, 2]),
        (2.25, 0.25, [-2, 2]),
        (2.25, 1.25, [-1, 4]),
        (0.50390625, 0.0, [-1, 1]),
        (0.49609375, 0.0, [0, 0]),
    ):
        parameters = (np.float16([value, value]) for value in (gamma, beta))
        out = row_output(packet([-1, 1]), layer, BUILD, *parameters)
        assert out.bits.view(np.int8).tolist() == want


def test_parameters_that_are_not_finite():
    """NaN is 0, infinities are the largest there are."""
    layer = LayerSettings(n=4, affine="gamma+beta", eps=0.0, **INT8)
    gamma, beta = np.float16([np.nan, 1, 1, np.inf]), np.float16([9, np.inf, np.nan, -400])
    out = row_output(packet([1, 1, -1, -1]), layer, BUILD, gamma, beta)
    assert out.bits.view(np.int8).tolist() == [9, 127, -1, -128]
    assert out.flags == RowFlag.OVERFLOW


# Packets

N = 10
ELEMENTS = np.random.default_rng(0).integers(-128, 128, 40).astype(np.int8)
LAYER = LayerSettings(n=N, affine="gamma", **INT8)
GAMMA = np.full(64, 30.0, np.float16)
SHORT, LONG, KEEP, ID = RowFlag.SHORT, RowFlag.LONG, RowFlag.KEEP, RowFlag.ID


def of(count, **faults) -> ReceivedRow:
    return packet(ELEMENTS, 0.5, count=count, **faults)


def results(**options) -> list[int]:
    got = normalize(ELEMENTS[:N], GAMMA[:N], configuration=BUILD, x_scale=0.5, **options)
    assert not got.flags.any()
    return got.bits.tolist()


@pytest.mark.parametrize(
    ("row", "flags", "missing"),
    [
        (of(10), RowFlag(0), ()),
        (of(9), SHORT, (9,)),
        (of(8), SHORT, (8, 9)),
        (of(8, beats=3), SHORT, (8, 9)),
        (of(7), SHORT, (7, 8, 9)),
        (of(4), SHORT, (4, 5, 6, 7, 8, 9)),
        (of(4, beats=2), SHORT, (4, 5, 6, 7, 8, 9)),
        (of(4, beats=3), SHORT | KEEP, (4, 5, 6, 7, 8, 9)),
        (of(11), LONG, ()),
        (of(12), LONG, ()),
        (of(13), LONG, ()),
        (of(33), LONG, ()),
        (of(10, beats=4), LONG | KEEP, ()),
        (of(12, beats=4), LONG, ()),
        (of(10, keep={2: 0x7}), LONG, ()),
        (of(10, keep={2: 0xB}), LONG | KEEP, ()),
        (of(10, keep={0: 0x7}), KEEP, (3,)),
        (of(10, keep={0: 0xE}), KEEP, (0,)),
        (of(10, keep={1: 0x0}), KEEP, (4, 5, 6, 7)),
        (of(10, keep={2: 0x1}), SHORT, (9,)),
        (of(10, keep={2: 0x2}), SHORT | KEEP, (8,)),
        (of(10, keep={2: 0x5}), SHORT | LONG | KEEP, (9,)),
        (of(7, keep={1: 0x5}), SHORT | KEEP, (5, 7, 8, 9)),
        (of(10, tid={1: 1}), ID, ()),
        (of(24, tid={3: 1}), LONG, ()),
    ],
)
def test_faults(row, flags, missing):
    """All zeros where the statistics took all elements; else what is missing. Neither sets OVERFLOW."""
    out = row_output(row, LAYER, BUILD, GAMMA)
    assert out.flags == flags
    assert out.bits.tolist() == ([0] * N if flags else results())
    sampled = LAYER.model_copy(update={"n_sub": 4})
    out = row_output(row, sampled, BUILD, GAMMA)
    assert out.flags == flags
    if set(missing) & {0, 1, 2, 3}:
        assert out.bits.tolist() == [0] * N
    else:
        want = results(n_sub=4)
        assert out.bits.tolist() == [0 if i in missing else y for i, y in enumerate(want)]


def test_what_is_missing_or_void_does_not_overflow():
    """Gamma would saturate all; element 4 alone is there and saturates, or none."""
    gamma, beta = GAMMA * 0, np.where(np.arange(64) == 4, 5, 500).astype(np.float16)
    layer = LAYER.model_copy(update={"affine": "gamma+beta", "n_sub": 1, "first": 4})
    row = of(10, keep={0: 0, 1: 1, 2: 0})
    out = row_output(row, layer, BUILD, gamma, beta)
    assert out.flags == SHORT | KEEP
    assert out.bits.tolist() == [0, 0, 0, 0, 5, 0, 0, 0, 0, 0]
    out = row_output(row, layer, BUILD, gamma, beta * 101)
    assert out.flags == SHORT | KEEP | RowFlag.OVERFLOW
    void = layer.model_copy(update={"n_sub": None, "first": 0})
    out = row_output(row, void, BUILD, gamma, beta)
    assert out.flags == SHORT | KEEP and not out.bits.any()


def test_a_row_of_zeros_that_is_void_tells_of_no_variance():
    layer = LAYER.model_copy(update={"eps": 0.0})
    zeros = packet(np.zeros(N, np.int8))
    assert row_output(zeros, layer, BUILD, GAMMA).flags == RowFlag.ZERO_VARIANCE
    short = packet(np.zeros(N, np.int8), count=9)
    assert row_output(short, layer, BUILD, GAMMA).flags == SHORT


def test_a_missing_sample_makes_zeros():
    sampled = LAYER.model_copy(update={"n_sub": 6})
    assert row_output(of(10, keep={1: 0xD}), sampled, BUILD, GAMMA).bits.tolist() == [0] * N
    assert row_output(of(5), sampled, BUILD, GAMMA).bits.tolist() == [0] * N
    assert row_output(of(6), sampled, BUILD, GAMMA).bits.tolist()[6:] == [0] * 4
    assert any(row_output(of(6), sampled, BUILD, GAMMA).bits)


@pytest.mark.parametrize("size", [2, 1])
def test_a_narrow_bus_makes_the_same_packets(size):
    """Beats of `size` elements; TLAST in the middle of a wide one, a null one, a hole between two, another TID in one."""

    def narrow(count, keep=(), tid=()):
        whole = packet(ELEMENTS, 0.5, count=count, keep=keep, tid=tid, p_n=size)
        return ReceivedRow.collected(whole.data, whole.keep, whole.tid, P_N, 0, whole.x_scale)

    for count in (1, 3, 4, 9, 10, 11, 14, 24):
        got, want = narrow(count), of(count)
        assert got.data.dtype == np.uint8
        assert (got.data * got.keep == want.data * want.keep).all()
        assert (got.keep == want.keep).all()
        got, want = (row_output(row, LAYER, BUILD, GAMMA) for row in (got, want))
        assert got.bits.tolist() == want.bits.tolist() and got.flags == want.flags
    hole = row_output(narrow(10, keep={1: 0}), LAYER, BUILD, GAMMA)
    assert hole.flags == KEEP
    assert row_output(narrow(10, tid={1: 1}), LAYER, BUILD, GAMMA).flags == ID


# What is refused


@pytest.mark.parametrize(
    ("fields", "x_scale"),
    [
        ({"input_format": 0}, ONE),
        ({"output_format": 0}, ONE),
        *BAD_SETTINGS,
        ({"gamma": 0, "beta": 1}, ONE),
        ({"valid": 0}, ONE),
        ({"n": 0}, ONE),
        ({"eps": float32_bits(-1.0)}, ONE),
        ({"n_sub": 0}, ONE),
        ({"first": 1}, ONE),
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
        ({"cast_before_gamma": 1}, ONE),
        ({"skip": 1, "keep_isd": 1, "ratio": 0x7FC00000}, ONE),
    ],
    ids=str,
)
def test_settings_at_the_limits_work(fields, x_scale):
    """The layer's scale goes before the row's; y_scale never matters, nor what the build can't do."""
    record = LAYER.record(BUILD) | fields
    out = row_output(replace(of(10), x_scale=x_scale), record, BUILD, GAMMA)
    assert RowFlag.SETTINGS not in out.flags and out.bits.size == N


def test_layers_that_the_build_cannot_do():
    for name in ("input_format", "output_format"):
        layer = LAYER.model_copy(update={name: "fp16"})
        with pytest.raises(ConfigurationError, match=rf"{name} = 'fp16', .* formats = \['int8'\]"):
            layer.check(BUILD)


def test_what_normalize_refuses():
    x = ELEMENTS.reshape(2, 20)
    for array, options, words in (
        (x, {}, "x_scale, what its elements are multiplied by, is missing"),
        (x, {"x_scale": -1.0}, "x_scale = -1.0; allowed are 0 and positive normal"),
        (x, {"x_scale": 1.0, "output_format": "fp16"}, r"formats = \['int8'\]"),
        (x.astype(np.float16), {}, r"input_format = 'fp16', .* formats = \['int8'\]"),
        (x, {"x_scale": 1.0, "y_scale": 1e-6}, "gamma has 1.0, which divided by y_scale = 1e-06"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            normalize(array, configuration=DEFAULT, **options)


# Cycles


def int8_packet(n, count=None):
    layer = LayerSettings(n=n, affine="gamma", **INT8)
    return Packet(-(-(n if count is None else count) // P_N), layer)


TIMED = Configuration().with_(formats=["int8"], p_n=P_N, p_d=P_N, max_n=64, affine="gamma")


def test_a_beat_of_elements_moves_in_every_cycle():
    """Ten beats of four bytes in and out: nothing is taken apart or put together."""
    first, second = passages(TIMED, [int8_packet(40), int8_packet(4)], [True], [True])
    assert first.in_cycles == list(range(10)) and second.in_cycles == [10]
    latency = 2 * 9 + core_latency(TIMED)
    assert first.out_cycles == list(range(latency - 9, latency + 1))
    assert second.out_cycles == [latency + 1]
    short, long = passages(TIMED, [int8_packet(40, 5), int8_packet(4, 40)], [True], [True])
    assert [len(row.in_cycles) for row in (short, long)] == [2, 10]
    assert [len(row.out_cycles) for row in (short, long)] == [10, 1]


def test_a_narrow_bus_carries_bytes():
    build = TIMED.with_(bus_bytes=2)
    layer = LayerSettings(n=10, affine="gamma", **INT8)
    (row,) = passages(build, [Packet(5, layer)], [True], [True])
    assert len(row.in_cycles) == len(row.out_cycles) == 5
    assert np.diff(row.in_cycles).tolist() == [1] * 4


# Accuracy


def judged(build, q, scale, gamma, beta, mode, eps, y_scale=1.0, limit=1.0) -> np.ndarray:
    """Errors of results in LSB, of which it is proved that they can't be more than one."""
    options = {"mode": mode, "eps": eps, "y_scale": y_scale, "x_scale": scale}
    got = normalize(q, gamma, beta, configuration=build, **options)
    exact = reference(q, gamma, beta, **options)
    layer = LayerSettings(
        n=q.shape[1], mode=mode, affine="gamma" if beta is None else "gamma+beta", **INT8
    )
    divided = gamma.astype(np.float64) / y_scale
    offset = 0.0 if beta is None else beta.astype(np.float64) / y_scale
    factor = np.where(divided, divided, 1)
    xhat = np.where(divided, exact.gamma_xhat / factor, 0)
    isd = (exact.isd * scale)[:, None]
    bound = fixed_error(build, layer, divided, xhat, offset, isd)
    return within(got.y, exact.y, bound, limit)


@pytest.mark.parametrize("share", [1.0, 0.999], ids=["all", "saturating"])
@pytest.mark.parametrize(
    ("build", "equal"), [(DEFAULT, 0.995), (FP32, 0.995)], ids=["fp16", "fp32"]
)
def test_real_rows_are_as_exact_ones_rounded(build, equal, share):
    """At most one LSB off, and nearly all of them not at all."""
    same = total = 0
    for error in errors_of_real_rows(judged, build, share):
        assert (error == 0).mean() >= 0.99
        same, total = same + int((error == 0).sum()), total + error.size
    assert total > 100_000
    assert same / total >= equal


@pytest.mark.parametrize("mode", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("max_n", [768, 4096, 65536])
@pytest.mark.parametrize("fmt", ["fp16", "fp32"])
def test_integers_stay_within_their_bound(mode, max_n, fmt):
    """Of all kinds and scales, with parameters that are usual, and as large as they get."""
    random = np.random.default_rng(12)
    build = DEFAULT.with_(max_n=max_n, parameter_format=fmt)
    for n in (1, 2, 33, 768):
        q = np.array([integers(random, n) for _ in range(60)])
        scale = np.float32(2.0 ** random.uniform(-60, 60, 60))
        for spread in (20, 150):
            gamma, beta = (np.clip(random.normal(0, spread, n), -511, 511) for _ in range(2))
            for eps in (0.0, 1e-12, 1e-5):
                judged(build, q, scale, gamma, beta, mode, eps)
                judged(build, q, scale, gamma, None, mode, eps)


def test_the_bound_of_the_isd():
    assert isd_error(DEFAULT) < 1.2e-5
    assert isd_error(DEFAULT.with_(newton_steps=0)) > 1e-3


def test_the_documented_bounds():
    gamma = np.linspace(0.1, 511, 5001)
    rows = set()
    for max_n in (768, 4096, 65536):
        builds = [build.with_(max_n=max_n) for build in (DEFAULT, FP32)]
        most = np.minimum(max_n**0.5, 641 / gamma)
        for mode, distance in (("layernorm", 255), ("rmsnorm", 128)):
            layer = LayerSettings(n=1, mode=mode, affine="gamma+beta", **INT8)
            usual = [fixed_error(b, layer, 127 / 3, 3.0, 127.0, 3 / distance) for b in builds]
            any_row = [fixed_error(b, layer, gamma, most, 511.0, most / distance) for b in builds]
            bounds = (up(float(bound.max()), 4) for bound in (*usual, *any_row))
            rows.add((str(max_n), mode, *bounds))
            # The other end of what A can be is no worse.
            slow = fixed_error(builds[0], layer, gamma, most, 511.0, max_n / (max_n - 1) ** 0.5)
            assert (slow < any_row[0]).all()
    assert rows == {row for row in table(6) if row[0] in ("768", "4096", "65536")}
    long = DEFAULT.with_(max_n=65536)
    layer = LayerSettings(n=1, affine="gamma+beta", **INT8)
    most = np.minimum(256, (130 + 255) / gamma[gamma <= 255])
    assert fixed_error(long, layer, gamma[gamma <= 255], most, 255.0, most / 255).max() < 1


def test_the_documented_shares_of_equal_results():
    """As tensors of real norms are quantized: y_scale of the largest result, and of a quantile."""
    rows = set()
    for share, word in ((1.0, "largest"), (0.999, "quantile")):
        errors: dict[str, list[list[np.ndarray]]] = {"rmsnorm": [[], []], "layernorm": [[], []]}
        for mode, x, gamma, beta, eps in real_rows():
            q, scale = quantized(x)
            options = {"mode": mode, "eps": eps, "x_scale": scale}
            exact = reference(q, gamma, beta, **options).y
            y_scale = float(np.float32(np.quantile(np.abs(exact), share) / 127))
            exact = reference(q, gamma, beta, y_scale=y_scale, **options).y
            for build, found in zip((DEFAULT, FP32), errors[mode], strict=True):
                got = normalize(q, gamma, beta, configuration=build, y_scale=y_scale, **options)
                found.append(lsb_error(got.y, exact).ravel())
        for mode, name in (("rmsnorm", "SmolLM2, RMSNorm"), ("layernorm", "MiniLM, LayerNorm")):
            equal = (100 * np.mean(np.concatenate(found) == 0) for found in errors[mode])
            rows.add((name, word, *(f"{value:.2f} %" for value in equal)))
    assert rows <= table(4)
