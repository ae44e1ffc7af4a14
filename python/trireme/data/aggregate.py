"""Aggregates for Dataset.aggregate() and groupby(...).aggregate(); names as in ray.data.aggregate."""

from trireme.data._aggregates import AbsMax, AggregateFn, Count, Max, Mean, Min, Std, Sum, Unique

__all__ = ["AbsMax", "AggregateFn", "Count", "Max", "Mean", "Min", "Std", "Sum", "Unique"]
