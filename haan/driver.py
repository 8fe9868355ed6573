# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""Drives an accelerator, on a board at a serial port or simulated bit by bit, with the same calls.

from haan.driver import Accelerator

with Accelerator.open("/dev/ttyUSB0", configuration) as accelerator:     # or "sim"
    accelerator.load_layer(0, settings, gamma=gamma)
    y = accelerator.normalize(x, layer=0).y
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .config import Configuration, ConfigurationError
from .flags import RowFlag
from .formats import INT8
from .layer import LayerSettings, float32_bits
from .link import (
    ANSWER,
    BAUD,
    MOST_WORDS,
    Kind,
    Unpacker,
    packed,
    read_request,
    row_request,
    write_request,
)
from .registers import register_map
from .tools import tool

Array = NDArray[Any]

SILENCE_S = 0.1
"""How long the line may be silent, beside the time that its bytes take, until what wasn't answered is sent again."""
ATTEMPTS = 6
"""How often a request is sent until the link counts as dead."""
WINDOW = 2
"""Rows that are sent before the first one is answered: one comes in while another goes out."""
_WORDS = 64
"""Words in a write: a damaged frame costs no more than them."""


class LinkError(RuntimeError):
    """The hardware doesn't answer, or not as it must; the message is a sentence for the user."""


class Port(Protocol):
    """A serial port, as pyserial has it."""

    timeout: float | None
    baudrate: int

    def read(self, size: int = 1) -> bytes:
        """At least one byte and at most `size`, or none after `timeout` seconds."""

    def write(self, data: bytes, /) -> int | None: ...

    def close(self) -> None: ...


class Link:
    """Requests and their answers over a serial port. What gets lost or damaged on the line, either way, is sent again."""

    def __init__(self, port: Port, silence_s: float = SILENCE_S) -> None:
        self.port = port
        self.silence_s = silence_s
        self.repeated = 0
        """Requests that were sent again, so far."""
        self._unpacker = Unpacker()
        self._sequence = 0

    def request(self, kind: Kind, content: bytes) -> bytes:
        """The content of the answer to one request. LinkError if there is none."""
        return self.requests(kind, [content], 1)[0]

    def requests(self, kind: Kind, contents: Sequence[bytes], window: int = 1) -> list[bytes]:
        """The contents of the answers to requests, of which up to `window` are under way at a time."""
        answers: dict[int, bytes] = {}
        waiting = deque(range(len(contents)))
        under_way: dict[int, tuple[int, bytes]] = {}
        silent = 0
        while waiting or under_way:
            while waiting and len(under_way) < window:
                index = waiting.popleft()
                self._sequence = (self._sequence + 1) % 256
                under_way[self._sequence] = index, bytes([kind, self._sequence]) + contents[index]
                self.port.write(packed(under_way[self._sequence][1]))
            found = self._answers(sum(len(frame) for _, frame in under_way.values()))
            if found is None:
                silent += 1
                if silent == ATTEMPTS:
                    raise LinkError(
                        f"no answer to {kind.name} in {ATTEMPTS} attempts; is the board configured, and its line at {self.port.baudrate} baud?"
                    )
                self.repeated += len(under_way)
                # A flag ends what may stand half received.
                for _, frame in under_way.values():
                    self.port.write(packed(frame))
            for frame in found or []:
                sequence = frame[1] if len(frame) > 1 else -1
                if frame[0] == kind | ANSWER and sequence in under_way:
                    answers[under_way.pop(sequence)[0]] = frame[2:]
                    silent = 0
        return [answers[index] for index in range(len(contents))]

    def _answers(self, size: int) -> list[bytes] | None:
        """Frames, none or more, that came with the next bytes; None: no byte came in the time in which one had to."""
        # Ten bits a byte, twice as many bytes at worst, there and back.
        self.port.timeout = self.silence_s + 40 * size / self.port.baudrate
        data = self.port.read(4096)
        return list(self._unpacker.frames(data)) if data else None


@dataclass(frozen=True, eq=False)
class Normalized:
    """Rows as the hardware gave them."""

    y: Array
    """(rows, N), float16, or int8 if the layer's output is."""
    flags: NDArray[np.uint16]
    """(rows,), `haan.flags.RowFlag`: 0 for a row without a fault."""


class Accelerator:
    """An accelerator behind a link. It is open until `close`, or to the end of a `with`."""

    def __init__(self, link: Link, configuration: Configuration) -> None:
        self.link, self.configuration = link, configuration
        self.registers = register_map(configuration)
        self._layers: dict[int, LayerSettings] = {}

    @classmethod
    def open(cls, where: str, configuration: Configuration, baud: int = BAUD) -> Self:
        """Opens the accelerator at a serial port, or a simulation of it ("sim"), and checks that it is the configuration's.

        Raises ConfigurationError if there is no such port, and LinkError if nothing answers there, or another build does.
        """
        if where == "sim":
            from .sim.link import SimulatedPort

            port: Port = SimulatedPort(configuration)
            link = Link(port, SimulatedPort.SILENCE_S)
        else:
            port = _serial(where, baud)
            link = Link(port)
        try:
            opened = cls(link, configuration)
            opened.identify()
        except BaseException:
            port.close()
            raise
        return opened

    def close(self) -> None:
        self.link.port.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def read(self, name: str) -> int:
        """The word in a register."""
        return self._read(self.registers[name].address, 1)[0]

    def write(self, name: str, word: int) -> None:
        """Writes a register. LinkError if the hardware refuses it."""
        self._write(Kind.WRITE, name, [word])

    def identify(self) -> None:
        """LinkError where the hardware is of another build than the configuration."""
        for name in ("identity", *(f"configuration_hash_{i}" for i in range(8))):
            found, expected = self.read(name), self.registers[name].field("value").reset
            if found != expected:
                raise LinkError(
                    f"the hardware's {name} is {found:#010x}, that of the configuration {self.configuration.name!r} is {expected:#010x}: "
                    "another build runs there"
                )

    def load_layer(
        self,
        number: int,
        settings: LayerSettings,
        *,
        gamma: ArrayLike | None = None,
        beta: ArrayLike | None = None,
        one_plus_gamma: bool = False,
    ) -> None:
        """Writes a layer's settings, and its parameters, if they are given, into its slot.

        Parameters
        ----------
        number : TID of its rows
        gamma, beta : (N,), of values that the build's parameter_format holds
        one_plus_gamma : gamma is an offset from one

        Raises ConfigurationError for what the build can't do; nothing is written then.
        """
        if not 0 <= number < self.configuration.what.layers:
            raise ConfigurationError(
                f"layer {number}: allowed is 0 to {self.configuration.what.layers - 1}"
            )
        record = settings.record(self.configuration)
        given = {"gamma": gamma, "beta": beta}
        vectors = {
            name: self._parameter(name, values, settings.n)
            for name, values in given.items()
            if values is not None
        }
        for name, vector in vectors.items():
            start = self.registers["parameter_address"].pack(
                slot=settings.slot,
                beta=int(name == "beta"),
                one_plus=int(one_plus_gamma and name == "gamma"),
            )
            self.write("parameter_address", start)
            self._write(Kind.STREAM, "parameter_data", vector)
        for name, word in self.registers.layer_words(record).items():
            self.write(name, word)
        self.write("commit", number)
        self._layers[number] = settings

    def normalize(
        self,
        x: ArrayLike,
        layer: int,
        *,
        x_scale: ArrayLike = 1.0,
        token: int = 0,
    ) -> Normalized:
        """Sends rows through a layer that was loaded.

        Parameters
        ----------
        x : (rows, N) or (N,), float16, or int8 if the layer's input is
        x_scale : what INT8 elements are multiplied by, a number or (rows,)
        token : token slot of all the rows
        """
        if layer not in self._layers:
            raise ConfigurationError(
                f"layer {layer} was not loaded; loaded: {sorted(self._layers)}"
            )
        settings = self._layers[layer]
        wanted = _numbers(settings.input_format)
        rows = np.atleast_2d(np.asarray(x))
        if rows.dtype != wanted or rows.ndim != 2 or rows.shape[1] != settings.n:
            raise ConfigurationError(
                f"x is {rows.dtype} of shape {rows.shape}; layer {layer} takes {wanted} of shape (rows, {settings.n})"
            )
        if not 0 <= token < self.configuration.what.token_slots:
            raise ConfigurationError(
                f"token = {token}: allowed is 0 to {self.configuration.what.token_slots - 1}"
            )
        scales = np.broadcast_to(np.asarray(x_scale, np.float32), len(rows)).tolist()
        answers = self.link.requests(
            Kind.ROW,
            [
                row_request(layer, token, float32_bits(scale), row.tobytes())
                for row, scale in zip(rows, scales, strict=True)
            ],
            WINDOW,
        )
        kind = _numbers(settings.output_format)
        y = np.zeros(rows.shape, kind)
        flags = np.zeros(len(rows), np.uint16)
        for index, answer in enumerate(answers):
            flags[index] = int.from_bytes(answer[-2:], "little")
            given = np.frombuffer(answer[:-2], kind)
            if given.size == settings.n:
                y[index] = given
            elif not flags[index]:
                raise LinkError(f"row {index} came back with {given.size} of {settings.n} elements")
        return Normalized(y, flags)

    def faults(self) -> dict[str, int]:
        """How many rows left with each flag since the last reset."""
        return {
            str(flag.name): self.read(f"row_flags_{place}") for place, flag in enumerate(RowFlag)
        }

    def _parameter(self, name: str, values: ArrayLike, n: int) -> list[int]:
        """The words of gamma or beta."""
        kind = np.float32 if self.configuration.what.parameter_format == "fp32" else np.float16
        array = np.asarray(values)
        with np.errstate(over="ignore"):
            vector = array.astype(kind)
        if array.shape != (n,) or not np.array_equal(vector, array, equal_nan=True):
            raise ConfigurationError(
                f"{name} is {array.dtype} of shape {array.shape}; this build takes ({n},) of {np.dtype(kind)} values"
            )
        words: list[int] = vector.view(f"u{vector.itemsize}").tolist()
        return words

    def _read(self, address: int, count: int) -> list[int]:
        assert 0 < count <= MOST_WORDS
        answer = self.link.request(Kind.READ, read_request(address, count))
        if len(answer) != 4 * count + 1 or answer[-1]:
            raise LinkError(f"the hardware refused to read {count} words at {address:#x}")
        words: list[int] = np.frombuffer(answer[:-1], "<u4").tolist()
        return words

    def _write(self, kind: Literal[Kind.WRITE, Kind.STREAM], name: str, words: list[int]) -> None:
        address = self.registers[name].address
        for first in range(0, len(words), _WORDS):
            content = write_request(address, words[first : first + _WORDS])
            if self.link.request(kind, content) != b"\0":
                raise LinkError(f"the hardware refused what was written to {name}")


def _numbers(format_: str) -> np.dtype[Any]:
    return np.dtype(np.int8 if format_ == INT8.name else np.float16)


def _serial(where: str, baud: int) -> Port:
    try:
        import serial
    except ImportError:
        raise ConfigurationError(
            f"{where}: pyserial is not installed; this installs it: {tool('pyserial').install}"
        ) from None
    try:
        port: Port = serial.Serial(where, baud, timeout=SILENCE_S)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{where}: can't be opened: {error}") from None
    return port
