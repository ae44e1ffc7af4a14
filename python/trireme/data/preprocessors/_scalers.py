"""Scales numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from trireme.data.preprocessors._columns import as_floats, from_floats, numeric, replaced
from trireme.data.preprocessors._preprocessor import ColumnsPreprocessor
from trireme.data.preprocessors._statistics import moments, quantiles

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

# A column with a smaller deviation is treated as constant: it is shifted, but not scaled.
_EPSILON = 1e-8


class _Scaler(ColumnsPreprocessor):
    """(value - offset) / scale, both learned by fit(). Keeps null and NaN. float32 stays float32."""

    def __init__(self, columns: Sequence[str], output_columns: Sequence[str] | None = None) -> None:
        super().__init__()
        self._set_columns(columns, output_columns)

    def _scale(self, name: str) -> tuple[float, float]:
        """The offset to subtract, and the scale to divide by."""
        raise NotImplementedError

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        changed = {}
        for name, output in zip(self.columns, self.output_columns, strict=True):
            column = numeric(batch, name, type(self).__name__)
            moved, divided = self._scale(name)
            values = as_floats(column) - moved
            values /= divided
            changed[output] = from_floats(values, column)
        return replaced(batch, changed)


class StandardScaler(_Scaler):
    """Scales to mean 0 and standard deviation 1."""

    def _fit(self, ds: Dataset) -> None:
        for name, found in moments(ds, self.columns, "StandardScaler").items():
            self.stats_[f"mean({name})"] = found.mean
            self.stats_[f"std({name})"] = found.std

    def _scale(self, name: str) -> tuple[float, float]:
        std = self.stats_[f"std({name})"]
        return self.stats_[f"mean({name})"], 1.0 if std < _EPSILON else std


class MinMaxScaler(_Scaler):
    """Scales the smallest value to 0 and the largest to 1."""

    def _fit(self, ds: Dataset) -> None:
        for name, found in moments(ds, self.columns, "MinMaxScaler").items():
            self.stats_[f"min({name})"] = found.low
            self.stats_[f"max({name})"] = found.high

    def _scale(self, name: str) -> tuple[float, float]:
        low = self.stats_[f"min({name})"]
        width = self.stats_[f"max({name})"] - low
        return low, 1.0 if width < _EPSILON else width


class MaxAbsScaler(_Scaler):
    """Divides by the largest absolute value: the result is between -1 and 1, and 0 stays 0."""

    def _fit(self, ds: Dataset) -> None:
        for name, found in moments(ds, self.columns, "MaxAbsScaler").items():
            self.stats_[f"abs_max({name})"] = max(abs(found.low), abs(found.high))

    def _scale(self, name: str) -> tuple[float, float]:
        return 0.0, self.stats_[f"abs_max({name})"] or 1.0


class RobustScaler(_Scaler):
    """Scales the median to 0 and the distance between two quantiles to 1, so outliers do not matter.

    quantile_precision: number of values kept to estimate quantiles. Below 131072 values they are always exact.
    """

    DEFAULT_QUANTILE_PRECISION: ClassVar[int] = 800

    def __init__(
        self,
        columns: Sequence[str],
        quantile_range: tuple[float, float] = (0.25, 0.75),
        output_columns: Sequence[str] | None = None,
        quantile_precision: int = DEFAULT_QUANTILE_PRECISION,
    ) -> None:
        super().__init__(columns, output_columns)
        low, high = quantile_range
        if not 0 <= low < high <= 1:
            raise ValueError(f"quantile_range={quantile_range!r}: expected two fractions, the smaller one first")
        self.quantile_range = (float(low), float(high))
        self.quantile_precision = quantile_precision

    def _fit(self, ds: Dataset) -> None:
        low, high = self.quantile_range
        found = quantiles(ds, self.columns, [low, 0.5, high], "RobustScaler", self.quantile_precision)
        for name, values in found.items():
            for key, value in zip(("low_quantile", "median", "high_quantile"), values, strict=True):
                self.stats_[f"{key}({name})"] = value

    def _scale(self, name: str) -> tuple[float, float]:
        width = self.stats_[f"high_quantile({name})"] - self.stats_[f"low_quantile({name})"]
        return self.stats_[f"median({name})"], width or 1.0


class Normalizer(ColumnsPreprocessor):
    """Scales rows to length 1: divides each value by the norm ("l1", "l2" or "max") of its row. Rows of zeros stay
    unchanged."""

    _is_fittable = False
    _NORMS: ClassVar[tuple[str, ...]] = ("l1", "l2", "max")

    def __init__(
        self, columns: Sequence[str], norm: str = "l2", *, output_columns: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self._set_columns(columns, output_columns)
        if norm not in self._NORMS:
            raise ValueError(f"norm={norm!r}: expected one of {', '.join(map(repr, self._NORMS))}")
        self.norm = norm

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [numeric(batch, name, "Normalizer") for name in self.columns]
        rows: np.ndarray = np.stack([as_floats(column) for column in columns], axis=1)
        if self.norm == "l1":
            norms = np.abs(rows).sum(axis=1)
        elif self.norm == "l2":
            norms = np.sqrt(np.square(rows).sum(axis=1))
        else:
            norms = np.abs(rows).max(axis=1)
        rows /= np.where(norms == 0, 1.0, norms)[:, None]
        outputs = enumerate(self.output_columns)
        return replaced(batch, {output: from_floats(rows[:, index], columns[index]) for index, output in outputs})


class PowerTransformer(ColumnsPreprocessor):
    """Makes values more normally distributed: a power transform, "yeo-johnson" or (for positive values) "box-cox"."""

    _is_fittable = False
    _METHODS: ClassVar[tuple[str, ...]] = ("yeo-johnson", "box-cox")

    def __init__(
        self,
        columns: Sequence[str],
        power: float,
        method: str = "yeo-johnson",
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._set_columns(columns, output_columns)
        if method not in self._METHODS:
            raise ValueError(f"method={method!r}: expected one of {', '.join(map(repr, self._METHODS))}")
        self.power = power
        self.method = method

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        changed = {}
        for name, output in zip(self.columns, self.output_columns, strict=True):
            column = numeric(batch, name, "PowerTransformer")
            values = as_floats(column)
            if self.method == "box-cox":
                if (values <= 0).any():
                    raise ValueError(
                        f"PowerTransformer: column {name!r} has {values[values <= 0][0]}, but box-cox needs positive "
                        "values: use method='yeo-johnson'"
                    )
                result = _power(values, self.power)
            else:
                above = values >= 0
                result = np.where(
                    above,
                    _power(np.where(above, values, 0) + 1, self.power),
                    -_power(np.where(above, 0, -values) + 1, 2 - self.power),
                )
            changed[output] = from_floats(result, column)
        return replaced(batch, changed)


def _power(values: np.ndarray, power: float) -> np.ndarray:
    result: np.ndarray = np.log(values) if power == 0 else (np.power(values, power) - 1) / power
    return result
