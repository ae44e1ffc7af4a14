"""Quantized matrices from a worker's rows, a batch at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Unpack

import xgboost

from trireme import _core
from trireme._boosting._rows import Batch, WorkerRows, refuse_empty
from trireme._boosting._shards import ColumnOptions, Shard


class _Batches(xgboost.DataIter):  # type: ignore[misc]
    """XGBoost passes over the rows four times and keeps only the quantized ones."""

    def __init__(self, rows: WorkerRows, cache: str | None) -> None:
        super().__init__(cache_prefix=cache, release_data=True)
        self._rows = rows
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
            data=batch.table,  # not copied
            label=batch.label,
            feature_names=self._names,
            feature_types=self._types,
            **optional,
        )
        return True


def is_approximate(params: dict[str, Any]) -> bool:
    """Whether the quantiles are those of each round: the rows themselves are kept, in files."""
    return params.get("tree_method") == "approx"


def quantized(
    rows: WorkerRows, params: dict[str, Any], reference: xgboost.DMatrix | None, cache: str | None
) -> xgboost.DMatrix:
    """cache: the path of files for the quantized rows, without an ending; None: they are in memory."""
    for _ in rows:  # counts them
        pass
    refuse_empty(rows)
    if is_approximate(params):
        made = xgboost.DMatrix(_Batches(rows, cache), nthread=params.get("nthread"), enable_categorical=True)
        rows.release()
        return made
    kind = xgboost.QuantileDMatrix if cache is None else xgboost.ExtMemQuantileDMatrix
    matrix = kind(
        _Batches(rows, cache),
        max_bin=params.get("max_bin"),
        nthread=params.get("nthread"),
        ref=reference,
        enable_categorical=True,
    )
    rows.release()
    return matrix


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
    columns: label_column, weight_column and group_column, as for XGBoostTrainer.
    """
    shard = Shard.of("xgboost", dataset, reference, **columns)
    if shard.columns.categories:
        raise _core.ConfigError(
            f"quantile_dmatrix(): column {next(iter(shard.columns.categories))!r} is categorical; encode it with a "
            "preprocessor, or use the trainer's own loop: XGBoostTrainer(params=..., categorical_columns=...)"
        )
    folder = _core.TemporaryFolder() if external_memory else None
    cache = os.path.join(folder.path, "rows") if folder is not None else None
    matrix = quantized(shard.rows(), {"max_bin": max_bin}, reference, cache)
    matrix.trireme_shard, matrix.trireme_folder = shard, folder
    return matrix
