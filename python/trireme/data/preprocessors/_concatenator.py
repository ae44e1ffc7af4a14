"""Combines columns into one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.data.preprocessors._core_preprocessor import CorePreprocessor


@dataclass(eq=False, repr=False)
class Concatenator(CorePreprocessor):
    """Combines columns of numbers into one column of vectors, in the given order, and drops them.

    dtype: of the vectors; default: the smallest type that holds all columns. flatten: concatenate vectors and tensors
    among the columns, too. raise_if_missing: for compatibility with Ray; a missing column is always an error.
    """

    columns: Sequence[str]
    output_column_name: str = "concat_out"
    dtype: Any = None
    raise_if_missing: bool = False
    flatten: bool = False

    def __post_init__(self) -> None:
        self.dtype = None if self.dtype is None else np.dtype(self.dtype)
        super().__post_init__()
