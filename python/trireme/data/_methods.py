"""Shared by the parts of Dataset."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeGuard

import pyarrow as pa

from trireme.data._derived import name_of, stream_of
from trireme.data._fragment import Op, Source
from trireme.data._plan import Plan
from trireme.data._promotion import one_table
from trireme.data._stats import Reading

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether it is an integer of Python or numpy; booleans are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


class DatasetMethods:
    _plan: Plan
    _reading: Reading | None = None  # the last pass

    def _made(self, plan: Plan | Source) -> Dataset:
        from trireme.data._dataset import Dataset

        made = Dataset(plan)
        made._name = getattr(self, "_name", None)
        made._context = getattr(self, "_context", made._context)
        return made

    def _then(self, op: Op) -> Dataset:
        return self._made(self._plan.then(op))

    def _stream(self, ahead: bool = True) -> Iterator[pa.RecordBatch]:
        """The rows in order; errors are raised unchanged. Holds only a few batches in memory."""
        self._reading = Reading()
        return self._reading.watch(stream_of(self._plan, ahead))

    def _table(self, limit: int | None = None) -> pa.Table:
        table = one_table(self._within(limit), name_of(self._plan))
        return self._plan.schema().empty_table() if table is None else table

    def _within(self, limit: int | None) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in self._stream():
            rows += batch.num_rows
            if limit is not None and rows > limit:
                raise ValueError(f"the dataset has more rows than limit={limit}; limit({limit}) returns the first")
            yield batch
