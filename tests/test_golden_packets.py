# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""`row_output`: what answers a packet, whole or with faults."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haan.config import Configuration, ConfigurationError
from haan.flags import RowFlag
from haan.golden import ReceivedRow, normalize, row_output
from haan.layer import LayerSettings

P_N = 4
BUILD = Configuration.preset("tiny").with_(
    p_n=P_N, p_d=P_N, subsampling=True, cast_before_gamma=True
)
SETTINGS = LayerSettings(n=10)
SAMPLED = LayerSettings(n=10, n_sub=4)
"""From elements 0 to 3: the first beat."""
ELEMENTS = np.random.default_rng(0).standard_normal(16).astype(np.float16)
WHOLE = normalize(ELEMENTS[:10], configuration=BUILD).bits
OF_FOUR = normalize(ELEMENTS[:10], configuration=BUILD, n_sub=4).bits
NAN = 0x7E00


def packet(elements=10, beats=None, **faults) -> ReceivedRow:
    """A row of so many elements in so many beats; `keep` and `tid` are {beat: value} in place of the right ones."""
    beats = -(-elements // P_N) if beats is None else beats
    data = np.resize(ELEMENTS.view(np.uint16), (beats, P_N))
    keep = (np.arange(beats * P_N) < elements).repeat(2).reshape(beats, 2 * P_N)
    tid = np.zeros(beats, dtype=np.int64)
    for beat, value in faults.get("keep", {}).items():
        keep[beat] = value >> np.arange(2 * P_N) & 1
    for beat, value in faults.get("tid", {}).items():
        tid[beat] = value
    return ReceivedRow(data, keep, tid)


def with_nans(bits, *at):
    return [NAN if i in at else b for i, b in enumerate(bits.tolist())]


def test_a_whole_row():
    out = row_output(packet(), SETTINGS, BUILD)
    assert (out.bits == WHOLE).all()
    assert out.flags == 0


@pytest.mark.parametrize(
    ("row", "flags", "missing"),
    [
        (packet(9), RowFlag.SHORT, (9,)),
        (packet(8), RowFlag.SHORT, (8, 9)),
        (packet(5), RowFlag.SHORT, (5, 6, 7, 8, 9)),
        (packet(8, beats=3), RowFlag.SHORT, (8, 9)),
        (packet(11), RowFlag.LONG, ()),
        (packet(12), RowFlag.LONG, ()),
        (packet(13), RowFlag.LONG, ()),
        (packet(40), RowFlag.LONG, ()),
        (packet(10, beats=4), RowFlag.LONG | RowFlag.KEEP, ()),
        (packet(12, beats=4), RowFlag.LONG, ()),
        (packet(16, keep={3: 0x05}), RowFlag.LONG, ()),
        (packet(20, keep={3: 0x05}), RowFlag.LONG, ()),
        (packet(keep={1: 0x3F}), RowFlag.KEEP, (7,)),
        (packet(keep={1: 0x00}), RowFlag.KEEP, (4, 5, 6, 7)),
        (packet(keep={1: 0xFD}), RowFlag.KEEP, (4,)),
        (packet(keep={2: 0x07}), RowFlag.KEEP | RowFlag.SHORT, (9,)),
        (packet(keep={2: 0x0C}), RowFlag.KEEP | RowFlag.SHORT, (8,)),
        (packet(keep={2: 0x1F}), RowFlag.KEEP | RowFlag.LONG, ()),
        (packet(keep={2: 0x33}), RowFlag.KEEP | RowFlag.SHORT | RowFlag.LONG, (9,)),
        (packet(6, keep={1: 0x0D}), RowFlag.KEEP | RowFlag.SHORT, (4, 6, 7, 8, 9)),
        (packet(tid={1: 1}), RowFlag.ID, ()),
        (packet(tid={2: 1}), RowFlag.ID, ()),
        (packet(16, tid={3: 1}), RowFlag.LONG, ()),
        (packet(9, tid={1: 1}), RowFlag.ID | RowFlag.SHORT, (9,)),
    ],
)
def test_faults(row, flags, missing):
    """All NaN where the statistics took all elements; else only what is missing."""
    out = row_output(row, SETTINGS, BUILD)
    assert out.flags == flags
    assert out.bits.tolist() == [NAN] * 10
    sampled = row_output(row, SAMPLED, BUILD)
    assert sampled.flags == flags
    assert sampled.bits.tolist() == with_nans(OF_FOUR, *missing)


def test_a_missing_sample_makes_all_nan():
    out = row_output(packet(keep={0: 0x3F}), SAMPLED, BUILD)
    assert out.bits.tolist() == [NAN] * 10
    assert out.flags == RowFlag.KEEP
    out = row_output(packet(3), SAMPLED, BUILD)
    assert out.bits.tolist() == [NAN] * 10
    assert out.flags == RowFlag.SHORT


def test_what_is_missing_is_neither_nonfinite_nor_an_overflow():
    row = packet(keep={0: 0x3F, 1: 0x3F})
    row.data[0, 3] = row.data[1, 3] = 0x7C00
    assert row_output(row, SAMPLED, BUILD).flags == RowFlag.KEEP
    assert row_output(row, SETTINGS, BUILD).flags == RowFlag.KEEP
    row.data[0, 0] = 0x7C00
    for settings in (SETTINGS, SAMPLED):
        out = row_output(row, settings, BUILD)
        assert out.flags == RowFlag.KEEP | RowFlag.NONFINITE
        assert out.bits.tolist() == [NAN] * 10
    big = np.full(10, 0, np.float16)
    big[7] = 60000
    settings = SAMPLED.model_copy(update={"affine": "gamma"})
    gamma = np.full(10, 60000, np.float16)
    row = packet(keep={1: 0x3F})
    row.data[:] = np.resize(big.view(np.uint16), (3, P_N))
    row.data[0, 0] = 0x3C00
    gamma[0] = 0
    flags = row_output(row, settings, BUILD, gamma).flags
    assert flags == RowFlag.KEEP
    row.keep[:2] = True
    assert row_output(row, settings, BUILD, gamma).flags == RowFlag.OVERFLOW


def test_zero_variance_is_not_reported_of_rows_that_are_all_nan():
    settings = LayerSettings(n=10, eps=0.0)
    row = packet()
    row.data[:] = 0x3C00
    assert row_output(row, settings, BUILD).flags == RowFlag.ZERO_VARIANCE
    row.tid[1] = 1
    assert row_output(row, settings, BUILD).flags == RowFlag.ID
    settings = LayerSettings(n=10, eps=0.0, n_sub=4)
    assert row_output(row, settings, BUILD).flags == RowFlag.ID | RowFlag.ZERO_VARIANCE


def test_a_non_finite_element_that_is_not_sampled_is_alone():
    row = packet()
    row.data[1, 1] = 0xFC00
    out = row_output(row, SAMPLED, BUILD)
    assert out.flags == 0
    assert out.bits.tolist() == with_nans(OF_FOUR, 5)


@pytest.mark.parametrize(
    "fields",
    [
        {"valid": 0},
        {"n": 0},
        {"n": 65},
        {"n_sub": 0},
        {"n_sub": 11},
        {"n_sub": 10, "first": 1},
        {"n_sub": 6, "stride_log2": 1},
        {"n_sub": 2, "stride_log2": 31},
        {"eps": 0xB727C5AC},
        {"eps": 0x80000001},
        {"eps": 0x7F800000},
        {"eps": 0xFF800000},
        {"eps": 0x7FC00000},
    ],
    ids=str,
)
def test_bad_settings_are_one_null_beat(fields):
    out = row_output(packet(tid={1: 1}), SETTINGS.record(BUILD) | fields, BUILD)
    assert out.flags == RowFlag.SETTINGS
    assert out.bits.size == 0


def test_samples_are_of_no_account_without_subsampling():
    build = Configuration.preset("tiny").with_(p_n=P_N, p_d=P_N)
    fields = {"n_sub": 0, "first": 60, "stride_log2": 3}
    out = row_output(packet(), SETTINGS.record(build) | fields, build)
    assert out.flags == 0
    assert (out.bits == WHOLE).all()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"eps": 0x80000000},
        {"eps": 0x7F7FFFFF},
        {"n_sub": 5, "stride_log2": 1, "first": 1},
        {"n_sub": 1, "first": 9, "stride_log2": 31},
    ],
    ids=str,
)
def test_settings_at_the_limits_work(fields):
    out = row_output(packet(), SETTINGS.record(BUILD) | fields, BUILD)
    assert RowFlag.SETTINGS not in out.flags
    assert not np.isnan(out.bits.view(np.float16)).any()


def test_minus_zero_eps_is_zero():
    row = packet()
    row.data[:] = 0x3C00
    record = SETTINGS.record(BUILD) | {"eps": 0x80000000}
    assert row_output(row, record, BUILD).flags == RowFlag.ZERO_VARIANCE


@given(
    st.integers(1, 64),
    st.sampled_from(["none", "gamma", "beta", "gamma+beta"]),
    st.sampled_from(["layernorm", "rmsnorm"]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_whole_packets_are_what_normalize_gives(n, affine, mode, cast, seed):
    random = np.random.default_rng(seed)
    x = (random.standard_normal(n) * 2.0 ** random.integers(-12, 12)).astype(np.float16)
    gamma, beta = random.standard_normal((2, 64)).astype(np.float16)
    settings = LayerSettings(n=n, mode=mode, affine=affine, cast_before_gamma=cast)
    beats = -(-n // P_N)
    data = np.zeros(beats * P_N, dtype=np.uint16)
    data[:n] = x.view(np.uint16)
    keep = (np.arange(beats * P_N) < n).repeat(2)
    row = ReceivedRow(
        data.reshape(beats, P_N), keep.reshape(beats, -1), np.zeros(beats, dtype=np.int64)
    )
    want = normalize(
        x,
        gamma[:n] if "gamma" in affine else None,
        beta[:n] if "beta" in affine else None,
        configuration=BUILD,
        mode=mode,
        cast_before_gamma=cast,
    )
    out = row_output(row, settings, BUILD, gamma, beta)
    assert (out.bits == want.bits).all()
    assert out.flags == want.flags[0]


def test_parameters_that_are_used_must_be_there():
    settings = LayerSettings(n=10, affine="gamma")
    with pytest.raises(ConfigurationError, match="gamma, of which 0 of 10 elements"):
        row_output(packet(), settings, BUILD)
    with pytest.raises(ConfigurationError, match="gamma, of which 9 of 10 elements"):
        row_output(packet(), settings, BUILD, np.ones(9, np.float16))
