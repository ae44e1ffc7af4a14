"""Scales numbers. Scalers keep null and NaN, and float32 stays float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from trireme.data.preprocessors._core_preprocessor import CorePreprocessor


@dataclass(eq=False, repr=False)
class StandardScaler(CorePreprocessor):
    """Scales to mean 0 and standard deviation 1."""

    columns: Sequence[str]
    output_columns: Sequence[str] | None = None


@dataclass(eq=False, repr=False)
class MinMaxScaler(CorePreprocessor):
    """Scales the smallest value to 0 and the largest to 1."""

    columns: Sequence[str]
    output_columns: Sequence[str] | None = None


@dataclass(eq=False, repr=False)
class MaxAbsScaler(CorePreprocessor):
    """Divides by the largest absolute value: the result is between -1 and 1, and 0 stays 0."""

    columns: Sequence[str]
    output_columns: Sequence[str] | None = None


@dataclass(eq=False, repr=False)
class RobustScaler(CorePreprocessor):
    """Scales the median to 0 and the distance between two quantiles to 1, so outliers do not matter.

    quantile_precision: number of values kept to estimate quantiles. Below 131072 values they are always exact.
    """

    DEFAULT_QUANTILE_PRECISION: ClassVar[int] = 800

    columns: Sequence[str]
    quantile_range: tuple[float, float] = (0.25, 0.75)
    output_columns: Sequence[str] | None = None
    quantile_precision: int = DEFAULT_QUANTILE_PRECISION


@dataclass(eq=False, repr=False)
class Normalizer(CorePreprocessor):
    """Scales rows to length 1: divides each value by the norm ("l1", "l2" or "max") of its row. Rows of zeros stay
    unchanged."""

    columns: Sequence[str]
    norm: str = "l2"
    _: KW_ONLY
    output_columns: Sequence[str] | None = None


@dataclass(eq=False, repr=False)
class PowerTransformer(CorePreprocessor):
    """Makes values more normally distributed: a power transform, "yeo-johnson" or (for positive values) "box-cox"."""

    columns: Sequence[str]
    power: float
    method: str = "yeo-johnson"
    _: KW_ONLY
    output_columns: Sequence[str] | None = None
