"""XGBoost's quantiles, kept for the next attempt of the run: to find them, it passes over all rows of all workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
import xgboost

from trireme._boosting._kept import Kept
from trireme._boosting._rows import Columns, WorkerRows, gathered

FILE = "quantiles.npz"


@dataclass(frozen=True)
class Quantiles:
    """bounds, cuts: as XGBoost returns them; of each feature, a lower bound, the cuts and an upper bound.
    low, high: the extremes of each feature, which determine the outer bounds. NaN: it has no values.
    """

    bounds: np.ndarray
    cuts: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, matrix: xgboost.DMatrix, rows: WorkerRows) -> Quantiles:
        """Of a matrix of these rows. Collective."""
        extremes = np.array([_extremes(rows, name) for name in rows.columns.features])
        everyone = np.array(gathered(extremes.tolist()))
        low, high = np.fmin.reduce(everyone[..., 0]), np.fmax.reduce(everyone[..., 1])
        bounds, cuts = matrix.get_quantile_cut()
        return cls(bounds, cuts, low.astype(np.float32), high.astype(np.float32))

    @classmethod
    def load(cls, kept: Kept) -> Quantiles:
        with np.load(kept.path(FILE)) as file:
            return cls(**file)

    def keep(self, kept: Kept) -> None:
        def write(path: str) -> None:
            with open(path, "wb") as file:  # given a name, NumPy would add an ending
                np.savez(file, **vars(self))

        kept.write(FILE, write)

    def matrix(self, columns: Columns, params: dict[str, Any]) -> xgboost.DMatrix:
        """A small matrix, the same on all ranks, whose quantiles are these: it has every cut once, so that XGBoost
        keeps all of them. Collective."""
        values = [self._values(feature) for feature in range(len(columns.features))]
        rows: np.ndarray = np.full((max(1, *map(len, values)), len(values)), np.nan, np.float32)
        for feature, each in enumerate(values):
            rows[: len(each), feature] = each
        return xgboost.QuantileDMatrix(
            rows,
            max_bin=params.get("max_bin"),
            nthread=params.get("nthread"),
            feature_names=list(columns.features),
            feature_types=["float"] * len(values),
        )

    def are_those_of(self, matrix: xgboost.DMatrix) -> bool:
        bounds, cuts = matrix.get_quantile_cut()
        return bool(bounds.tobytes() == self.bounds.tobytes() and cuts.tobytes() == self.cuts.tobytes())

    def _values(self, feature: int) -> np.ndarray:
        if np.isnan(self.low[feature]):
            return np.empty(0, np.float32)
        inner = self.cuts[int(self.bounds[feature]) + 1 : int(self.bounds[feature + 1]) - 1]
        every = [self.low[feature : feature + 1], inner, self.high[feature : feature + 1]]
        values: np.ndarray = np.unique(np.concatenate(every))
        return values


def _extremes(rows: WorkerRows, name: str) -> list[float]:
    found = [pc.min_max(batch.table.column(name)) for batch in rows]
    values = [each[side].as_py() for side in ("min", "max") for each in found]
    numbers = np.array(values, np.float32).reshape(2, -1)  # XGBoost's type; None becomes NaN
    return [float(np.fmin.reduce(numbers[0])), float(np.fmax.reduce(numbers[1]))]
