"""Columns and values in expressions: filter(expr=col("x") > 3). Names as in ray.data.expressions."""

from trireme.data._expressions import col, lit

__all__ = ["col", "lit"]
