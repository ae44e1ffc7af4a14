"""Evaluates a plan with trireme.data."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

import trireme.data as data
from differential.expressions import text
from differential.functions import FILTERS, FLAT_MAPS, MAPS
from differential.tables import from_arrow
from trireme.data import aggregate as aggregates

Outcome = dict[str, Any]

AGGREGATES = {
    "count": aggregates.Count,
    "sum": aggregates.Sum,
    "min": aggregates.Min,
    "max": aggregates.Max,
    "mean": aggregates.Mean,
    "std": aggregates.Std,
}


def run(plan: dict[str, Any]) -> Outcome:
    """The outcome of a plan that files.write() has placed: a table, a value, or an error."""
    try:
        return _result(_Steps(Path(plan["folder"])).dataset(plan["dataset"]), plan["result"])
    except (ValueError, TypeError, KeyError, OverflowError, data.DataError, pa.ArrowException) as error:
        return {"error": f"{type(error).__name__}: {error}"}


class _Steps:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written = 0

    def dataset(self, node: dict[str, Any]) -> data.Dataset:
        dataset = _source(node["source"])
        for step in node["steps"]:
            dataset = getattr(self, step["op"])(dataset, **{key: step[key] for key in step if key != "op"})
        return dataset

    def filter(self, dataset: data.Dataset, expression: Any) -> data.Dataset:
        return dataset.filter(text(expression))

    def filter_rows(self, dataset: data.Dataset, function: str, column: str) -> data.Dataset:
        return dataset.filter(partial(FILTERS[function], column=column))

    def with_column(self, dataset: data.Dataset, name: str, expression: Any) -> data.Dataset:
        return dataset.with_column(name, text(expression))

    def select(self, dataset: data.Dataset, columns: list[str]) -> data.Dataset:
        return dataset.select_columns(columns)

    def drop(self, dataset: data.Dataset, columns: list[str]) -> data.Dataset:
        return dataset.drop_columns(columns)

    def rename(self, dataset: data.Dataset, names: dict[str, str]) -> data.Dataset:
        return dataset.rename_columns(names)

    def map(self, dataset: data.Dataset, function: str, column: str) -> data.Dataset:
        return dataset.map(partial(MAPS[function], column=column))

    def flat_map(self, dataset: data.Dataset, function: str, column: str) -> data.Dataset:
        return dataset.flat_map(partial(FLAT_MAPS[function], column=column))

    def map_batches(self, dataset: data.Dataset, function: str, column: str, batch_size: int | None) -> data.Dataset:
        if function == "double":
            return dataset.map_batches(partial(_double, column=column), batch_size=batch_size)
        if function == "reverse":
            return dataset.map_batches(_reverse, batch_size=batch_size, batch_format="pyarrow")
        return dataset.map_batches(_same, batch_size=batch_size, batch_format="pyarrow")

    def sort(self, dataset: data.Dataset, keys: list[str], descending: bool) -> data.Dataset:
        return dataset.sort(keys, descending)

    def groupby(self, dataset: data.Dataset, keys: list[str], aggregates: list[list[Any]]) -> data.Dataset:
        asked = []
        for function, column in aggregates:
            options = {"ignore_nulls": True} if column is not None else {}
            asked.append(AGGREGATES[function](column, **options))
        return dataset.groupby(keys or None).aggregate(*asked)

    def join(
        self, dataset: data.Dataset, others: list[Any], how: str, on: list[str], right_on: list[str], suffix: str
    ) -> data.Dataset:
        return dataset.join(self.dataset(others[0]), how, on=on, right_on=right_on, right_suffix=suffix)

    def union(self, dataset: data.Dataset, others: list[Any]) -> data.Dataset:
        return dataset.union(*(self.dataset(other) for other in others))

    def zip(self, dataset: data.Dataset, others: list[Any]) -> data.Dataset:
        return dataset.zip(self.dataset(others[0]))

    def limit(self, dataset: data.Dataset, rows: int) -> data.Dataset:
        return dataset.limit(rows)

    def split(self, dataset: data.Dataset, parts: int, part: int) -> data.Dataset:
        return dataset.split(parts)[part]

    def split_at(self, dataset: data.Dataset, indices: list[int], part: int) -> data.Dataset:
        return dataset.split_at_indices(indices)[part]

    def train_test(self, dataset: data.Dataset, test: int | float, part: int) -> data.Dataset:
        return dataset.train_test_split(test)[part]

    def shuffle(self, dataset: data.Dataset, seed: int, window: int | None = None) -> data.Dataset:
        return dataset.random_shuffle(seed=seed, window_rows=window)

    def block_order(self, dataset: data.Dataset, seed: int) -> data.Dataset:
        return dataset.randomize_block_order(seed=seed)

    def sample(self, dataset: data.Dataset, fraction: float, seed: int) -> data.Dataset:
        return dataset.random_sample(fraction, seed=seed)

    def repartition(self, dataset: data.Dataset, blocks: int) -> data.Dataset:
        return dataset.repartition(blocks)

    def materialize(self, dataset: data.Dataset) -> data.Dataset:
        return dataset.materialize()

    def store(self, dataset: data.Dataset, format: str) -> data.Dataset:
        """Writes files and reads them again."""
        self._written += 1
        folder = str(self._folder / f"python{self._written}")
        getattr(dataset, f"write_{format}")(folder)
        return getattr(data, f"read_{format}")(folder)  # type: ignore[no-any-return]


def _source(source: dict[str, Any]) -> data.Dataset:
    if source["from"] == "parquet":
        return data.read_parquet(source["path"])
    with pa.OSFile(source["path"], "rb") as file:
        return data.from_arrow(pa.ipc.open_stream(file).read_all())


def _result(dataset: data.Dataset, result: dict[str, Any]) -> Outcome:
    match result["kind"]:
        case "rows":
            return {"table": from_arrow(dataset.to_arrow())}
        case "batches":
            return _batches(dataset, result)
        case "count":
            return {"value": dataset.count()}
        case "unique":
            return {"value": dataset.unique(result["column"], result["ignore_nulls"])}
        case function:
            return {"value": getattr(dataset, function)(result["column"], ignore_nulls=result["ignore_nulls"])}


def _batches(dataset: data.Dataset, result: dict[str, Any]) -> Outcome:
    """The rows as `workers` see them: step by step, rank by rank, epoch after epoch, with the sizes of the batches."""
    shards = dataset.streaming_split(result["workers"])
    tables, sizes = [], []
    for _ in range(result["epochs"]):
        steps = (shard.iter_batches(global_batch_size=result["size"], batch_format="pyarrow") for shard in shards)
        for batches in zip_longest(*steps):
            tables += batches
            sizes += [batch.num_rows for batch in batches]
    return {"table": from_arrow(pa.concat_tables(tables)), "sizes": sizes}


def _double(batch: dict[str, Any], column: str) -> dict[str, Any]:
    return batch | {column: batch[column] * 2}


def _reverse(batch: pa.Table) -> pa.Table:
    return batch.take(list(range(batch.num_rows))[::-1])


def _same(batch: pa.Table) -> pa.Table:
    return batch
