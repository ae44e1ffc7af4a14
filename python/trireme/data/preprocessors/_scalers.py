"""Scales numbers. Scalers keep null and NaN, and float32 stays float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from trireme.data.preprocessors._core_preprocessor import CorePreprocessor


class StandardScaler(CorePreprocessor):
    """Scales to mean 0 and standard deviation 1."""

    def __init__(self, columns: Sequence[str], output_columns: Sequence[str] | None = None) -> None:
        super().__init__(columns=columns, output_columns=output_columns)


class MinMaxScaler(CorePreprocessor):
    """Scales the smallest value to 0 and the largest to 1."""

    def __init__(self, columns: Sequence[str], output_columns: Sequence[str] | None = None) -> None:
        super().__init__(columns=columns, output_columns=output_columns)


class MaxAbsScaler(CorePreprocessor):
    """Divides by the largest absolute value: the result is between -1 and 1, and 0 stays 0."""

    def __init__(self, columns: Sequence[str], output_columns: Sequence[str] | None = None) -> None:
        super().__init__(columns=columns, output_columns=output_columns)


class RobustScaler(CorePreprocessor):
    """Scales the median to 0 and the distance between two quantiles to 1, so outliers do not matter.

    quantile_precision: number of values kept to estimate quantiles. Below 131072 values they are always exact.
    """

    DEFAULT_QUANTILE_PRECISION: ClassVar[int] = 800
    quantile_range: tuple[float, float]
    quantile_precision: int

    def __init__(
        self,
        columns: Sequence[str],
        quantile_range: tuple[float, float] = (0.25, 0.75),
        output_columns: Sequence[str] | None = None,
        quantile_precision: int = DEFAULT_QUANTILE_PRECISION,
    ) -> None:
        super().__init__(
            columns=columns,
            quantile_range=quantile_range,
            output_columns=output_columns,
            quantile_precision=quantile_precision,
        )


class Normalizer(CorePreprocessor):
    """Scales rows to length 1: divides each value by the norm ("l1", "l2" or "max") of its row. Rows of zeros stay
    unchanged."""

    norm: str

    def __init__(
        self, columns: Sequence[str], norm: str = "l2", *, output_columns: Sequence[str] | None = None
    ) -> None:
        super().__init__(columns=columns, norm=norm, output_columns=output_columns)


class PowerTransformer(CorePreprocessor):
    """Makes values more normally distributed: a power transform, "yeo-johnson" or (for positive values) "box-cox"."""

    power: float
    method: str

    def __init__(
        self,
        columns: Sequence[str],
        power: float,
        method: str = "yeo-johnson",
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__(columns=columns, power=power, method=method, output_columns=output_columns)
