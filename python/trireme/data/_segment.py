"""Batches in memory shared by two processes: Arrow's stream format in a memfd, mapped on both sides.

Segments are reused, so that their pages are already allocated. They have no name in any file system: nothing remains
when the processes exit or crash.
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

_HEADER = 64  # the progress of a function process; read if it dies
_FIRST_BYTES = 1 << 16
_MOST_LENT = 32
_MOST_FREE_BYTES = 128 << 20
_numbers = itertools.count()


class Segment:
    def __init__(self, fd: int, size: int) -> None:
        self._map = mmap.mmap(fd, size)
        self.size = size

    def grow(self, size: int) -> None:
        """Grows it, or follows the other side's growth. No batch of it may be in use."""
        if size > self.size:
            self._map.resize(size)
            self.size = size

    def write(self, batches: Sequence[pa.RecordBatch]) -> int:
        """Returns the end of the batches. Writes one stream for each schema."""
        needed = _HEADER + sum(pa.ipc.get_record_batch_size(batch) for batch in batches) + (4096 if batches else 0)
        while True:
            if needed > self.size:
                self.grow(_rounded(needed))
            try:
                return self._write(batches)
            except OSError as error:
                if "out of bounds" not in str(error):
                    raise
                # Schemas and dictionaries take more space than estimated.
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
        """Without a copy: `owner` lives while any object that uses the memory does."""
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
    """The side that creates the segment and sends its descriptor."""

    fd = -1

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.fd = os.memfd_create("trireme_functions")
        os.ftruncate(self.fd, _FIRST_BYTES)
        super().__init__(self.fd, _FIRST_BYTES)

    def close(self) -> None:
        """Batches that were read from it stay mapped."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()


class Segments:
    """The segments of one pool of processes. A segment is lent while batches in it are in use."""

    def __init__(self) -> None:
        # Destructors change these at any time on any thread: only with atomic operations, without a lock.
        self._free: deque[OwnedSegment] = deque()
        self._lent: set[int] = set()

    def take(self) -> OwnedSegment:
        try:
            return self._free.pop()  # the most recently used
        except IndexError:
            return OwnedSegment()

    def give_back(self, segment: OwnedSegment) -> None:
        if segment.fd >= 0 and segment.size + sum(free.size for free in list(self._free)) <= _MOST_FREE_BYTES:
            self._free.append(segment)
        else:
            segment.close()

    def lend(self, segment: OwnedSegment, end: int) -> list[pa.RecordBatch]:
        """The batches in it. It is returned when none is in use. Callers that collect many batches get copies."""
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
    """Rounds up, so that small differences between batches do not grow the segment every time."""
    size += size // 8
    return (size + 0xFFFF) & ~0xFFFF
