"""LightGBM's binned datasets from a worker's rows, a batch at a time."""

from __future__ import annotations

from typing import Any, Unpack

import lightgbm
import numpy as np
import pyarrow as pa

from trireme._boosting._rows import Batch, WorkerRows, refuse_empty
from trireme._boosting._shards import ColumnOptions, Shard

# Earlier versions need another package for Arrow tables.
_READS_ARROW = hasattr(lightgbm.basic._LIB, "LGBM_DatasetCreateFromArrowStream")


class _Rows(lightgbm.Sequence):  # type: ignore[misc]
    """LightGBM reads first a sample of the rows, then all of them, both from the first to the last: one batch at a time
    is enough."""

    batch_size = 65_536

    def __init__(self, rows: WorkerRows) -> None:
        self._rows = rows
        self._batches: Any = iter(())
        self._begin = self._end = 0
        self._matrix = np.empty((0, 0))

    def __len__(self) -> int:
        return self._rows.rows

    def __getitem__(self, index: Any) -> np.ndarray:
        if isinstance(index, slice):
            begin, end, _ = index.indices(len(self))
            parts = []
            while begin < end:
                self._move_to(begin)
                stop = min(end, self._end)
                parts.append(self._matrix[begin - self._begin : stop - self._begin])
                begin = stop
            several: np.ndarray = parts[0] if len(parts) == 1 else np.concatenate(parts)
            return several
        if isinstance(index, list):
            stacked: np.ndarray = np.stack([self[each] for each in index])
            return stacked
        self._move_to(index)
        row: np.ndarray = self._matrix[index - self._begin]
        return row

    def _move_to(self, row: int) -> None:
        if row < self._begin or self._end == 0:
            self._batches, self._begin, self._end = iter(self._rows), 0, 0
        while row >= self._end:
            self._matrix = next(self._batches).matrix(np.float64)
            self._begin, self._end = self._end, self._end + len(self._matrix)


def _data(rows: WorkerRows) -> Any:
    """Rows that are in memory as an Arrow table, which LightGBM reads without a copy; others a batch at a time."""
    if not (_READS_ARROW and rows.are_held):
        return _Rows(rows)
    tables = [batch.table for batch in rows]
    rows.release()
    return pa.concat_tables(tables)


def binned(
    rows: WorkerRows, params: dict[str, Any], reference: lightgbm.Dataset | None, earlier: lightgbm.Booster | None
) -> lightgbm.Dataset:
    """earlier: the model to continue, whose predictions are the initial scores."""
    made = _unbinned(rows, params, reference, earlier)
    made.construct()
    rows.release()
    return made


def _unbinned(
    rows: WorkerRows,
    params: dict[str, Any] | None,
    reference: lightgbm.Dataset | None,
    earlier: lightgbm.Booster | None,
) -> lightgbm.Dataset:
    labels, weights, groups, scores = [], [], [], []
    for batch in rows:
        labels.append(batch.label)
        if batch.weight is not None:
            weights.append(batch.weight)
        if batch.group is not None:
            groups.append(batch.group)
        if earlier is not None:
            scores.append(_raw_scores(earlier, batch))
    refuse_empty(rows)
    columns = rows.columns
    made = lightgbm.Dataset(
        _data(rows),
        label=np.concatenate(labels),
        weight=np.concatenate(weights) if weights else None,
        group=_sizes(np.concatenate(groups)) if groups else None,
        # Class by class.
        init_score=np.concatenate(scores).ravel(order="F") if scores else None,
        reference=reference,
        feature_name=list(columns.features),
        categorical_feature=[name for name in columns.features if name in columns.categories],
        params=params,
    )
    if columns.categories:
        # Where LightGBM itself keeps them: its own predict() of a DataFrame uses them as well.
        made.pandas_categorical = [columns.categories[name] for name in columns.features if name in columns.categories]
    return made


def dataset(
    dataset: str = "train",
    *,
    reference: lightgbm.Dataset | None = None,
    complete: bool = False,
    **columns: Unpack[ColumnOptions],
) -> lightgbm.Dataset:
    """In a training function: this worker's rows of a dataset as a lightgbm.Dataset, which LightGBM reads a batch at a
    time when it begins to train. Collective.

    reference: the dataset to train on, for one to evaluate. It has the same columns and bins.
    complete: all rows on every worker, so that all have the same metrics and stop early in the same round.
    columns: label_column, weight_column, group_column and categorical_columns, as for LightGBMTrainer.
    """
    shard = Shard.of("lightgbm", dataset, reference, **columns)
    made = _unbinned(shard.rows(complete=complete), None, reference, None)
    made.trireme_shard = shard
    return made


def _raw_scores(earlier: lightgbm.Booster, batch: Batch) -> np.ndarray:
    scores: np.ndarray = earlier.predict(batch.matrix(np.float64), raw_score=True, num_iteration=-1)
    return scores


def _sizes(groups: np.ndarray) -> np.ndarray:
    begins = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    sizes: np.ndarray = np.diff(begins, append=len(groups))
    return sizes
