"""Writes TFRecord files with tf.train.Example, byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

_POLYNOMIAL = 0x82F63B78


def _step(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = [_step(byte) for byte in range(256)]


def masked_crc32c(content: bytes) -> bytes:
    state = 0xFFFFFFFF
    for byte in content:
        state = _TABLE[(state ^ byte) & 0xFF] ^ (state >> 8)
    crc = state ^ 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(records: Sequence[bytes]) -> bytes:
    lengths = [struct.pack("<Q", len(record)) for record in records]
    return b"".join(
        length + masked_crc32c(length) + record + masked_crc32c(record)
        for length, record in zip(lengths, records, strict=True)
    )


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(features: dict[str, Any]) -> bytes:
    """A tf.train.Example, as TensorFlow serializes it."""
    entries = b""
    for name, values in features.items():
        if not values:
            feature = b""
        elif isinstance(values[0], bytes):
            feature = field(1, b"".join(field(1, value) for value in values))
        elif isinstance(values[0], float):
            feature = field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            feature = field(3, field(1, b"".join(varint(value) for value in values)))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)
