"""Combines columns into one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trireme.data._column_ops import require_columns
from trireme.data._tensors import fixed_tensors, is_number, numpy_of, tensor_shape
from trireme.data.preprocessors._columns import plain, replaced
from trireme.data.preprocessors._preprocessor import Preprocessor, checked_names


class Concatenator(Preprocessor):
    """Combines columns of numbers into one column of vectors, in the given order, and drops them.

    dtype: of the vectors; default: the smallest type that holds all columns. flatten: concatenate vectors and tensors
    among the columns, too. raise_if_missing: for compatibility with Ray; a missing column is always an error.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        output_column_name: str = "concat_out",
        dtype: Any = None,
        raise_if_missing: bool = False,
        flatten: bool = False,
    ) -> None:
        super().__init__()
        self.columns = checked_names("columns", columns)
        self.output_column_name = output_column_name
        self.dtype = None if dtype is None else np.dtype(dtype)
        self.raise_if_missing = raise_if_missing
        self.flatten = flatten

    def get_input_columns(self) -> list[str]:
        return self.columns

    def get_output_columns(self) -> list[str]:
        return [self.output_column_name]

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        require_columns(self.columns, batch.schema, "Concatenator")
        columns = {name: plain(batch, name, "Concatenator") for name in self.columns}
        widths = {name: self._width(name, column.type) for name, column in columns.items()}
        # Depends on the column types only: nulls in a batch must not change the type of the result.
        dtype = self.dtype or np.result_type(*(_dtype(column.type) for column in columns.values()))
        together: np.ndarray = np.empty((batch.num_rows, sum(widths.values())), dtype)
        at = 0
        for name, column in columns.items():
            if column.null_count and (dtype.kind != "f" or widths[name] > 1):
                raise ValueError(
                    f"Concatenator: column {name!r} has nulls: fill them first (SimpleImputer), or, if it has numbers, "
                    "use dtype='float32', which stores them as NaN"
                )
            if column.null_count and is_number(column.type):
                column = column.cast(pa.float64(), safe=False)
            together[:, at : at + widths[name]] = numpy_of(column, name).reshape(len(column), widths[name])
            at += widths[name]
        return replaced(batch, {self.output_column_name: fixed_tensors(together)}, drop=self.columns)

    def _width(self, name: str, kind: pa.DataType) -> int:
        if is_number(kind):
            return 1
        shape = tensor_shape(kind)
        if shape is None:
            raise ValueError(
                f"Concatenator: column {name!r} is {kind}, expected numbers (or vectors of one length): remove it "
                "from the columns, or convert it to numbers first (OrdinalEncoder, OneHotEncoder, map_batches)"
            )
        if not self.flatten:
            raise ValueError(f"Concatenator: column {name!r} holds vectors; set flatten=True to concatenate them")
        return int(np.prod(shape, dtype=np.int64))


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    while not is_number(kind):
        kind = kind.value_type
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return dtype
