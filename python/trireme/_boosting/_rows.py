"""A worker's rows of a dataset as numbers, for libraries that read them several times."""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme._session import current_session, get_context, get_dataset_shard
from trireme.data._iterator import DataIterator, Part

_BATCH_ROWS = 65_536
_SAMPLE_ROWS = 256
# A worker keeps its rows between the passes over them up to this size, and reads them again otherwise.
_KEPT_BYTES = 1 << 30
_TIMEOUT_S = 1800.0

Categories = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Columns:
    """What the columns of the datasets are. Empty names: there is none."""

    features: tuple[str, ...]
    label: str
    weight: str = ""
    group: str = ""
    categories: Categories = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """table: the features, in their order, as numbers; a category is its index in Columns.categories."""

    table: pa.Table
    label: np.ndarray
    weight: np.ndarray | None
    group: np.ndarray | None

    def matrix(self, dtype: Any) -> np.ndarray:
        """Row by row; missing values are NaN."""
        made: np.ndarray = np.empty(self.table.shape, dtype)
        for index, column in enumerate(self.table.itercolumns()):
            made[:, index] = as_numpy(column)
        return made


class WorkerRows:
    """This worker's rows of a dataset. Every iteration returns the same batches."""

    def __init__(self, name: str, columns: Columns, *, everything: bool = False) -> None:
        """everything: all rows on every worker."""
        self.name = name
        self.columns = columns
        shard = get_dataset_shard(name)
        context = get_context()
        self._shard = shard
        # With groups, every worker reads all rows and keeps those of its groups.
        self._kept_share = (context.get_world_rank(), context.get_world_size()) if columns.group else (0, 1)
        if everything:
            self._kept_share = (0, 1)
        self._whole = everything or bool(columns.group)
        self._held: list[Batch] | None = None
        self.rows = 0
        self.sample: np.ndarray = np.empty((0, 0))  # the first rows, after a pass

    def __iter__(self) -> Iterator[Batch]:
        if self._held is not None:
            yield from self._held
            return
        held: list[Batch] | None = []
        size = self.rows = 0
        for table in self._by_group() if self.columns.group else self.read():
            batch = self._numbers(table)
            if self.rows == 0:
                self.sample = replace(batch, table=batch.table.slice(0, _SAMPLE_ROWS)).matrix(np.float64)
            self.rows += table.num_rows
            size += batch.table.nbytes
            if size > _KEPT_BYTES and not self.columns.group:  # those of groups are in memory anyway
                held = None
            if held is not None:
                held.append(batch)
            yield batch
        self._held = held

    @property
    def are_held(self) -> bool:
        """Whether they are in memory, after the first pass."""
        return self._held is not None

    def release(self) -> None:
        """The library has its own copy now."""
        self._held = None

    def read(self) -> Iterator[pa.Table]:
        """As they are in the dataset, with those of other workers' groups. From the beginning, whatever the position in
        the checkpoint, and without moving it: the model depends on the rows and not on the number of passes."""
        part = self._shard._part.without_digests()
        if self._whole:
            options = {**part.options, "rank": 0, "world": 1, "max_world": 1, "equal": False}
            part = Part(seed=part.seed, virtual_shards=1, **options)
        copy = DataIterator(self._shard._planned, part)
        if not self._whole:
            copy.load_state({**self._shard.state(), "epoch": 0, "rows": 0})
        wanted = [*self.columns.features, self.columns.label, self.columns.weight, self.columns.group]
        names = [name for name in wanted if name]
        for table in copy.iter_batches(batch_size=_BATCH_ROWS, batch_format="pyarrow"):
            yield table.select(names)

    def _by_group(self) -> Iterator[pa.Table]:
        """The rows of this worker's groups, with those of a group behind each other, in order of first appearance."""
        rank, world = self._kept_share
        first: dict[str, int] = {}  # groups, with their ranks
        order: dict[Any, int] = {}
        chunks: dict[str, list[pa.Array]] = defaultdict(list)
        keys = []
        for table in self.read():
            column = table.column(self.columns.group)
            check_group(self.name, self.columns.group, column.type)
            if pa.types.is_dictionary(column.type):  # its values may be in another order than the rows
                column = column.cast(column.type.value_type)
            encoded = column.combine_chunks().dictionary_encode()
            values = encoded.dictionary.to_pylist()
            if encoded.null_count:
                raise ValueError(f"dataset {self.name!r}: the group column {self.columns.group!r} has nulls")
            mine = np.array([_rank_of(str(value), world, first) == rank for value in values], bool)
            for value, is_mine in zip(values, mine, strict=True):
                if is_mine:
                    order.setdefault(value, len(order))
            codes = encoded.indices.to_numpy()
            keep = mine[codes]
            if keep.any():
                kept = table.filter(pa.array(keep))
                for name in kept.column_names:
                    chunks[name] += kept.column(name).chunks
                keys.append(np.array([order.get(value, 0) for value in values])[codes[keep]])
        if not keys:
            return
        key = np.concatenate(keys)
        indices = pa.array(np.argsort(key, kind="stable"))
        chunks[self.columns.group] = [pa.array(key)]
        # A column at a time: the rows are not held twice.
        ordered = {name: pa.concat_arrays(chunks.pop(name)).take(indices) for name in list(chunks)}
        together = pa.table(ordered)
        for begin in range(0, len(key), _BATCH_ROWS):
            yield together.slice(begin, _BATCH_ROWS)

    def _numbers(self, table: pa.Table) -> Batch:
        columns = self.columns
        features = [_feature(table.column(name), columns.categories.get(name)) for name in columns.features]
        return Batch(
            pa.table(features, names=list(columns.features)),
            self._complete(table, "label", columns.label),
            self._complete(table, "weight", columns.weight) if columns.weight else None,
            table.column(columns.group).to_numpy() if columns.group else None,
        )

    def _complete(self, table: pa.Table, what: str, column: str) -> np.ndarray:
        values = as_numpy(table.column(column))
        if np.isnan(values).any():
            raise ValueError(f"dataset {self.name!r}: the {what} column {column!r} has missing values; drop the rows")
        return values


def as_numpy(column: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_decimal(column.type):
        column = _floats_of_decimals(column)
    if column.null_count:
        column = column.cast(pa.float64() if column.type != pa.float32() else pa.float32())
    made: np.ndarray = column.to_numpy()
    return made.astype(np.float64) if made.dtype.kind not in "f" else made


def _feature(column: pa.ChunkedArray, categories: Sequence[Any] | None) -> pa.ChunkedArray:
    if categories is not None:
        return pa.chunked_array([codes_of(chunk, categories) for chunk in column.chunks], pa.float32())
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_decimal(kind):
        return _floats_of_decimals(column)
    return column.cast(pa.float32()) if pa.types.is_float16(kind) else column


def _floats_of_decimals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The nearest ones, as in C++. Arrow's cast without a text in between may differ from them in the last bit."""
    return column.cast(pa.string()).cast(pa.float64())


def codes_of(chunk: Any, categories: Sequence[Any]) -> pa.Array:
    """The index of each value among the categories; null for other values and nulls."""
    if not pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_encode()
    indices = {value: index for index, value in enumerate(categories)}
    of_code = pa.array([indices.get(value) for value in chunk.dictionary.to_pylist()], pa.float32())
    return pc.take(of_code, chunk.indices)


def _rank_of(group: str, world: int, first: dict[str, int]) -> int:
    """The first groups are those of rank 0, 1 and so on, so that no rank has none; the rank of the others follows from
    their values. The same in C++."""
    if group not in first and len(first) < world:
        first[group] = len(first)
    return first[group] if group in first else zlib.crc32(group.encode()) % world


def check_group(dataset: str, column: str, kind: Any) -> None:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_integer(value) or pa.types.is_string(value) or pa.types.is_large_string(value)):
        raise ValueError(
            f"dataset {dataset!r}: the group column {column!r} must contain strings or integers, not {kind}"
        )


def agreed_columns(config: dict[str, Any]) -> Columns:
    """What the columns of the datasets are, with the categories of all workers. Collective."""
    columns = Columns(
        tuple(config["features"]), config["label_column"], config["weight_column"] or "", config["group_column"] or ""
    )
    return replace(columns, categories=_agreed_categories(config["train"], columns, config["categorical"]))


def _agreed_categories(name: str, columns: Columns, wanted: list[str]) -> Categories:
    """The values of these columns of a dataset on all workers, sorted."""
    if not wanted:
        return {}
    found: dict[str, set[Any]] = {column: set() for column in wanted}
    rows = WorkerRows(name, columns)
    for table in rows.read():
        for column in wanted:
            for chunk in table.column(column).chunks:
                found[column].update(pc.unique(chunk).to_pylist())
    everyone = gathered({column: _sorted(values, column) for column, values in found.items()})
    return {column: _sorted({value for each in everyone for value in each[column]}, column) for column in wanted}


def _sorted(values: set[Any], column: str) -> list[Any]:
    values.discard(None)
    kinds = {type(value) for value in values}
    if not kinds <= {str} and not kinds <= {int} and not kinds <= {bool}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(
            f"categorical column {column!r}: its categories must all be strings or all integers, not {names}"
        )
    return sorted(values)


# How many values were gathered, by attempt.
_gathered: Counter[int] = Counter()


def gathered(value: Any) -> list[Any]:
    """The value of every rank, in order of ranks. Collective."""
    context = get_context()
    if context.get_world_size() == 1:
        return [value]
    core: Any = current_session("gathered")._core  # type: ignore[attr-defined]
    _gathered[context._attempt] += 1
    keys = [f"boosting/{_gathered[context._attempt]}/{rank}" for rank in range(context.get_world_size())]
    core.store_set(keys[context.get_world_rank()], json.dumps(value).encode())
    return [json.loads(each) for each in core.store_multi_get(keys, _TIMEOUT_S)]


def refuse_empty(rows: WorkerRows) -> None:
    """On every rank alike, because the others would wait for the one without rows."""
    counts = gathered(rows.rows)
    if empty := [rank for rank, count in enumerate(counts) if not count]:
        what = "query groups" if rows.columns.group else "rows"
        raise ValueError(
            f"dataset {rows.name!r} has no {what} for rank {', '.join(map(str, empty))} (rows by rank: {counts}): use "
            "fewer workers, or more rows"
        )
