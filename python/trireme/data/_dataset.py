"""Dataset: rows that are read, transformed and counted on demand."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trireme.data._column_ops import one_batch
from trireme.data._context import DataContext
from trireme.data._exchange import ExchangeMethods
from trireme.data._formats import check_format, in_format, pandas_frame
from trireme.data._fragment import Source
from trireme.data._memory import TableSource
from trireme.data._methods import is_whole
from trireme.data._plan import Plan
from trireme.data._planned import Planned
from trireme.data._promotion import fixed, one_table
from trireme.data._relational import RelationalMethods
from trireme.data._sinks import SinkMethods
from trireme.data._split import SplitMethods
from trireme.data._stats import describe
from trireme.data._tensors import rows_of
from trireme.data._transforms import TransformMethods
from trireme.data._write import WriteMethods

if TYPE_CHECKING:
    from trireme.data._iterator import DataIterator


class Dataset(TransformMethods, RelationalMethods, SplitMethods, WriteMethods, SinkMethods, ExchangeMethods):
    """Rows from files or from memory, in a fixed order, with the operations to apply to them.

    Created by trireme.data.read_parquet() and similar functions. Immutable: every method returns a new dataset. Lazy:
    nothing runs until rows are requested, by take(), count(), iter_batches() or a trainer.
    """

    def __init__(self, source: Source | Plan) -> None:
        self._plan = source if isinstance(source, Plan) else Plan(source)
        self._name: str | None = None
        self._context = DataContext.get_current().copy()
        self._id = uuid.uuid4().hex
        self._planned: Planned | None = None

    def plan(self) -> Planned:
        """How workers read it. Counts the rows once, if their number is unknown."""
        if self._planned is None:
            self._planned = Planned(self._plan)
        return self._planned

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_planned": None, "_reading": None}

    # Metadata.

    def schema(self, fetch_if_missing: bool = True) -> pa.Schema:
        """Names and types of the columns. To find them, functions are called on the first rows."""
        return self._plan.schema()

    def columns(self, fetch_if_missing: bool = True) -> list[str]:
        names: list[str] = self._plan.schema().names
        return names

    def count(self) -> int:
        """The number of rows. Reads files and runs functions if their number of rows is unknown."""
        return self._plan.rows()

    def size_bytes(self) -> int:
        """An estimate of the memory that the rows take."""
        return sum(size for _, size, _ in self.plan().fragments)

    def num_blocks(self) -> int:
        """The number of its fragments: row groups, files, slices of tables."""
        return len(self._plan.pieces())

    def input_files(self) -> list[str]:
        return self._plan.source.files()

    def stats(self) -> str:
        """A summary: the operations, fragments, rows, shuffle, and the speed of the last read."""
        return describe(self._plan, self._reading)

    def explain(self) -> None:
        """Prints the operations in the order in which they run, and where."""
        from trireme.data._summary import explained

        print("\n".join(explained(self._plan)))

    def get_dataset_id(self) -> str:
        """A unique name of this object: "<name>_<id>"."""
        return f"{self._name or 'dataset'}_{self._id}"

    @property
    def name(self) -> str | None:
        return self._name

    def set_name(self, name: str | None) -> None:
        self._name = name

    @property
    def context(self) -> DataContext:
        """A copy of the settings when the dataset was created. Derived datasets share it."""
        return self._context

    def copy(self) -> Dataset:
        """A new dataset with the same rows."""
        return self._made(self._plan)

    # Rows on the driver.

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows as dicts. Reads only as much as needed."""
        if not is_whole(limit) or limit < 1:
            raise ValueError(f"take({limit!r}): expected a number of rows, 1 or more")
        return [row for batch in self._head(limit) for row in rows_of(batch)]

    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        """All rows as dicts. Raises if there are more than `limit`."""
        rows: list[dict[str, Any]] = []
        for batch in self._stream():
            rows.extend(rows_of(batch))
            if limit is not None and len(rows) > limit:
                raise ValueError(f"take_all(limit={limit}): the dataset has more rows; take({limit}) returns the first")
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: str | None = "default") -> Any:
        """The first rows as one batch: a dict of arrays, a DataFrame ("pandas") or a table ("pyarrow")."""
        check_format(batch_format)
        batches = list(self._head(batch_size))
        if not batches:
            raise ValueError("take_batch: the dataset is empty")
        return in_format((one_batch(one_table(batches, "take_batch")), {}), batch_format)

    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""
        for row in self.take(limit):
            print(row)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """All rows as one table. Raises if there are more than `limit`."""
        return self._table(limit)

    def to_pandas(self, limit: int | None = None) -> Any:
        """All rows as one DataFrame. Raises if there are more than `limit`."""
        return pandas_frame(self.to_arrow(limit).unify_dictionaries())

    def materialize(self) -> MaterializedDataset:
        """Reads the rows into memory now and runs functions once. A shuffled dataset keeps this one order."""
        made = MaterializedDataset(TableSource(self._table(), self._name or f"materialized {self._plan.source.name}"))
        made._name = self._name
        return made

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """For pyarrow, polars, DuckDB and other readers of Arrow streams."""
        schema = self._plan.schema()
        batches = fixed(self._stream(), schema, self._plan.source.name)
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return reader.__arrow_c_stream__(requested_schema)

    # Batches for a training loop.

    def iterator(self) -> DataIterator:
        """The same iterator as a worker's shard, over all rows."""
        from trireme.data._iterator import DataIterator

        return DataIterator.of(self.plan(), rank=0, world=1, equal=False)

    def iter_rows(self, **options: Any) -> Any:
        """Rows as dicts, one at a time."""
        return self._iterated().iter_rows(**options)

    def iter_batches(self, **options: Any) -> Any:
        """Like DataIterator.iter_batches(), over all rows. Rows are not counted for it."""
        return self._iterated().iter_batches(**options)

    def iter_torch_batches(self, **options: Any) -> Any:
        return self._iterated().iter_torch_batches(**options)

    def iter_tf_batches(self, **options: Any) -> Any:
        return self._iterated().iter_tf_batches(**options)

    def iter_jax_batches(self, **options: Any) -> Any:
        return self._iterated().iter_jax_batches(**options)

    def to_tf(self, feature_columns: Any, label_columns: Any, **options: Any) -> Any:
        return self._iterated().to_tf(feature_columns, label_columns, **options)

    def to_torch(self, **options: Any) -> Any:
        return self._iterated().to_torch(**options)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a Dataset is not iterable: use iter_rows() or iter_batches(), or take() for a few rows")

    def __len__(self) -> int:
        raise TypeError("a Dataset has no len(): count() returns the number of rows, and may have to read them")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        steps = " -> ".join([self._plan.source.name, *(op.name for op in self._plan.ops())])
        name = f"{self._name}: " if self._name else ""
        return f"Dataset({name}{steps})"

    def _iterated(self) -> DataIterator:
        if self._plan.shuffle is not None or all(piece.rows is not None for piece in self._plan.pieces()):
            return self.iterator()
        from trireme.data._uncounted import UncountedIterator

        return UncountedIterator(self)

    def _head(self, limit: int) -> Iterator[pa.RecordBatch]:
        left = limit
        for batch in self._stream(ahead=False):
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return


class MaterializedDataset(Dataset):
    """A dataset whose rows are in memory."""
