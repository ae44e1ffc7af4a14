"""Values on their way between processes: small ones in the message, large ones in shared memory.

Arrays of a large value are mapped where they are read, without a copy, and are read-only, as in Ray.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
from dataclasses import dataclass
from typing import Any

from trireme._ship import dumps
from trireme.compat.ray._refusal import NotInTrireme

_INLINE = 64 << 10
_COUNT = struct.Struct("<QQ")  # offset and size of each part; the first part is the pickle


@dataclass(frozen=True)
class Stored:
    """A value, or the exception in its place. In shared memory it names a descriptor of the driver."""

    data: bytes | None
    failed: bool = False
    pid: int = 0
    fd: int = -1
    inode: int = 0
    size: int = 0


def store(value: Any, failed: bool = False) -> tuple[Stored, int | None]:
    """The second part is the descriptor of its memory, which the driver must be sent; the caller closes it."""
    buffers: list[pickle.PickleBuffer] = []
    body = dumps(value, buffers.append)
    parts: list[Any] = [body, *(buffer.raw() for buffer in buffers)]
    size = sum(memoryview(part).nbytes for part in parts)
    if size <= _INLINE:
        return Stored(_packed(parts), failed), None
    fd = os.memfd_create("trireme_ray_value", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(fd), "wb") as file:
        _write(file, parts)
    found = os.fstat(fd)
    return Stored(None, failed, 0, fd, found.st_ino, found.st_size), fd


def load(stored: Stored) -> Any:
    if stored.data is not None:
        return _unpacked(memoryview(stored.data))
    path = f"/proc/{stored.pid}/fd/{stored.fd}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NotInTrireme(
            f"the value of this reference is in the memory of the driver (pid {stored.pid}), which has ended or is on "
            f"another machine ({error.strerror}): there is no distributed object store; store large values in files"
        ) from error
    try:
        if os.fstat(fd).st_ino != stored.inode:
            raise NotInTrireme("the value of this reference was freed: keep the reference in the process that made it")
        return _unpacked(memoryview(mmap.mmap(fd, stored.size, access=mmap.ACCESS_READ)))
    finally:
        os.close(fd)


def _layout(parts: list[Any]) -> tuple[list[tuple[int, int]], int]:
    at = _COUNT.size * (len(parts) + 1)
    places = []
    for part in parts:
        at = (at + 63) // 64 * 64
        size = memoryview(part).nbytes
        places.append((at, size))
        at += size
    return places, at


def _packed(parts: list[Any]) -> bytes:
    import io

    with io.BytesIO() as file:
        _write(file, parts)
        return file.getvalue()


def _write(file: Any, parts: list[Any]) -> None:
    places, end = _layout(parts)
    file.write(_COUNT.pack(len(parts), end))
    for place in places:
        file.write(_COUNT.pack(*place))
    at = _COUNT.size * (len(parts) + 1)
    for (begin, size), part in zip(places, parts, strict=True):
        file.write(b"\0" * (begin - at))
        file.write(part)
        at = begin + size
    file.flush()


def _unpacked(view: memoryview) -> Any:
    count, _ = _COUNT.unpack_from(view, 0)
    parts = []
    for index in range(count):
        begin, size = _COUNT.unpack_from(view, _COUNT.size * (index + 1))
        parts.append(view[begin : begin + size])
    return pickle.loads(parts[0], buffers=parts[1:])
