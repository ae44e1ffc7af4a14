"""Combines columns into one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trireme.data.preprocessors._core_preprocessor import CorePreprocessor


class Concatenator(CorePreprocessor):
    """Combines columns of numbers into one column of vectors, in the given order, and drops them.

    dtype: of the vectors; default: the smallest type that holds all columns. flatten: concatenate vectors and tensors
    among the columns, too. raise_if_missing: for compatibility with Ray; a missing column is always an error.
    """

    output_column_name: str
    dtype: np.dtype[Any] | None
    raise_if_missing: bool
    flatten: bool

    def __init__(
        self,
        columns: Sequence[str],
        output_column_name: str = "concat_out",
        dtype: Any = None,
        raise_if_missing: bool = False,
        flatten: bool = False,
    ) -> None:
        super().__init__(
            columns=columns,
            output_column_name=output_column_name,
            dtype=None if dtype is None else np.dtype(dtype),
            raise_if_missing=raise_if_missing,
            flatten=flatten,
        )
