# SPDX-FileCopyrightText: 2026 The HAAN developers
# SPDX-License-Identifier: Apache-2.0
"""The frames between a host and the accelerator on a serial line, as docs/link.md has them.

Frames stand between flags, with escapes as in RFC 1662, and end with the CRC-32 of IEEE 802.3, its lowest byte first.
"""

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum

from .config import Configuration
from .numerics import clog2

BAUD = 1_000_000
"""The line's rate unless another one is asked for."""
FLAG, ESCAPE, FLIP = 0x7E, 0x7D, 0x20
CRC_BYTES = 4
ANSWER = 0x80
"""What the kind of a request becomes in its answer."""
MOST_WORDS = 255
"""Words that one READ may ask for."""


class Kind(IntEnum):
    """The first byte of a request; the second one is its sequence number."""

    READ = 1
    """Address (2 bytes), count (1): that many words from consecutive registers."""
    WRITE = 2
    """Address (2), words (4 each) for consecutive registers."""
    STREAM = 3
    """Address (2), words (4 each), all for the one register."""
    ROW = 4
    """TID (2), token slot (2), scale (FP32, 4), then the elements."""


HEADER_BYTES = 2 + 8
"""The longest header, that of a row."""


def frame_bytes(configuration: Configuration) -> int:
    """Bytes, CRC included, that a frame may have: enough for the longest row. A power of two."""
    row = configuration.what.max_n * configuration.what.element.width // 8
    return 1 << clog2(HEADER_BYTES + row + CRC_BYTES)


def packed(frame: bytes) -> bytes:
    """A frame as it goes over the line."""
    whole = frame + zlib.crc32(frame).to_bytes(CRC_BYTES, "little")
    stuffed = whole.replace(bytes([ESCAPE]), bytes([ESCAPE, ESCAPE ^ FLIP]))
    stuffed = stuffed.replace(bytes([FLAG]), bytes([ESCAPE, FLAG ^ FLIP]))
    return bytes([FLAG]) + stuffed + bytes([FLAG])


class Unpacker:
    """Frames from bytes of a line, however they come; damaged ones are left out."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._escaped = False

    def frames(self, data: bytes) -> Iterator[bytes]:
        """The frames that end in these bytes."""
        for byte in data:
            if byte == FLAG:
                whole, damaged = bytes(self._body), self._escaped
                self._body.clear()
                self._escaped = False
                frame = whole[:-CRC_BYTES]
                right = whole[-CRC_BYTES:] == zlib.crc32(frame).to_bytes(CRC_BYTES, "little")
                if frame and right and not damaged:
                    yield frame
            elif byte == ESCAPE:
                self._escaped = True
            else:
                self._body.append(byte ^ FLIP if self._escaped else byte)
                self._escaped = False


def read_request(address: int, count: int = 1) -> bytes:
    """Without kind and sequence number, like those that follow."""
    return struct.pack("<HB", address, count)


def write_request(address: int, words: list[int]) -> bytes:
    return struct.pack(f"<H{len(words)}I", address, *words)


def row_request(layer: int, token: int, scale_bits: int, elements: bytes) -> bytes:
    return struct.pack("<HHI", layer, token, scale_bits) + elements
