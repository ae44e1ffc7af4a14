"""What a worker has made of its rows, kept in files for the next attempt of the run.

A killed process takes the rows in memory with it. With the files, the next one neither reads nor quantizes them again.
The driver owns the folder, and removes it at the end of the run; if the driver is killed, the next run does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from trireme._boosting._rows import Batch, Columns, WorkerRows, gathered
from trireme._session import get_context


class Kept:
    """The files of this worker. They are valid for the same rank of as many workers: the rows depend on both.

    A file appears under its name when it is complete. A node that does not see the driver's files has none.
    """

    def __init__(self, folder: str) -> None:
        context = get_context()
        self._folder = folder
        self._prefix = f"{context.get_world_rank()}-of-{context.get_world_size()}"
        self._usable = os.path.isdir(folder)
        if self._usable:
            self._remove_others(f"-of-{context.get_world_size()}-")

    def _remove_others(self, ours: str) -> None:
        """Those for another number of workers: the rows are on the disk once."""
        for name in os.listdir(self._folder):
            if ours not in name:
                with contextlib.suppress(FileNotFoundError):  # another rank was faster
                    os.remove(os.path.join(self._folder, name))

    @classmethod
    def of(cls, config: dict[str, Any]) -> Kept | None:
        """None: nothing is kept in this run. The same on all ranks."""
        return cls(config["kept"]) if config["kept"] else None

    def path(self, name: str) -> str:
        return os.path.join(self._folder, f"{self._prefix}-{name}")

    def have_all(self, names: list[str]) -> bool:
        """Whether every rank has these files of an earlier attempt. Collective."""
        if get_context()._attempt == 0:
            return False
        return agreed(all(os.path.exists(self.path(name)) for name in names))

    def write(self, name: str, write: Callable[[str], object]) -> bool:
        """Whether the file exists now. Training does not fail with the disk: the next attempt reads the rows again."""
        if not self._usable:
            return False
        path = self.path(name)
        try:
            write(f"{path}.part")
            os.rename(f"{path}.part", path)
        except OSError as error:
            self._usable = False
            with contextlib.suppress(OSError):
                os.remove(f"{path}.part")
            print(f"warning: a restart will read the rows again: they cannot be kept in {path}: {error}", flush=True)
        return self._usable

    def limit(self, start: str, most: int) -> None:
        """Removes all but the newest files whose names begin with this."""
        if self._usable:
            names = [name for name in os.listdir(self._folder) if name.startswith(f"{self._prefix}-{start}")]
            paths = sorted((os.path.join(self._folder, name) for name in names), key=os.path.getmtime)
            for path in paths[:-most]:
                os.remove(path)


def agreed(ok: bool) -> bool:
    """Whether it is true on all ranks. Collective."""
    return all(gathered(ok))


class KeptRows:
    """The batches of WorkerRows, from a file that is mapped into memory."""

    def __init__(self, kept: Kept, name: str, columns: Columns) -> None:
        self.name = name
        self.columns = columns
        self._table = pa.ipc.open_file(pa.memory_map(kept.path(rows_file(name))))
        self.rows = 0

    def __iter__(self) -> Iterator[Batch]:
        width = len(self.columns.features)
        self.rows = 0
        for index in range(self._table.num_record_batches):
            batch = self._table.get_batch(index)
            self.rows += batch.num_rows
            label, *weight = (each.to_numpy() for each in batch.columns[width:])
            features = pa.table(batch.columns[:width], names=list(self.columns.features))
            yield Batch(features, label, weight[0] if weight else None, None)

    def release(self) -> None:
        pass


def rows_file(name: str) -> str:
    return f"rows-{name}.arrow"


def keep_rows(kept: Kept, rows: WorkerRows) -> bool:
    """Whether they are kept: only rows that are in memory, as they are there."""
    return rows.are_held and kept.write(rows_file(rows.name), lambda path: _write_rows(rows, path))


def _write_rows(rows: WorkerRows, path: str) -> None:
    writer = None
    try:
        for batch in rows:
            columns: list[Any] = [column.combine_chunks() for column in batch.table.columns]
            columns += [pa.array(each) for each in (batch.label, batch.weight) if each is not None]
            record = pa.record_batch(columns, names=[str(index) for index in range(len(columns))])
            if writer is None:
                writer = pa.ipc.new_file(path, record.schema)
            writer.write_batch(record)
    finally:
        if writer is not None:
            writer.close()
