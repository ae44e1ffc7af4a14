"""Operations on columns and rows that need no user function."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme import _core
from trireme._core import count_of
from trireme.data._fragment import Op, Where
from trireme.data._promotion import conform, widened


def require_columns(names: Sequence[str], schema: pa.Schema, asked_by: str) -> None:
    for name in names:
        if name not in schema.names:
            raise UnknownColumn(
                f"{asked_by}: no column named {name!r}; the columns are {', '.join(schema.names) or '(none)'}"
            )


class UnknownColumn(KeyError, ValueError):
    """A column does not exist. Its text is shown unchanged: KeyError alone would quote it."""

    def __str__(self) -> str:
        return str(self.args[0])


class ColumnOp(Op):
    """Changes each batch separately. Its schema is found by changing a batch without rows."""

    def __call__(self, batches: Iterator[pa.RecordBatch], where: Where) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self.change(batch)

    def change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        raise NotImplementedError

    def check(self, schema: pa.Schema) -> None:
        """Raises an error if the operation is not valid for these columns."""

    def schema(self, schema: pa.Schema) -> pa.Schema:
        self.check(schema)
        return self.change(no_rows(schema)).schema


class SelectColumns(ColumnOp):
    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = list(columns)
        self.name = f"select_columns({', '.join(self.columns)})"

    def check(self, schema: pa.Schema) -> None:
        require_columns(self.columns, schema, "select_columns")

    def change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.names == self.columns:
            return batch
        self.check(batch.schema)
        return batch.select(self.columns)


class DropColumns(ColumnOp):
    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = list(columns)
        self.name = f"drop_columns({', '.join(self.columns)})"

    def check(self, schema: pa.Schema) -> None:
        require_columns(self.columns, schema, "drop_columns")

    def change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.check(batch.schema)
        return batch.select(self.kept(batch.schema))

    def kept(self, schema: pa.Schema) -> list[str]:
        return [name for name in schema.names if name not in self.columns]


class RenameColumns(ColumnOp):
    """Takes a dict of old to new names, or a list with the new names of all columns."""

    def __init__(self, names: Mapping[str, str] | Sequence[str]) -> None:
        self.names = dict(names) if isinstance(names, Mapping) else list(names)
        pairs = self.names.items() if isinstance(self.names, dict) else []
        text = ", ".join(f"{old}->{new}" for old, new in pairs) or ", ".join(self.names)
        self.name = f"rename_columns({text})"

    def check(self, schema: pa.Schema) -> None:
        if isinstance(self.names, dict):
            require_columns(list(self.names), schema, "rename_columns")
        elif len(self.names) != len(schema.names):
            raise ValueError(
                f"rename_columns: {count_of(len(self.names), 'name')} for {count_of(len(schema.names), 'column')} "
                f"({', '.join(schema.names)}); "
                "to rename only some columns, pass a dict of old to new names"
            )
        new = self._new(schema)
        twice = sorted({name for name in new if new.count(name) > 1})
        if twice:
            raise ValueError(f"rename_columns: more than one column would be named {twice[0]!r}")

    def change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.check(batch.schema)
        return batch.rename_columns(self._new(batch.schema))

    def _new(self, schema: pa.Schema) -> list[str]:
        if isinstance(self.names, dict):
            return [self.names.get(name, name) for name in schema.names]
        return list(self.names)


class WithColumns(ColumnOp):
    """Adds columns computed by expressions, or replaces existing ones."""

    def __init__(self, columns: Mapping[str, pc.Expression], asked_by: str = "with_columns") -> None:
        self.columns = dict(columns)
        self._asked_by = asked_by
        self.name = f"{asked_by}({', '.join(f'{name}={value}' for name, value in self.columns.items())})"

    def change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from pyarrow import acero

        columns = {name: pc.field(name) for name in batch.schema.names} | self.columns
        steps = [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))),
            acero.Declaration("project", acero.ProjectNodeOptions(list(columns.values()), list(columns))),
        ]
        with _told(self._asked_by, batch.schema):
            table = acero.Declaration.from_sequence(steps).to_table(use_threads=False)
        return one_batch(table)


class Promote(ColumnOp):
    """Gives all batches the columns of a schema, or wider types where functions return them."""

    name = "as the others"

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return conform(batch, widened(self._schema, batch.schema, "union", batch), "union")


class FilterExpression(ColumnOp):
    keeps_rows = False

    def __init__(self, conditions: Sequence[pc.Expression]) -> None:
        self.conditions = list(conditions)
        self.name = f"filter({functools.reduce(operator.and_, self.conditions)})"

    def change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        with _told("filter", batch.schema):
            for condition in self.conditions:
                batch = batch.filter(condition)
            return batch


class RandomSample(Op):
    """Keeps each row with the same probability; always the same rows, in both languages.

    first_row: the index in the dataset of the first row of the fragment.
    """

    keeps_rows = False
    any_columns = True

    def __init__(self, fraction: float, seed: int, first_row: int) -> None:
        self.fraction = fraction
        self.seed = seed
        self.first_row = first_row
        self.name = f"random_sample({fraction}, seed={seed})"

    def __call__(self, batches: Iterator[pa.RecordBatch], where: Where) -> Iterator[pa.RecordBatch]:
        row = self.first_row
        for batch in batches:
            kept = np.frombuffer(_core.sampled(self.seed, row, batch.num_rows, self.fraction), bool)
            yield batch.filter(pa.array(kept))
            row += batch.num_rows

    def schema(self, schema: pa.Schema) -> pa.Schema:
        return schema


class KeepRows(Op):
    """The rows of a fragment for which a mask is True."""

    keeps_rows = False
    any_columns = True

    def __init__(self, mask: np.ndarray, name: str) -> None:
        self._mask = mask
        self.name = name

    def __call__(self, batches: Iterator[pa.RecordBatch], where: Where) -> Iterator[pa.RecordBatch]:
        at = 0
        for batch in batches:
            yield batch.filter(pa.array(self._mask[at : at + batch.num_rows]))
            at += batch.num_rows

    def schema(self, schema: pa.Schema) -> pa.Schema:
        return schema


def one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise ValueError(
            f"{table.num_rows} rows of text have more than 2 GiB, too much for one batch: use smaller ones"
        )
    return batches[0] if batches else no_rows(table.schema)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def batch_with(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A batch that has rows even without columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


@contextlib.contextmanager
def _told(asked_by: str, schema: pa.Schema) -> Iterator[None]:
    """Adds the columns to Arrow's error for an expression."""
    try:
        yield
    except pa.ArrowException as error:
        columns = ", ".join(f"{field.name}: {field.type}" for field in schema)
        text = str(error).split("\n")[0]
        raise ValueError(f"{asked_by}: {text}. The columns are {columns}") from error
