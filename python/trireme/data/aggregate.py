"""Aggregates for Dataset.aggregate() and groupby(...).aggregate(); names as in ray.data.aggregate."""

from trireme.data._aggregates import AbsMax, AggregateFn, Count, Max, Mean, Min, Std, Sum, Unique
from trireme.data._folded_aggregates import (
    AggregateFnV2,
    ApproximateQuantile,
    ApproximateTopK,
    AsList,
    CountDistinct,
    MissingValuePercentage,
    Quantile,
    ValueCounter,
    ZeroPercentage,
)

__all__ = [
    "AbsMax",
    "AggregateFn",
    "AggregateFnV2",
    "ApproximateQuantile",
    "ApproximateTopK",
    "AsList",
    "Count",
    "CountDistinct",
    "Max",
    "Mean",
    "Min",
    "MissingValuePercentage",
    "Quantile",
    "Std",
    "Sum",
    "Unique",
    "ValueCounter",
    "ZeroPercentage",
]
