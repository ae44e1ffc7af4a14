"""Replaces categories with numbers, in sorted order: 0 is the smallest.

stats_["unique_values(column)"] has the number of each category.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trireme.data.preprocessors._core_preprocessor import CorePreprocessor, readable
from trireme.data.preprocessors._preprocessor import Preprocessor, PreprocessorOp

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


@dataclass(eq=False, repr=False)
class OrdinalEncoder(CorePreprocessor):
    """Replaces each category with its number (int64). Unknown categories become null.

    encode_lists: encode the elements of lists; otherwise each list is one category.
    """

    columns: Sequence[str]
    _: KW_ONLY
    encode_lists: bool = True
    output_columns: Sequence[str] | None = None


@dataclass(eq=False, repr=False)
class OneHotEncoder(CorePreprocessor):
    """A vector (uint8) with 1 at the index of the category; all 0 for unknown categories.

    max_categories: maximum number of categories by column; the most frequent ones are kept.
    """

    columns: Sequence[str]
    _: KW_ONLY
    max_categories: Mapping[str, int] | None = None
    output_columns: Sequence[str] | None = None


@dataclass(eq=False, repr=False)
class MultiHotEncoder(CorePreprocessor):
    """A vector (uint8) with 1 at the indices of all categories in a list.

    max_categories: maximum number of categories by column; the most frequent ones are kept.
    """

    columns: Sequence[str]
    _: KW_ONLY
    max_categories: Mapping[str, int] | None = None
    output_columns: Sequence[str] | None = None


@dataclass(eq=False, repr=False)
class LabelEncoder(CorePreprocessor):
    """Replaces the labels of one column with numbers (int64). Unknown labels become null."""

    label_column: str
    _: KW_ONLY
    output_column: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.columns, self.output_columns = [self.label_column], [self.output_column]

    def inverse_transform(self, ds: Dataset) -> Dataset:
        """Restores the labels in label_column from the numbers in output_column."""
        self._require_fitted("inverse_transform")
        return ds._then(PreprocessorOp(_LabelDecoder(self)))

    def inverse_transform_batch(self, data: Any) -> Any:
        self._require_fitted("inverse_transform_batch")
        return _LabelDecoder(self).transform_batch(data)


class _LabelDecoder(Preprocessor):
    _is_fittable = False

    def __init__(self, encoder: LabelEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch(
            self.encoder._handle().transform(readable(batch, self.encoder.output_columns), back=True)
        )


@dataclass(eq=False, repr=False)
class Categorizer(CorePreprocessor):
    """Converts columns to categorical (pandas) or dictionary (Arrow) type. Values that fit() has not seen become null.

    dtypes: the known categories of a column (a list, or a pandas CategoricalDtype); fit() finds the others.
    """

    columns: Sequence[str]
    dtypes: Mapping[str, Any] | None = None
    output_columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self.dtypes = {name: listed(dtype) for name, dtype in (self.dtypes or {}).items()}
        super().__post_init__()


def listed(dtype: Any) -> list[Any]:
    """The categories of a pandas CategoricalDtype, or of a list of them."""
    values: Iterable[Any] = getattr(dtype, "categories", dtype)
    if values is None or isinstance(values, str):
        raise ValueError(f"{dtype!r} has no categories: pass a list of them")
    return [value.item() if isinstance(value, np.generic) else value for value in values]
