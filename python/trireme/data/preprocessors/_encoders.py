"""Replaces categories with numbers, in sorted order: 0 is the smallest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme.data._tensors import fixed_tensors
from trireme.data.preprocessors._columns import is_list, plain, replaced, without_nulls
from trireme.data.preprocessors._preprocessor import ColumnsPreprocessor, Preprocessor, PreprocessorOp
from trireme.data.preprocessors._statistics import value_counts

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


class _Encoder(ColumnsPreprocessor):
    """stats_["unique_values(column)"] has the number of each category."""

    def _learn(self, ds: Dataset, inside_lists: bool, max_categories: Mapping[str, int] | None = None) -> None:
        self._known: dict[tuple[str, pa.DataType], pa.Array] = {}
        counted = value_counts(ds, self.columns, type(self).__name__, inside_lists=inside_lists)
        for name, counts in counted.items():
            self.stats_[f"unique_values({name})"] = _numbered(counts, (max_categories or {}).get(name))

    def _categories(self, name: str) -> dict[Any, int]:
        found: dict[Any, int] = self.stats_[f"unique_values({name})"]
        return found

    def _codes(self, column: pa.Array, name: str) -> pa.Array:
        # Built once, not for every batch: there may be many categories.
        known = self.__dict__.setdefault("_known", {})
        key = (name, column.type)
        if key not in known and not is_list(column.type):
            known[key] = values_in(self._categories(name), column.type, type(self).__name__, name)
        return codes(column, self._categories(name), known.get(key))


class OrdinalEncoder(_Encoder):
    """Replaces each category with its number (int64). Unknown categories become null.

    encode_lists: encode the elements of lists; otherwise each list is one category.
    """

    def __init__(
        self, columns: Sequence[str], *, encode_lists: bool = True, output_columns: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self._set_columns(columns, output_columns)
        self.encode_lists = encode_lists

    def _fit(self, ds: Dataset) -> None:
        self._learn(ds, inside_lists=self.encode_lists)

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        changed = {}
        for name, output in zip(self.columns, self.output_columns, strict=True):
            column = without_nulls(batch, name, "OrdinalEncoder")
            if self.encode_lists and is_list(column.type):
                offsets: np.ndarray = np.zeros(len(column) + 1, np.int32)
                np.cumsum(pc.list_value_length(column).to_numpy(), out=offsets[1:])
                changed[output] = pa.ListArray.from_arrays(pa.array(offsets), self._codes(column.flatten(), name))
            else:
                changed[output] = self._codes(column, name)
        return replaced(batch, changed)


class _HotEncoder(_Encoder):
    def __init__(
        self,
        columns: Sequence[str],
        *,
        max_categories: Mapping[str, int] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._set_columns(columns, output_columns)
        self.max_categories = dict(max_categories or {})
        for name, most in self.max_categories.items():
            if name not in self.columns:
                raise ValueError(f"max_categories names {name!r}, which is not in columns={self.columns}")
            if most < 1:
                raise ValueError(f"max_categories={self.max_categories}: {name!r} needs at least 1")

    def _hot(self, rows: int, at: np.ndarray, column: pa.Array, name: str) -> pa.Array:
        """Ones where row at[i] has the category column[i]."""
        numbers = self._codes(column, name).fill_null(-1).to_numpy()
        known = numbers >= 0
        hot: np.ndarray = np.zeros((rows, len(self._categories(name))), np.uint8)
        hot[at[known], numbers[known]] = 1
        return fixed_tensors(hot)


class OneHotEncoder(_HotEncoder):
    """A vector (uint8) with 1 at the index of the category; all 0 for unknown categories.

    max_categories: maximum number of categories by column; the most frequent ones are kept.
    """

    def _fit(self, ds: Dataset) -> None:
        self._learn(ds, False, self.max_categories)

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        changed = {}
        for name, output in zip(self.columns, self.output_columns, strict=True):
            column = without_nulls(batch, name, "OneHotEncoder")
            changed[output] = self._hot(len(column), np.arange(len(column)), column, name)
        return replaced(batch, changed)


class MultiHotEncoder(_HotEncoder):
    """A vector (uint8) with 1 at the indices of all categories in a list.

    max_categories: maximum number of categories by column; the most frequent ones are kept.
    """

    def _fit(self, ds: Dataset) -> None:
        self._learn(ds, True, self.max_categories)

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        changed = {}
        for name, output in zip(self.columns, self.output_columns, strict=True):
            column = without_nulls(batch, name, "MultiHotEncoder")
            rows = len(column)
            at: np.ndarray = np.arange(rows)
            if is_list(column.type):
                at = np.repeat(at, pc.list_value_length(column).to_numpy())
                column = column.flatten()
            changed[output] = self._hot(rows, at, column, name)
        return replaced(batch, changed)


class LabelEncoder(_Encoder):
    """Replaces the labels of one column with numbers (int64). Unknown labels become null."""

    def __init__(self, label_column: str, *, output_column: str | None = None) -> None:
        super().__init__()
        self._set_columns([label_column], None if output_column is None else [output_column])
        self.label_column = label_column
        self.output_column = self.output_columns[0]

    def _fit(self, ds: Dataset) -> None:
        self._learn(ds, inside_lists=True)

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        column = without_nulls(batch, self.label_column, "LabelEncoder")
        return replaced(batch, {self.output_column: self._codes(column, self.label_column)})

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
        encoder = self.encoder
        who = "LabelEncoder.inverse_transform"
        numbers = plain(batch, encoder.output_column, who)
        labels = pa.array(list(encoder._categories(encoder.label_column)))
        try:
            column = labels.take(numbers.cast(pa.int64()))
        except pa.ArrowException as error:
            raise ValueError(
                f"{who}: column {encoder.output_column!r} has values other than the label numbers 0 to "
                f"{len(labels) - 1}: {error}"
            ) from error
        return replaced(batch, {encoder.label_column: column})


class Categorizer(ColumnsPreprocessor):
    """Converts columns to categorical (pandas) or dictionary (Arrow) type. Values that fit() has not seen become null.

    dtypes: the known categories of a column (a list, or a pandas CategoricalDtype); fit() finds the others.
    """

    def __init__(
        self,
        columns: Sequence[str],
        dtypes: Mapping[str, Any] | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._set_columns(columns, output_columns)
        self.dtypes = {name: listed(dtype) for name, dtype in (dtypes or {}).items()}

    def _fit(self, ds: Dataset) -> None:
        unknown = [name for name in self.columns if name not in self.dtypes]
        self.stats_ = {name: self.dtypes[name] for name in self.columns if name in self.dtypes}
        if unknown:
            for name, counts in value_counts(ds, unknown, "Categorizer", skip_nulls=True).items():
                self.stats_[name] = list(_numbered(counts, None))

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        changed = {}
        for name, output in zip(self.columns, self.output_columns, strict=True):
            column = plain(batch, name, "Categorizer")
            categories = {value: index for index, value in enumerate(self.stats_[name])}
            known = values_in(categories, column.type, "Categorizer", name)
            changed[output] = pa.DictionaryArray.from_arrays(codes(column, categories, known).cast(pa.int32()), known)
        return replaced(batch, changed)


def codes(column: pa.Array, categories: Mapping[Any, int], known: pa.Array | None) -> pa.Array:
    """The number of each value; null for unknown values. known: the categories, if they are not lists."""
    if known is None:
        return pa.array([categories.get(tuple(value)) for value in column.to_pylist()], pa.int64())
    return pc.index_in(column, value_set=known).cast(pa.int64())


def values_in(categories: Iterable[Any], kind: pa.DataType, who: str, name: str) -> pa.Array:
    try:
        return pa.array(list(categories), kind)
    except (pa.ArrowException, TypeError, ValueError) as error:
        some = next(iter(categories))
        raise ValueError(
            f"{who}: column {name!r} is {kind}, but it was fitted to categories such as {some!r} "
            f"({type(some).__name__})"
        ) from error


def listed(dtype: Any) -> list[Any]:
    """The categories of a pandas CategoricalDtype, or of a list of them."""
    values: Iterable[Any] = getattr(dtype, "categories", dtype)
    if values is None or isinstance(values, str):
        raise ValueError(f"{dtype!r} has no categories: pass a list of them")
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _numbered(counts: Mapping[Any, int], most: int | None) -> dict[Any, int]:
    values = list(counts)
    if most is not None:
        values = sorted(values, key=lambda value: -counts[value])[:most]  # ties: in order of first appearance
    return {value: index for index, value in enumerate(sorted(values))}
