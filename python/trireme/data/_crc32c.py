"""CRC-32C of many records at once, as TFRecord files have it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

_POLYNOMIAL = 0x82F63B78
_CHUNKS = (8, 256)


def masked_crc32c(records: Sequence[bytes]) -> np.ndarray:
    """TFRecord's variant of the checksum, for each of the records.

    Records are cut into chunks, and all chunks go through the table side by side: a byte of each at a time. Zeros in
    front change nothing while the state is zero, so everything can be aligned to its end.
    """
    chunk = _CHUNKS[any(len(record) > _CHUNKS[0] for record in records)]
    counts = [max(1, -(-len(record) // chunk)) for record in records]
    lanes: np.ndarray = np.zeros((sum(counts), chunk), np.uint8)
    flat = lanes.reshape(-1)
    end = 0
    for record, count in zip(records, counts, strict=True):
        end += count * chunk
        begin = end - len(record)
        flat[begin:end] = np.frombuffer(record, np.uint8)
        flat[begin : begin + min(4, len(record))] ^= 0xFF  # the state begins with all bits set
    of_chunks = _step_through(lanes)
    state = _join(of_chunks, counts, chunk)
    for index, record in enumerate(records):
        if len(record) < 4:
            state[index] = _slowly(record)
    crc = state ^ np.uint32(0xFFFFFFFF)
    masked: np.ndarray = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)
    return masked


def _step_through(lanes: np.ndarray) -> np.ndarray:
    table = _table()
    state: np.ndarray = np.zeros(len(lanes), np.uint32)
    for column in np.ascontiguousarray(lanes.T):
        state = table[(state ^ column) & np.uint32(0xFF)] ^ (state >> np.uint32(8))
    return state


def _join(of_chunks: np.ndarray, counts: Sequence[int], chunk: int) -> np.ndarray:
    """From the states of chunks to those of records: each is moved on by what follows."""
    ends = np.cumsum(counts)
    longest = max(counts, default=0)
    state: np.ndarray = np.zeros(len(counts), np.uint32)
    tables = _skip_tables(chunk)
    number = np.asarray(counts)
    for back in range(longest, 0, -1):
        state = functools.reduce(
            np.bitwise_xor, (tables[byte][(state >> np.uint32(8 * byte)) & np.uint32(0xFF)] for byte in range(4))
        )
        there = number >= back
        state[there] ^= of_chunks[ends[there] - back]
    return state


@functools.cache
def _table() -> np.ndarray:
    values: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), values >> np.uint32(1))
    return values


@functools.cache
def _skip_tables(chunk: int) -> list[np.ndarray]:
    """What a chunk of zeros does to each byte of the state."""
    table = _table()
    tables = []
    for byte in range(4):
        state: np.ndarray = np.arange(256, dtype=np.uint32) << np.uint32(8 * byte)
        for _ in range(chunk):
            state = table[state & np.uint32(0xFF)] ^ (state >> np.uint32(8))
        tables.append(state)
    return tables


def _slowly(record: bytes) -> int:
    table = _table()
    state = 0xFFFFFFFF
    for byte in record:
        state = int(table[(state ^ byte) & 0xFF]) ^ (state >> 8)
    return state
