"""Predictions for a dataset, in parallel."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import xgboost

from trireme._boosting._predict import PREDICTIONS, predicted_dataset
from trireme._boosting._rows import Batch, Categories, _feature
from trireme._checkpoint import Checkpoint
from trireme.xgboost._loop import CATEGORIES
from trireme.xgboost._report import ReportCallback


def predict(
    model: xgboost.Booster | Checkpoint,
    dataset: Any,
    *,
    output_column: str = PREDICTIONS,
    batch_size: int = 65_536,
    concurrency: int | None = None,
    **options: Any,
) -> Any:
    """The dataset with a column of predictions. Lazy: the batches are predicted when they are read, in processes.

    options: of xgboost.Booster.predict(), for example output_margin=True or iteration_range=(0, 10).
    """
    booster = ReportCallback.get_model(model) if isinstance(model, Checkpoint) else model
    arguments = {"raw": bytes(booster.save_raw("ubj")), "column": output_column, "options": options}
    return predicted_dataset(dataset, _Predictor, arguments, batch_size, concurrency)


class _Predictor:
    def __init__(self, raw: bytes, column: str, options: dict[str, Any]) -> None:
        self._booster = xgboost.Booster({"nthread": 1}, model_file=bytearray(raw))
        self._column = column
        self._options = options
        self._categories = _categories(self._booster)

    def __call__(self, table: pa.Table) -> pa.Table:
        names = self._booster.feature_names or table.column_names
        features = pa.table([_feature(table.column(name), self._categories.get(name)) for name in names], names=names)
        found = self._booster.predict(self._matrix(features), **self._options)
        column = pa.array(found) if found.ndim == 1 else pa.array(list(found))
        return table.append_column(self._column, column)

    def _matrix(self, features: pa.Table) -> xgboost.DMatrix:
        texts = [field.name for field in features.schema if not _is_number(field.type)]
        if texts:
            # Trained on a DataFrame: XGBoost has stored the categories, and finds them in a DataFrame.
            frame = features.to_pandas()
            frame[texts] = frame[texts].astype("category")
            return xgboost.DMatrix(frame, enable_categorical=True, nthread=1)
        matrix = Batch(features, np.empty(0), None, None).matrix(np.float32)
        names, kinds = features.column_names, self._booster.feature_types
        return xgboost.DMatrix(matrix, feature_names=names, feature_types=kinds, enable_categorical=True, nthread=1)


def _categories(booster: xgboost.Booster) -> Categories:
    """Those that the trainer's own loop stores, or those that XGBoost stores, from version 3.1 on."""
    if text := booster.attr(CATEGORIES):
        stored: Categories = json.loads(text)
        return stored
    if not hasattr(booster, "get_categories"):
        return {}
    found = booster.get_categories(export_to_arrow=True).to_arrow()
    return {name: values.to_pylist() for name, values in found if values is not None}


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
