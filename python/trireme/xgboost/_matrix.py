"""Quantized matrices from a worker's rows, a batch at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Unpack

import pyarrow as pa
import xgboost

from trireme import _core
from trireme._boosting._kept import Kept, KeptRows, agreed, keep_rows, rows_file
from trireme._boosting._rows import Batch, Categories, Columns, WorkerRows, refuse_empty
from trireme._boosting._shards import ColumnOptions, Shard
from trireme.xgboost._quantiles import FILE as QUANTILES
from trireme.xgboost._quantiles import Quantiles


class _Batches(xgboost.DataIter):  # type: ignore[misc]
    """XGBoost passes over the rows four times and keeps only the quantized ones. On every pass, its Python package
    copies the Arrow columns of a batch to have them contiguous; its library reads those in place."""

    def __init__(self, rows: WorkerRows | KeptRows, cache: str | None, stores_categories: bool) -> None:
        super().__init__(cache_prefix=cache, release_data=True)
        self._rows = rows
        self._stored = rows.columns.categories if stores_categories else {}
        self._batches: Iterator[Batch] = iter(())
        columns = rows.columns
        self._names = list(columns.features)
        self._types = ["c" if name in columns.categories else "float" for name in columns.features]

    def reset(self) -> None:
        self._batches = iter(self._rows)

    def next(self, input_data: Callable[..., Any]) -> bool:
        batch = next(self._batches, None)
        if batch is None:
            return False
        optional: dict[str, Any] = {}
        if batch.group is not None:
            optional["qid"] = batch.group
        if batch.weight is not None:
            optional["weight"] = batch.weight
        input_data(
            data=with_categories(batch.table, self._stored),
            label=batch.label,
            feature_names=self._names,
            feature_types=self._types,
            **optional,
        )
        return True


def with_categories(table: pa.Table, categories: Categories) -> Any:
    """The table, with the values of codes, which XGBoost stores in the model then."""
    for name, values in categories.items():
        codes = [chunk.cast(pa.int32()) for chunk in table.column(name).chunks]
        column = pa.chunked_array([pa.DictionaryArray.from_arrays(chunk, pa.array(values)) for chunk in codes])
        table = table.set_column(table.column_names.index(name), name, column)
    # Of an Arrow table, XGBoost accepts only categories that are strings.
    return table.to_pandas() if any(not isinstance(each[0], str) for each in categories.values() if each) else table


def is_approximate(params: dict[str, Any]) -> bool:
    """Whether the quantiles are those of each round: the rows themselves are kept, in files."""
    return params.get("tree_method") == "approx"


def quantized(
    rows: WorkerRows,
    params: dict[str, Any],
    reference: xgboost.DMatrix | None,
    cache: str | None,
    *,
    stores_categories: bool = False,
    kept: Kept | None = None,
) -> xgboost.DMatrix:
    """cache: the path of files for the quantized rows, without an ending; None: they are in memory.

    stores_categories: XGBoost stores the values of the categories in the model; otherwise it has their indices only.
    kept: where to keep what `restored` needs.
    """
    for _ in rows:  # counts them
        pass
    refuse_empty(rows)
    keeps = kept is not None and agreed(keep_rows(kept, rows))
    batches = _Batches(rows, cache, stores_categories)
    if is_approximate(params):
        made = xgboost.DMatrix(batches, nthread=params.get("nthread"), enable_categorical=True)
    else:
        made = _quantized(batches, params, reference, cache)
    if kept is not None and keeps and reference is None:
        Quantiles.of(made, rows).keep(kept)
    rows.release()
    return made


def _quantized(
    batches: _Batches, params: dict[str, Any], reference: xgboost.DMatrix | None, cache: str | None
) -> xgboost.DMatrix:
    kind = xgboost.QuantileDMatrix if cache is None else xgboost.ExtMemQuantileDMatrix
    return kind(
        batches,
        max_bin=params.get("max_bin"),
        nthread=params.get("nthread"),
        ref=reference,
        enable_categorical=True,
    )


def restored(kept: Kept, names: list[str], columns: Columns, params: dict[str, Any]) -> list[xgboost.DMatrix] | None:
    """The matrices of these datasets, the one to train on first, from kept rows and quantiles; None if a rank does not
    have them. Collective."""
    if not kept.have_all([QUANTILES, *map(rows_file, names)]):
        return None
    quantiles = Quantiles.load(kept)
    reference = quantiles.matrix(columns, params)
    if not agreed(quantiles.are_those_of(reference)):
        return None
    made: list[xgboost.DMatrix] = []
    for name in names:
        batches = _Batches(KeptRows(kept, name, columns), None, False)
        made.append(_quantized(batches, params, made[0] if made else reference, None))
    return made


def quantile_dmatrix(
    dataset: str = "train",
    *,
    reference: xgboost.DMatrix | None = None,
    max_bin: int | None = None,
    external_memory: bool = False,
    **columns: Unpack[ColumnOptions],
) -> xgboost.DMatrix:
    """In a training function: this worker's rows of a dataset, streamed into a QuantileDMatrix. Collective.

    reference: the matrix to train on, for one to evaluate. It has the same columns and bins.
    max_bin: as for xgboost.QuantileDMatrix, and the same as in the parameters of xgboost.train().
    external_memory: keep the quantized rows in temporary files instead of memory.
    columns: label_column, weight_column, group_column and categorical_columns, as for XGBoostTrainer. XGBoost stores
        the values of the categories in the model, and finds them in a DataFrame.
    """
    shard = Shard.of("xgboost", dataset, reference, **columns)
    if shard.columns.categories and not hasattr(xgboost.Booster, "get_categories"):
        raise _core.ConfigError(
            f"quantile_dmatrix(): column {next(iter(shard.columns.categories))!r} is categorical, and XGBoost "
            f"{xgboost.__version__} does not store categories; install XGBoost 3.1 or newer"
        )
    folder = _core.TemporaryFolder() if external_memory else None
    cache = os.path.join(folder.path, "rows") if folder is not None else None
    matrix = quantized(shard.rows(), {"max_bin": max_bin}, reference, cache, stores_categories=True)
    matrix.trireme_shard, matrix.trireme_folder = shard, folder
    return matrix
