"""What the parts of Dataset have in common."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeGuard

import pyarrow as pa

from trireme.data._derived import stream_of
from trireme.data._fragment import Op, Source
from trireme.data._plan import Plan
from trireme.data._stats import Reading

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number, of Python or of numpy; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


class DatasetMethods:
    _plan: Plan
    _reading: Reading | None = None  # the last one

    def _made(self, plan: Plan | Source) -> Dataset:
        from trireme.data._dataset import Dataset

        made = Dataset(plan)
        made._name = getattr(self, "_name", None)
        return made

    def _then(self, op: Op) -> Dataset:
        return self._made(self._plan.then(op))

    def _stream(self, ahead: bool = True) -> Iterator[pa.RecordBatch]:
        """The rows in their order; what goes wrong is raised as it is. Memory: a few batches."""
        self._reading = Reading()
        return self._reading.watch(stream_of(self._plan, ahead))

    def _table(self) -> pa.Table:
        batches = list(self._stream())
        return pa.Table.from_batches(batches) if batches else self._plan.schema().empty_table()
