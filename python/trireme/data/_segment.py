"""Batches in memory that two processes share: Arrow's stream format in a memfd, mapped on both sides.

Segments are used again and again, so that their pages are there. They have no name in any file system: whatever
happens to the processes, nothing is left of them.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import pickle
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_HEADER = 64  # how far a function process has come; read when it has died
_FIRST_BYTES = 1 << 16
_MOST_LENT = 32
_MOST_FREE_BYTES = 128 << 20
_numbers = itertools.count()


class Segment:
    def __init__(self, fd: int, size: int) -> None:
        self._map = mmap.mmap(fd, size)
        self.size = size

    def grow(self, size: int) -> None:
        """Also to the size that the other side has grown it to. Nobody may hold batches of it."""
        if size > self.size:
            self._map.resize(size)
            self.size = size

    def write(self, batches: Sequence[pa.RecordBatch]) -> int:
        """Where they end. One stream for each change of the schema."""
        needed = _HEADER + sum(pa.ipc.get_record_batch_size(batch) for batch in batches) + (4096 if batches else 0)
        while True:
            if needed > self.size:
                self.grow(_rounded(needed))
            try:
                return self._write(batches)
            except OSError as error:
                if "out of bounds" not in str(error):
                    raise
                # Schemas and dictionaries take more than was thought.
                needed = 2 * self.size

    def _write(self, batches: Sequence[pa.RecordBatch]) -> int:
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(memoryview(self._map)[_HEADER:]))
        writer: Any = None
        schema: pa.Schema | None = None
        for batch in batches:
            if writer is None or not batch.schema.equals(schema):
                if writer is not None:
                    writer.close()
                schema = batch.schema
                writer = pa.ipc.new_stream(sink, schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()
        end: int = _HEADER + sink.tell()
        return end

    def read(self, end: int, owner: Any) -> list[pa.RecordBatch]:
        """Not copied: `owner` lives for as long as anything that was made of them."""
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        return _batches(pa.foreign_buffer(begin + _HEADER, end - _HEADER, base=owner))

    def read_copy(self, end: int) -> list[pa.RecordBatch]:
        return _batches(pa.py_buffer(np.frombuffer(self._map, np.uint8, end - _HEADER, _HEADER).copy()))

    def write_object(self, value: Any) -> int:
        data = pickle.dumps(value)
        end = _HEADER + len(data)
        self.grow(_rounded(end))
        self._map[_HEADER:end] = data
        return end

    def read_object(self, end: int) -> Any:
        return pickle.loads(self._map[_HEADER:end])

    @property
    def step(self) -> int:
        return self._map[0]

    @step.setter
    def step(self, index: int) -> None:
        self._map[0] = min(index, 255)


class OwnedSegment(Segment):
    """On the side that makes it and passes its descriptor on."""

    fd = -1

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.fd = os.memfd_create("trireme_functions")
        os.ftruncate(self.fd, _FIRST_BYTES)
        super().__init__(self.fd, _FIRST_BYTES)

    def close(self) -> None:
        """What was read from it stays mapped."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


class Segments:
    """Those of one pool of processes: taken, given back, and lent to whoever holds the batches that are in them."""

    def __init__(self) -> None:
        # Written by destructors, which come at any time and on any thread: by single steps that need no lock.
        self._free: deque[OwnedSegment] = deque()
        self._lent: set[int] = set()

    def take(self) -> OwnedSegment:
        try:
            return self._free.pop()  # the one whose pages were touched last
        except IndexError:
            return OwnedSegment()

    def give_back(self, segment: OwnedSegment) -> None:
        if segment.fd >= 0 and segment.size + sum(free.size for free in list(self._free)) <= _MOST_FREE_BYTES:
            self._free.append(segment)
        else:
            segment.close()

    def lend(self, segment: OwnedSegment, end: int) -> list[pa.RecordBatch]:
        """The batches in it. It comes back when nobody has any of them; those who collect them get copies."""
        if len(self._lent) >= _MOST_LENT:
            batches = segment.read_copy(end)
            self.give_back(segment)
            return batches
        self._lent.add(segment.number)
        return segment.read(end, _Loan(self, segment))

    def returned(self, segment: OwnedSegment) -> None:
        self._lent.discard(segment.number)
        self.give_back(segment)

    def close(self) -> None:
        for segment in list(self._free):
            segment.close()
        self._free.clear()


class _Loan:
    __slots__ = ("_from", "_segment")

    def __init__(self, lender: Segments, segment: OwnedSegment) -> None:
        self._from = lender
        self._segment = segment

    def __del__(self) -> None:
        self._from.returned(self._segment)


def _batches(buffer: pa.Buffer) -> list[pa.RecordBatch]:
    source = pa.BufferReader(buffer)
    found: list[pa.RecordBatch] = []
    while source.tell() < buffer.size:
        found += pa.ipc.open_stream(source)
    return found


def _rounded(size: int) -> int:
    """So that batches which differ a little do not make it grow every time."""
    size += size // 8
    return (size + 0xFFFF) & ~0xFFFF
