"""A table that other processes on this machine can read without a copy."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

from trireme.data import _tensors as _tensors  # registers our tensor types with Arrow
from trireme.data._fragment import DataError


class SharedTable:
    """A table in a memfd, which is freed when the last process closes it.

    Its pickle is a few bytes: the path to the memory through the owner's /proc/<pid>/fd. Unpickling maps the same
    pages. It works while the owner runs and keeps the object.
    """

    def __init__(self, table: pa.Table, file: int, size: int, key: tuple[int, int, int]) -> None:
        self.table = table
        self._file = file
        self._size = size
        self._key = key  # owner's pid and file there, and the memory's inode

    @classmethod
    def put(cls, table: pa.Table) -> SharedTable:
        """Copies it once, into shareable memory."""
        file = os.memfd_create("trireme-table", os.MFD_CLOEXEC)
        try:
            with pa.OSFile(f"/proc/self/fd/{file}", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            found = os.fstat(file)
            return cls(_read(file), file, found.st_size, (os.getpid(), file, found.st_ino))
        except BaseException:
            os.close(file)
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (*self._key, self._size)

    def __del__(self) -> None:
        # A process that was forked from the owner has its own descriptors.
        if os is not None and self._file >= 0:
            os.close(self._file)


def _attach(pid: int, file: int, inode: int, size: int) -> SharedTable:
    path = f"/proc/{pid}/fd/{file}"
    try:
        own = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DataError(
            f"the table in memory of process {pid} cannot be read here ({error.strerror}): that process has ended, or "
            "is on another machine. Keep the driver running, or write the dataset to files that all machines can read"
        ) from error
    found = os.fstat(own)
    if (found.st_ino, found.st_size) != (inode, size):
        os.close(own)
        raise DataError(
            f"the table in memory of process {pid} no longer exists: its dataset was deleted in that process. Keep a "
            "reference to it while others read it"
        )
    return SharedTable(_read(own), own, size, (pid, file, inode))


def _read(file: int) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(f"/proc/self/fd/{file}")).read_all()
