# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Spoilt files through the command line: each is taken, or refused with one sentence and status 2; no traceback, no hang, nothing written.

All 10,000: `python -m pytest tests/test_fuzz.py`. The simulator is replaced by the golden model, but for a few files.
"""

import io
import random
import re
import signal
import tomllib
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haan import report, stack_report
from haan.cli import main
from haan.config import Configuration, ConfigurationError
from haan.golden import ReceivedRow, passages, row_outputs
from haan.layer import LayerSettings, float32_bits, record_layout
from haan.sim import RowResult, SimulationResult, StallPattern
from haan.sim.verdict import foreseen, slots

QUICK, ALL = 300, 10_000
SECONDS = 20
"""Longer than this for one file is a hang."""

BUILD = """schema = 1
name = "build"
[what]
formats = ["fp16", "int8"]
norms = ["layernorm", "rmsnorm"]
affine = "gamma+beta"
parameter_format = "fp32"
one_plus_gamma = true
cast_before_gamma = true
subsampling = true
n_sub = 8
max_n = 64
layers = 2
slots = 2
token_slots = 16
skipping = true
anchors = 1
[how]
p_d = 2
p_n = 4
accumulator = "exact"
seed = "segmented"
segments = 64
segment_slopes = true
newton_steps = 1
isd_interval = 1
pipeline = "balanced"
"""
SETTINGS = """mode = "layernorm"
n = 32
eps = 1e-5
n_sub = 8
first = 1
stride = 2
affine = "gamma"
slot = 1
cast_before_gamma = false
"""
LAYERS = """schema = 1
[[layer]]
layer = 0
name = "first"
mode = "rmsnorm"
n = 24
affine = "gamma"
slot = 1
keep_isd = true
[[layer]]
n = 24
eps = 1e-6
skip = true
anchor = 0
ratio = 0.5
guard_low = 0.25
guard_high = 4
guard_action = "exact"
"""
VALUES = [
    *("0", "-1", "1", "3", "65537", "9" * 30, "-" + "9" * 30, "1" * 5000, "0x7fffffffffffffff"),
    *("1.5", "-0.0", "1e400", "nan", "inf", "-inf", "true", "1979-05-27", "07:32:00"),
    *('""', "'fp16'", '"\\u0000"', '"a\\nb"', '"\\U0010FFFF"', '"' + "x" * 100_000 + '"'),
    *("[]", "[[]]", "[1, 'a']", "{}", "{a = {b = 1}}", "[" * 5000 + "]" * 5000, "[nan]"),
]
KEYS = ["p_n", "P_N", '""', '"a\\nb"', "a.b.c", "how.p_n", "x" * 1000, '"\\u2028"', "schema"]


def spoil_bytes(data: bytes, chance: random.Random) -> bytes:
    """Flips, cuts, insertions."""
    spoilt = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 8, 64])):
        at = chance.randrange(len(spoilt) + 1)
        match chance.randrange(5):
            case 0 if at < len(spoilt):
                spoilt[at] ^= 1 << chance.randrange(8)
            case 1:
                spoilt[at:at] = chance.choice(
                    [b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80"]
                )
            case 2:
                del spoilt[at:]
            case 3:
                del spoilt[at : at + chance.randrange(1, 40)]
            case 4:
                other = chance.randrange(len(spoilt) + 1)
                spoilt[at:at] = spoilt[other : other + chance.randrange(40)]
    return bytes(spoilt)


def spoil_toml(text: str, chance: random.Random) -> bytes:
    """Wrong values, unknown and repeated keys, missing lines; or bytes."""
    if chance.random() < 0.3:
        return spoil_bytes(text.encode(), chance)
    lines = text.splitlines()
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        at = chance.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        value = chance.choice(VALUES)
        match chance.randrange(6):
            case 0 | 1 | 2 if equals:
                lines[at] = f"{key} = {value}"
            case 3:
                lines.insert(at, f"{chance.choice(KEYS)} = {value}")
            case 4:
                lines.insert(at, lines[at])
            case 5:
                del lines[at]
    return "\n".join(lines).encode(errors="surrogatepass")


ROWS = np.random.default_rng(1).normal(0.0, 2.0, (3, 24)).astype(np.float16)
PARAMETERS = np.linspace(-1.0, 2.0, 24).astype(np.float32)
ARRAYS: dict[str, Any] = {"x": ROWS, "gamma": PARAMETERS, "beta": PARAMETERS, "eps": 1e-6}
INTEGERS: dict[str, Any] = {
    "x": np.rint(30 * ROWS).astype(np.int8),
    "gamma": PARAMETERS,
    "x_scale": np.array([0.1, 1e-3, 5.0]),
    "y_scale": np.float32(0.05),
    "out_format": "int8",
}
SCALARS: list[Any] = [
    *(0, 1, 3, -1, 2**40, 2**63 - 1, 1.5, np.nan, np.inf, -np.inf, 1e39, 1e-46, -0.0, True),
    *("", "layernorm", "rmsnorm", "fp16", "int8", "a\nb", "x" * 10_000, b"rmsnorm", 1j, None),
    *(np.datetime64("2026-01-01"), np.timedelta64(5), np.zeros((), "i4,f4"), np.float16(2)),
]
SHAPES = ["(10**9, 10**9)", "(-1, 24)", "(3, -24)", "(2**62, 4)", "()", "(3.0, 24)", "(1, 1, 72)"]
SHAPES += ["(3,", "(" * 200, "(0, 24)", "(72,)", "(True, 72)", "[3, 24]", "('3', 24)", "(99, 24)"]
KINDS = [
    "|i1",
    "<f2",
    ">f2",
    "<f4",
    ">f4",
    "<f8",
    "<i2",
    "<u2",
    "|O",
    "<c8",
    "<U8",
    "<M8[s]",
    "|V2",
    "?",
]
KINDS += ["<f3", "", "<U999999999", "(2,)<f2", "x" * 50]
NAMES = ["x", "", "gama", "../x", "a\nb", "eps", "n_sub", "first", "stride", "mode", "format"]
NAMES += ["out_format", "x_scale", "y_scale", "one_plus_gamma", "cast_before_gamma", "é" * 200]
NAMES += ["x.0", "x.2", "x.00", "gamma.0", "gamma.1", "beta.0", "tokens"]
STACK: dict[str, Any] = {"x.0": ROWS, "x.1": ROWS, "gamma.0": PARAMETERS, "tokens": np.arange(3)}


NPZ = {"npz": ARRAYS, "integers": INTEGERS, "stack": STACK}


def npy(values: Any, shape: str, kind: str, fortran: bool) -> bytes:
    """An .npy file with a header of one's own."""
    text = f"{{'descr': {kind!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()
    return (
        b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + np.asarray(values).tobytes()
    )


def spoil_npz(chance: random.Random, arrays: dict[str, Any] = ARRAYS) -> bytes:
    """Arrays of other types and shapes, scalars, headers that lie, names; or bytes."""
    members = []
    for name, values in arrays.items():
        file = io.BytesIO()
        np.save(file, values)
        members.append((f"{name}.npy", file.getvalue()))
    for _ in range(chance.choice([0, 1, 1, 1, 3])):
        at = chance.randrange(len(members))
        name, data = members[at]
        match chance.randrange(6):
            case 0:
                shape = chance.choice(SHAPES)
                members[at] = (name, npy(ROWS, shape, "<f2", chance.random() < 0.2))
            case 1:
                shape, kind = chance.choice(["(3, 24)", "(24,)"]), chance.choice(KINDS)
                members[at] = (name, npy(PARAMETERS, shape, kind, chance.random() < 0.2))
            case 2:
                members[at] = (f"{chance.choice(NAMES)}.npy", data)
            case 3:
                file = io.BytesIO()
                np.save(file, np.array(chance.choice(SCALARS)), allow_pickle=True)
                members.append((f"{chance.choice(NAMES)}.npy", file.getvalue()))
            case 4:
                members[at] = (name, spoil_bytes(data, chance))
            case 5:
                members.append(members[at])
    packing = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    packed = io.BytesIO()
    with (
        warnings.catch_warnings(action="ignore", category=UserWarning),  # Of repeated names.
        zipfile.ZipFile(packed, "w", chance.choice(packing)) as archive,
    ):
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, archive.compression)
    data = packed.getvalue()
    return spoil_bytes(data, chance) if chance.random() < 0.3 else data


def golden_machine(configuration, rows, parameters, **options):
    """Stands for the simulator."""
    p_n = configuration.how.p_n
    packets = [
        ReceivedRow.collected(*row.packet(p_n), p_n, row.token, float32_bits(row.x_scale))
        for row in rows
    ]
    layers = [row.settings for row in rows]
    answers = row_outputs(packets, layers, configuration, slots(configuration, parameters))
    source = options.get("source_idle", StallPattern()).schedule(0)
    always = np.array([True])
    moves = passages(configuration, foreseen(configuration, rows, parameters), source, always)
    results = [
        RowResult(out.bits, out.flags, row.layer, row.token, move.in_cycles, move.out_cycles)
        for row, out, move in zip(rows, answers, moves, strict=True)
    ]
    registers = dict.fromkeys(options.get("registers", ()), 1)
    return SimulationResult(results, source, always, ready_from=0, registers=registers)


@contextmanager
def patience() -> Iterator[None]:
    def hangs(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ends(arguments: list[str], made: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Runs the command; its status, after what it said and wrote was judged."""
    with patience():
        status = main(arguments)
    out, err = capsys.readouterr()
    said = re.sub(r"^haan: warning: .*\n", "", err)
    if status == 2:
        assert out == ""
        assert said.startswith("haan: ")
        assert said.count("\n") == 1
        assert said.endswith("\n")
        assert said.isprintable() or said[:-1].isprintable()
        assert len(said) < 2000
        assert not made.exists()
    else:
        assert (status, said) == (0, "")
        assert made.exists()
    return status


def fuzz(
    kind: str,
    count: int,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Counter[int]:
    """Spoilt files of a kind; how many ended with which status."""
    monkeypatch.setattr("haan.hdl.generate", lambda configuration, **options: "")
    monkeypatch.setattr(report, "simulate", golden_machine)
    monkeypatch.setattr(stack_report, "simulate", golden_machine)
    found: Counter[int] = Counter()
    (folder / "build.toml").write_text(BUILD)
    (folder / "layers.toml").write_text(LAYERS)
    np.savez(folder / "stack.npz", **STACK)
    for seed in range(count):
        chance, made = random.Random(f"{kind} {seed}"), folder / f"made{seed}"
        path, build = folder / f"input.{kind}", str(folder / "build.toml")
        if kind == "toml":
            path.write_bytes(spoil_toml(BUILD, chance))
            arguments = ["generate", str(path), "-o", str(made)]
        elif kind == "layers" and seed % 2:
            path.write_bytes(spoil_toml(LAYERS, chance))
            arguments = ["generate", build, "--layers", str(path), "-o", str(made)]
        else:
            layers, rows = str(folder / "layers.toml"), str(path)
            if kind == "layers":
                path.write_bytes(spoil_toml(LAYERS, chance))
                layers, rows = str(path), str(folder / "stack.npz")
            else:
                path.write_bytes(spoil_npz(chance, NPZ[kind]))
            arguments = ["simulate", build, "--input", rows, "--output", str(made)]
            arguments += ["--layers", layers] * (kind in ("layers", "stack"))
        try:
            found[ends(arguments, made, capsys)] += 1
        except BaseException as error:
            error.add_note(f"{kind} file of seed {seed}")
            raise
    return found


@pytest.mark.parametrize("kind", ["toml", "npz", "integers", "layers", "stack"])
@pytest.mark.parametrize("count", [QUICK, pytest.param(ALL // 4, marks=pytest.mark.slow)])
def test_spoilt_files(kind, count, tmp_path, capsys, monkeypatch):
    found = fuzz(kind, count, tmp_path, capsys, monkeypatch)
    assert found.total() == count
    assert all(found[status] > count / 50 for status in (0, 2)), found


def test_spoilt_settings():
    build = Configuration.from_dict(tomllib.loads(BUILD))
    widths = record_layout(build)
    found: Counter[str] = Counter()
    for seed in range(1000):
        text = spoil_toml(SETTINGS, random.Random(f"settings {seed}"))
        try:
            record = LayerSettings.from_dict(tomllib.loads(text.decode())).record(build)
        except ConfigurationError:
            found["refused"] += 1
        except (ValueError, RecursionError):  # No TOML.
            continue
        else:
            found["taken"] += 1
            assert [name for name, value in record.items() if value >> widths[name]] == []
    assert min(found["taken"], found["refused"]) > 50


def test_a_stride_that_the_record_cannot_hold_is_refused():
    with pytest.raises(ConfigurationError, match="stride = 4294967296"):
        LayerSettings.from_dict({"n": 1, "n_sub": 1, "stride": 1 << 32})


def test_a_few_through_the_simulator(tmp_path, capsys):
    (tmp_path / "build.toml").write_text(BUILD)
    statuses: Counter[int] = Counter()
    for seed in range(30):
        (tmp_path / "x.npz").write_bytes(spoil_npz(random.Random(f"real {seed}")))
        made = tmp_path / f"made{seed}"
        arguments = [str(tmp_path / "build.toml"), "--input", str(tmp_path / "x.npz")]
        statuses[main(["simulate", *arguments, "--output", str(made)])] += 1
        assert "Traceback" not in capsys.readouterr().err
    assert set(statuses) == {0, 2}


def test_an_archive_that_unpacks_to_too_much_is_refused_unread(tmp_path, capsys):
    path, made = tmp_path / "bomb.npz", tmp_path / "made"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy(b"", f"({1 << 20}, {1 << 10})", "<f2", False))
        for _ in range((1 << 10) + 1):
            member.write(bytes(1 << 20))
    assert path.stat().st_size < 8 << 20
    arguments = ["simulate", "--preset", "tiny", "--input", str(path), "--output", str(made)]
    with patience():
        assert main(arguments) == 2
    assert "more than" in capsys.readouterr().err
