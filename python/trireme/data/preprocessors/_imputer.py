"""Replaces missing values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from trireme.data.preprocessors._core_preprocessor import CorePreprocessor


@dataclass(eq=False, repr=False)
class SimpleImputer(CorePreprocessor):
    """Replaces null and NaN with the mean of the column, its most frequent value, or a constant (fill_value).

    strategy: "mean", "most_frequent" or "constant". With "mean", integer columns become float64.
    """

    columns: Sequence[str]
    strategy: str = "mean"
    fill_value: Any = None
    _: KW_ONLY
    output_columns: Sequence[str] | None = None
