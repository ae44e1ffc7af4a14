"""One type for the rows of several batches: promoted if no value is lost, refused by name otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from trireme.data._fragment import DataError
from trireme.data._tensors import RaggedTensorType, cast, tensor_shape

_ADVICE = "convert one of them, or drop the column"


def common_type(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both; None if there is none. Values are checked when they are converted."""
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if pa.types.is_dictionary(first) or pa.types.is_dictionary(second):
        return _dictionary(first, second)
    if isinstance(first, pa.BaseExtensionType) or isinstance(second, pa.BaseExtensionType):
        return _tensor(first, second)
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        fields = _fields(list(first), list(second))
        return None if fields is None else pa.struct(fields)
    if _is_list(first) and _is_list(second):
        return _list(first, second)
    for loses, from_type in _LOSSES:
        if (loses(first) and from_type(second)) or (loses(second) and from_type(first)):
            return None
    try:
        schemas = [pa.schema([("", kind)]) for kind in (first, second)]
        found: pa.DataType = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
        return found
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None


def common_schema(first: pa.Schema, second: pa.Schema, differ: Callable[[pa.Field, pa.Field], DataError]) -> pa.Schema:
    """The columns of both, by name. differ: the error for a column that has no common type."""
    fields = {field.name: field for field in first}
    for field in second:
        before = fields.get(field.name)
        kind = field.type if before is None else common_type(before.type, field.type)
        if kind is None:
            assert before is not None
            raise differ(before, field)
        fields[field.name] = pa.field(field.name, kind)
    return pa.schema(list(fields.values()))


def widened(
    schema: pa.Schema, other: pa.Schema, where: str, batch: pa.RecordBatch | None = None, row: int = 0
) -> pa.Schema:
    """The schema itself if it also holds the rows of the other, or a wider one. batch, row: those rows, for errors."""
    if other.equals(schema):
        return schema

    def differ(before: pa.Field, field: pa.Field) -> DataError:
        valid = -1 if batch is None else batch.column(field.name).is_valid().index(True).as_py()
        return DataError(
            f"{where}: column {field.name!r} is {field.type} in row {row + max(valid, 0)} and {before.type} in the "
            f"rows before: {_ADVICE}"
        )

    found = common_schema(schema, other, differ)
    return schema if found.equals(schema) else found


def conform(batch: pa.RecordBatch, schema: pa.Schema, where: str, row: int = 0) -> pa.RecordBatch:
    """The same rows with the columns of `schema`; missing ones are null. Errors name a value that would be lost."""
    if batch.schema.equals(schema):
        return batch
    for name in batch.schema.names:
        if name not in schema.names:
            raise DataError(f"{where}: column {name!r} does not exist in the others ({', '.join(schema.names)})")
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(index)
        try:
            if column.type != field.type and common_type(column.type, field.type) is None:
                raise ValueError("the types have nothing in common")
            columns.append(column if column.type == field.type else cast(column, field.type))
        except (pa.ArrowException, ValueError) as error:
            lost = row + _first_lost(column, field.type)
            raise DataError(
                f"{where}: column {field.name!r} is {column.type} in row {lost}, and {field.type} in the others: "
                f"{str(error).splitlines()[0]}; {_ADVICE}"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def promoted(batches: Iterable[pa.RecordBatch], schema: pa.Schema | None, where: str) -> Iterator[pa.RecordBatch]:
    """The batches with the columns of `schema`, or of the first batch. From a batch that needs a wider type on, they
    have that type."""
    row = 0
    for batch in batches:
        schema = batch.schema if schema is None else widened(schema, batch.schema, where, batch, row)
        yield conform(batch, schema, where, row)
        row += batch.num_rows


def fixed(batches: Iterable[pa.RecordBatch], schema: pa.Schema, where: str) -> Iterator[pa.RecordBatch]:
    """The batches with this schema, for consumers that have been given it. Raises a DataError if one needs another."""
    for batch in promoted(batches, schema, where):
        if not batch.schema.equals(schema):
            names = [f.name for f in batch.schema if f.name not in schema.names or schema.field(f.name) != f]
            raise DataError(
                f"{where}: later rows need another type than the first ones for column {names[0]!r}: "
                f"{batch.schema.field(names[0]).type}; materialize() the dataset first, which finds a common type"
            )
        yield batch


def one_table(batches: Iterable[pa.RecordBatch], where: str) -> pa.Table | None:
    """All rows with one schema; None if there are none."""
    found = list(promoted(batches, None, where))
    return table_with(found, found[-1].schema, where) if found else None


def table_with(batches: Iterable[pa.RecordBatch], schema: pa.Schema, where: str) -> pa.Table:
    row, made = 0, []
    for batch in batches:
        made.append(conform(batch, schema, where, row))
        row += batch.num_rows
    return pa.Table.from_batches(made, schema)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


# Arrow's permissive unification allows these: digits of decimals would be lost, and text would become bytes.
_LOSSES = (
    (pa.types.is_decimal, pa.types.is_floating),
    (_is_text, lambda kind: not _is_text(kind)),
)


def _fields(first: list[pa.Field], second: list[pa.Field]) -> list[pa.Field] | None:
    fields = {field.name: field for field in first}
    for field in second:
        before = fields.get(field.name)
        kind = field.type if before is None else common_type(before.type, field.type)
        if kind is None:
            return None
        fields[field.name] = pa.field(field.name, kind)
    return list(fields.values())


def _dictionary(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (first, second)]
    values = common_type(*kinds)
    if values is None or not (pa.types.is_dictionary(first) and pa.types.is_dictionary(second)):
        return values
    index = common_type(first.index_type, second.index_type)
    return None if index is None else pa.dictionary(index, values, first.ordered and second.ordered)


def _list(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    values = common_type(first.value_type, second.value_type)
    if values is None:
        return None
    sizes = {kind.list_size if pa.types.is_fixed_size_list(kind) else -1 for kind in (first, second)}
    if len(sizes) == 1 and -1 not in sizes:
        return pa.list_(values, first.list_size)
    large = pa.types.is_large_list(first) or pa.types.is_large_list(second)
    return pa.large_list(values) if large else pa.list_(values)


def _tensor(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Tensors of different shapes are ragged, vectors of different lengths are lists."""
    shapes = [tensor_shape(kind) for kind in (first, second)]
    kinds = [getattr(kind, "value_type", None) for kind in (first, second)]
    if None in kinds or not all(_is_list(kind) or isinstance(kind, _TENSORS) for kind in (first, second)):
        return None
    values = common_type(*kinds)
    if values is None:
        return None
    if shapes[0] is not None and shapes[0] == shapes[1]:
        return pa.fixed_shape_tensor(values, shapes[0])
    if any(isinstance(kind, RaggedTensorType) for kind in (first, second)):
        others = [kind for kind in (first, second) if not isinstance(kind, RaggedTensorType)]
        return None if any(tensor_shape(kind) is None for kind in others) else RaggedTensorType(values)
    if all(shape is None or len(shape) == 1 for shape in shapes):
        return pa.list_(values)
    return None if None in shapes else RaggedTensorType(values)


_TENSORS = (pa.FixedShapeTensorType, RaggedTensorType)


def _first_lost(column: pa.Array, kind: pa.DataType) -> int:
    """The first row that cannot be converted."""
    low, high = 0, len(column)  # rows before `low` can be converted
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cast(column.slice(low, middle - low), kind)
            low = middle
        except (pa.ArrowException, ValueError):
            high = middle
    return low
