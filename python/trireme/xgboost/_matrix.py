"""Quantized matrices from a worker's rows, a batch at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import xgboost

from trireme._boosting._rows import Batch, WorkerRows, refuse_empty


class _Batches(xgboost.DataIter):  # type: ignore[misc]
    """XGBoost passes over the rows four times and keeps only the quantized ones."""

    def __init__(self, rows: WorkerRows, cache: str | None) -> None:
        super().__init__(cache_prefix=os.path.join(cache, rows.name) if cache is not None else None, release_data=True)
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


def quantized(
    rows: WorkerRows, params: dict[str, Any], reference: xgboost.DMatrix | None, cache: str | None
) -> xgboost.DMatrix:
    """cache: a folder for the quantized rows; None: they are in memory."""
    for _ in rows.tables():  # counts them
        pass
    refuse_empty(rows)
    kind = xgboost.QuantileDMatrix if cache is None else xgboost.ExtMemQuantileDMatrix
    matrix = kind(
        _Batches(rows, cache),
        max_bin=params.get("max_bin"),
        nthread=params["nthread"],
        ref=reference,
        enable_categorical=True,
    )
    rows.release()
    return matrix
