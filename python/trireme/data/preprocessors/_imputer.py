"""Replaces missing values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from trireme.data._tensors import is_number
from trireme.data.preprocessors._columns import numeric, plain, replaced
from trireme.data.preprocessors._preprocessor import ColumnsPreprocessor
from trireme.data.preprocessors._statistics import moments, value_counts

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


class SimpleImputer(ColumnsPreprocessor):
    """Replaces null and NaN with the mean of the column, its most frequent value, or a constant (fill_value).

    With "mean", integer columns become float64.
    """

    _STRATEGIES: ClassVar[tuple[str, ...]] = ("mean", "most_frequent", "constant")

    def __init__(
        self,
        columns: Sequence[str],
        strategy: str = "mean",
        fill_value: Any = None,
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._set_columns(columns, output_columns)
        if strategy not in self._STRATEGIES:
            raise ValueError(f"strategy={strategy!r}: expected one of {', '.join(map(repr, self._STRATEGIES))}")
        if strategy == "constant" and fill_value is None:
            raise ValueError("strategy='constant' needs a fill_value")
        self.strategy = strategy
        self.fill_value = fill_value
        self._is_fittable = strategy != "constant"

    def _fit(self, ds: Dataset) -> None:
        if self.strategy == "mean":
            for name, found in moments(ds, self.columns, "SimpleImputer").items():
                self.stats_[f"mean({name})"] = found.mean
            return
        for name, counts in value_counts(
            ds, self.columns, "SimpleImputer", inside_lists=False, skip_nulls=True
        ).items():
            self.stats_[f"most_frequent({name})"] = max(counts, key=lambda value: counts[value])

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        changed = {}
        for name, output in zip(self.columns, self.output_columns, strict=True):
            if self.strategy == "mean":
                column = numeric(batch, name, "SimpleImputer")
                if not pa.types.is_floating(column.type):
                    column = column.cast(pa.float64(), safe=False)
                value = self.stats_[f"mean({name})"]
            else:
                column = plain(batch, name, "SimpleImputer")
                value = self.fill_value if self.strategy == "constant" else self.stats_[f"most_frequent({name})"]
            changed[output] = _filled(column, value, name)
        return replaced(batch, changed)


def _filled(column: pa.Array, value: Any, name: str) -> pa.Array:
    kind = pa.scalar(value).type if pa.types.is_null(column.type) else column.type
    if isinstance(value, float) and pa.types.is_integer(kind) and not value.is_integer():
        kind = pa.float64()
    try:
        if is_number(kind) != isinstance(value, (bool, int, float)):
            raise TypeError
        filling = pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError):
        raise ValueError(
            f"SimpleImputer: column {name!r} is {column.type}, and {value!r} is not a valid value for it: pass "
            "a fill_value of its type"
        ) from None
    column = column.cast(kind, safe=False)
    if not column.null_count and not pa.types.is_floating(kind):
        return column
    return pc.if_else(column.is_null(nan_is_null=True), filling, column)
