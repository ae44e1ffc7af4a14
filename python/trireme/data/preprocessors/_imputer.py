"""Replaces missing values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trireme.data.preprocessors._core_preprocessor import CorePreprocessor


class SimpleImputer(CorePreprocessor):
    """Replaces null and NaN with the mean of the column, its most frequent value, or a constant (fill_value).

    strategy: "mean", "most_frequent" or "constant". With "mean", integer columns become float64.
    """

    strategy: str
    fill_value: Any

    def __init__(
        self,
        columns: Sequence[str],
        strategy: str = "mean",
        fill_value: Any = None,
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns=columns, strategy=strategy, fill_value=fill_value, output_columns=output_columns)
