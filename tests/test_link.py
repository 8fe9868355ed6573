# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The host link: frames, and the whole accelerator behind a serial line that is simulated bit by bit, worked by the driver that boards are."""

import json
import zlib
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haan import golden
from haan.cli import main
from haan.config import Configuration, ConfigurationError
from haan.driver import Accelerator, Link, LinkError
from haan.flags import RowFlag
from haan.hdl import generate_uart
from haan.hdl.uart import phase_step
from haan.layer import LayerSettings
from haan.link import ANSWER, FLAG, Kind, Unpacker, frame_bytes, packed, row_request, write_request
from haan.sim.link import SimulatedPort

TINY = Configuration.preset("tiny").with_(p_n=4, bus_bytes=4, layers=4, slots=2, token_slots=4)
LAYER = LayerSettings(mode="layernorm", n=21, affine="gamma+beta", slot=1)


def open_sim(build=TINY, noise=None) -> Accelerator:
    port = SimulatedPort(build, noise=noise)
    try:
        accelerator = Accelerator(Link(port, SimulatedPort.SILENCE_S), build)
        accelerator.identify()
    except BaseException:
        port.close()
        raise
    return accelerator


def rows(count: int, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, n)).astype(np.float16)


# Frames


@given(st.lists(st.binary(min_size=1), max_size=5), st.integers(1, 7))
def test_frames_come_back(frames, size):
    line = b"".join(map(packed, frames))
    unpacker = Unpacker()
    pieces = [line[i : i + size] for i in range(0, len(line), size)]
    assert [frame for piece in pieces for frame in unpacker.frames(piece)] == frames
    assert line.count(FLAG) == 2 * len(frames)


@given(st.binary(min_size=1, max_size=40), st.data())
def test_damaged_frames_are_left_out_and_the_next_one_is_found(frame, data):
    line = bytearray(packed(frame))
    place = data.draw(st.integers(1, len(line) - 2))
    if data.draw(st.booleans()):
        del line[place]
    else:
        line[place] ^= data.draw(st.integers(1, 255))
    found = list(Unpacker().frames(bytes(line) + packed(b"next")))
    assert found[-1] == b"next" and frame not in found[:-1]


def test_a_frame_by_hand():
    assert zlib.crc32(b"123456789") == 0xCBF43926
    assert packed(b"\x7e\x7d") == b"\x7e\x7d\x5e\x7d\x5d" + packed(b"\x7e\x7d")[5:]
    assert row_request(0x1234, 0x56, 0x3F800000, b"ab") == bytes.fromhex("3412 5600 0000803f 6162")
    assert write_request(0x80, [1, 2]) == bytes.fromhex("8000 01000000 02000000")


def test_the_longest_row_fits():
    assert frame_bytes(TINY) >= 2 + 8 + 2 * TINY.what.max_n + 4


@pytest.mark.parametrize(("clock", "baud"), [(25e6, 3_200_000), (100e6, 0), (1e6, 921_600)])
def test_rates_that_the_clock_can_not_do(clock, baud):
    with pytest.raises(ConfigurationError, match=f"baud = {baud}: allowed is 1 to"):
        phase_step(clock, baud)


def test_no_link_for_builds_with_the_statistics_stream():
    with pytest.raises(ConfigurationError, match="statistics_stream = true"):
        generate_uart(TINY.with_(statistics_stream=True), 1e8, 1_000_000)


# The hardware


def test_rows_through_the_line():
    x = rows(6, 21)
    gamma, beta = rows(2, 21, 1)
    with Accelerator.open("sim", TINY) as accelerator:
        accelerator.load_layer(1, LAYER, gamma=gamma, beta=beta)
        accelerator.load_layer(2, LayerSettings(mode="rmsnorm", n=1, eps=0.0))
        got = accelerator.normalize(x, 1)
        single = accelerator.normalize(np.float16([[3], [-4], [0]]), 2, token=3)
        x[3, 4] = np.nan
        bad = accelerator.normalize(x[3], 1)
        faults = accelerator.faults()
        repeated = accelerator.link.repeated
    expected = golden.normalize(rows(6, 21), gamma, beta, configuration=TINY)
    assert got.y.tobytes() == expected.y.tobytes() and not got.flags.any()
    assert single.y.tolist() == [[1], [-1], [0]]
    assert np.isnan(bad.y).all() and bad.flags == [RowFlag.NONFINITE]
    assert faults["NONFINITE"] == 1
    assert repeated == 0


@pytest.mark.parametrize("kind", [pytest.param("int8", marks=pytest.mark.slow), "mixed"])
def test_integer_rows_through_the_line(kind):
    build = TINY.with_(formats=["int8"] if kind == "int8" else ["fp16", "int8"], p_n=8, p_d=8)
    x = np.random.default_rng(2).integers(-128, 128, (3, 19)).astype(np.int8)
    settings = LayerSettings(
        mode="rmsnorm",
        n=19,
        input_format="int8",
        output_format="int8",
        y_scale=0.02,
        affine="gamma",
    )
    with open_sim(build) as accelerator:
        accelerator.load_layer(0, settings, gamma=np.full(19, 50, np.float16))
        got = accelerator.normalize(x, 0, x_scale=[0.5, 0.25, 3.0])
    expected = golden.normalize(
        x,
        configuration=build,
        mode="rmsnorm",
        eps=settings.eps,
        x_scale=np.float32([0.5, 0.25, 3.0]),
        output_format="int8",
        y_scale=0.02,
    )
    assert got.y.tobytes() == expected.y.tobytes()
    assert got.flags.tolist() == expected.flags.tolist()


class Noise:
    """Wrong bits, and bytes that are lost."""

    def __init__(self, share: float) -> None:
        self.random = np.random.default_rng(4)
        self.share = share
        self.damage = 0

    def __call__(self, data: bytes) -> tuple[bytes, dict[int, int]]:
        kept = bytes(byte for byte in data if self.random.random() >= self.share / 2)
        flips = {
            place: 1 << int(self.random.integers(10))
            for place in range(len(kept))
            if self.random.random() < self.share / 2
        }
        self.damage += len(data) - len(kept) + len(flips)
        return kept, flips


def test_noise_on_the_line_costs_only_time():
    noise = Noise(0.01)
    x, gamma = rows(12, 21), rows(1, 21, 1)[0]
    with open_sim(noise=noise) as accelerator:
        accelerator.load_layer(1, LayerSettings(mode="rmsnorm", n=21, affine="gamma"), gamma=gamma)
        got = accelerator.normalize(x, 1)
        assert accelerator.link.repeated > 2 and noise.damage > 5
    expected = golden.normalize(x, gamma, configuration=TINY, mode="rmsnorm")
    assert got.y.tobytes() == expected.y.tobytes() and not got.flags.any()


def test_frames_that_mean_nothing_and_then_one_that_does():
    """Too short, too long, of an unknown kind, empty, with part of a word, a row without elements, flags alone."""
    with open_sim() as accelerator:
        port = accelerator.link.port
        frames = [bytes(size) for size in (0, 1, 2, 5)]
        frames += [bytes([kind, 77]) + bytes(size) for kind in Kind for size in range(4)]
        frames += [bytes([Kind.ROW, 78]) + bytes(7), bytes([9, 1, 2]), bytes(frame_bytes(TINY))]
        for frame in frames:
            port.write(packed(frame))
            # Whatever the answer is, the hardware isn't busy with it any more.
            port.timeout = 1e-5
            while port.read(100):
                pass
        for frame in (b"\x7e\x7e\x7e", b"\x01\x02\x7e", b"\x7d\x7e"):
            port.write(frame)
        # Frames that ended too early took nothing of this one along.
        accelerator.read("identity")
        repeated = accelerator.link.repeated
        accelerator.load_layer(0, LayerSettings(mode="rmsnorm", n=4, eps=0.0))
        assert accelerator.link.repeated == repeated
        assert accelerator.normalize(np.float16([2, 2, 2, 2]), 0).y.tolist() == [[1, 1, 1, 1]]


def test_a_repeated_write_is_answered_and_not_done_again():
    """A counter of writes would tell: the place that parameter_data is written to."""
    with open_sim() as accelerator:
        registers = accelerator.registers
        accelerator.write("parameter_address", registers["parameter_address"].pack(slot=0))
        data = registers["parameter_data"].address
        frame = bytes([Kind.STREAM, 200]) + write_request(data, [0x3C00, 0x3C00, 0x3C00])
        port, unpacker = accelerator.link.port, Unpacker()
        for _ in range(3):
            port.write(packed(frame))
            port.timeout = 1e-4
            answers = []
            while not answers:
                answers = list(unpacker.frames(port.read(100)))
            assert answers == [bytes([Kind.STREAM | ANSWER, 200, 0])]
        word = accelerator.read("parameter_address")
        assert registers["parameter_address"].unpack(word)["index"] == 3


def test_refused_accesses():
    with open_sim() as accelerator:
        with pytest.raises(LinkError, match="refused"):
            accelerator.write("identity", 1)
        with pytest.raises(LinkError, match="refused"):
            accelerator._read(0xFFC, 1)
        assert accelerator.read("identity") == int.from_bytes(b"HAAN", "little")


# The driver


def test_another_build():
    port = SimulatedPort(TINY)
    other = TINY.with_(slots=1)
    try:
        with pytest.raises(LinkError, match="another build runs there"):
            Accelerator(Link(port, SimulatedPort.SILENCE_S), other).identify()
    finally:
        port.close()


class Silent:
    """A port at which nothing answers, but what is said beforehand."""

    timeout, baudrate = 0.0, 1_000_000

    def __init__(self, answers: list[bytes]) -> None:
        self.answers, self.sent = deque(answers), 0

    def read(self, size: int = 1) -> bytes:
        return self.answers.popleft() if self.answers else b""

    def write(self, data: bytes) -> int:
        self.sent += 1
        return len(data)

    def close(self) -> None: ...


def test_nothing_answers():
    port = Silent([])
    with pytest.raises(LinkError, match="no answer to READ in 6 attempts.*1000000 baud"):
        Accelerator(Link(port), TINY).identify()
    assert port.sent == 6


def test_late_and_foreign_answers_are_left_out():
    right = packed(bytes([Kind.READ | ANSWER, 1, 5, 0, 0, 0, 0]))
    foreign = [packed(frame) for frame in (b"\x81\x07abcd\0", b"\x82\x01\0", b"\x81", b"\x00\x01")]
    link = Link(Silent([*foreign, b"", right]))
    assert link.request(Kind.READ, b"\0\0\1") == bytes([5, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.load_layer(4, LAYER), r"layer 4: allowed is 0 to 3"),
        (lambda a: a.load_layer(0, LAYER, gamma=np.ones(3)), r"gamma is float64 of shape \(3,\)"),
        (lambda a: a.load_layer(0, LAYER, gamma=np.full(21, 1e-9)), r"takes \(21,\) of float16"),
        (lambda a: a.normalize(np.ones((1, 21), np.float16), 3), r"layer 3 was not loaded"),
    ],
)
def test_what_the_driver_refuses(call, message):
    with pytest.raises(ConfigurationError, match=message):
        call(Accelerator(Link(Silent([])), TINY))


def test_no_such_port():
    with pytest.raises(ConfigurationError, match="/dev/none: can't be opened"):
        Accelerator.open("/dev/none", TINY)


# The command


def test_run(tmp_path, capsys):
    x, gamma = rows(5, 21), rows(1, 21, 1)[0]
    np.savez(tmp_path / "x.npz", x=x, gamma=gamma, mode="rmsnorm", eps=1e-6)
    config = tmp_path / "link.toml"
    config.write_text(
        "schema = 1\n[what]\nmax_n = 64\nlayers = 4\nslots = 2\ntoken_slots = 4\n"
        "[how]\np_d = 2\np_n = 4\nbus_bytes = 4\n"
    )
    arguments = ["run", str(config), "--port", "sim", "--input", str(tmp_path / "x.npz")]
    assert main([*arguments, "--output", str(tmp_path / "y.npz"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bit_exact"] and report["rows"] == 5 and report["repeated"] == 0
    assert report["max_error"] <= 0.55
    expected = golden.normalize(x, gamma, configuration=TINY, mode="rmsnorm", eps=1e-6)
    with np.load(tmp_path / "y.npz") as written:
        assert written["y"].tobytes() == expected.y.tobytes()
        assert not written["flags"].any()


@pytest.mark.parametrize(
    ("port", "status", "message"),
    [("/dev/none", 2, "/dev/none: can't be opened"), ("silent", 1, "no answer to READ")],
)
def test_run_without_an_answer(port, status, message, tmp_path, capsys, monkeypatch):
    if port == "silent":
        monkeypatch.setattr("haan.driver._serial", lambda where, baud: Silent([]))
    np.savez(tmp_path / "x.npz", x=rows(1, 8))
    arguments = ["run", "--preset", "tiny", "--port", port, "--input", str(tmp_path / "x.npz")]
    assert main(arguments) == status
    printed = capsys.readouterr()
    assert message in printed.err and not printed.out and "Traceback" not in printed.err
