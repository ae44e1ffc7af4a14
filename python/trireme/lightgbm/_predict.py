"""Predictions for a dataset, in parallel."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
import pyarrow as pa

from trireme._boosting._predict import PREDICTIONS, predicted_dataset
from trireme._boosting._rows import Batch, _feature
from trireme._checkpoint import Checkpoint
from trireme.lightgbm._report import ReportCallback


def predict(
    model: lightgbm.Booster | Checkpoint,
    dataset: Any,
    *,
    output_column: str = PREDICTIONS,
    batch_size: int = 65_536,
    concurrency: int | None = None,
    **options: Any,
) -> Any:
    """The dataset with a column of predictions. Lazy: the batches are predicted when they are read, in processes.

    options: of lightgbm.Booster.predict(), for example raw_score=True or num_iteration=10.
    """
    booster = ReportCallback.get_model(model) if isinstance(model, Checkpoint) else model
    arguments = {"text": booster.model_to_string(num_iteration=-1), "column": output_column, "options": options}
    return predicted_dataset(dataset, _Predictor, arguments, batch_size, concurrency)


class _Predictor:
    def __init__(self, text: str, column: str, options: dict[str, Any]) -> None:
        self._booster = lightgbm.Booster(model_str=text)
        # They are stored in the order of the features, without their names.
        categorical = self._booster.params.get("categorical_feature") or []
        names = self._booster.feature_name()
        values = self._booster.pandas_categorical or []
        self._categories = dict(zip([names[index] for index in categorical], values, strict=False))
        self._column = column
        self._options = {"num_threads": 1, **options}

    def __call__(self, table: pa.Table) -> pa.Table:
        names = self._booster.feature_name()
        features = [_feature(table.column(name), self._categories.get(name)) for name in names]
        matrix = Batch(pa.table(features, names=names), np.empty(0), None, None).matrix(np.float64)
        found = self._booster.predict(matrix, **self._options)
        column = pa.array(found) if found.ndim == 1 else pa.array(list(found))
        return table.append_column(self._column, column)
