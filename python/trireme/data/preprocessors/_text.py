"""Converts text to tokens, and tokens to numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme.data._tensors import fixed_tensors
from trireme.data.preprocessors._columns import has_nulls, is_text, nulls_in, numeric, plain, replaced
from trireme.data.preprocessors._preprocessor import ColumnsPreprocessor, Preprocessor, checked_names
from trireme.data.preprocessors._statistics import batches_of

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

TokenizationFn = Callable[[str], Sequence[Any]]


class _TextPreprocessor(ColumnsPreprocessor):
    """tokenization_fn: splits a text into a list of tokens; default: split at each space."""

    _functions = ("tokenization_fn",)

    def _set_tokens(self, tokenization_fn: TokenizationFn | None) -> None:
        if tokenization_fn is not None and not callable(tokenization_fn):
            raise ValueError(f"tokenization_fn={tokenization_fn!r}: expected a function that takes a string")
        self.tokenization_fn = tokenization_fn

    def _tokens(self, batch: pa.RecordBatch, name: str, nulls: bool = False) -> pa.Array:
        who = type(self).__name__
        column = plain(batch, name, who)
        if not is_text(column.type) and not pa.types.is_null(column.type):
            raise ValueError(f"{who}: column {name!r} is {column.type}, expected text")
        if not nulls and has_nulls(column):
            raise ValueError(
                f"{who}: column {name!r} has nulls: fill them first "
                f"(SimpleImputer([{name!r}], strategy='constant', fill_value='')), or filter their rows out"
            )
        if self.tokenization_fn is None:
            return pc.split_pattern(column.cast(pa.string()), " ")
        texts = column.to_pylist()
        return pa.array([None if text is None else list(self.tokenization_fn(text)) for text in texts])

    def _counted(self, tokens: pa.Array, width: int, places: Callable[[pa.Array], np.ndarray]) -> pa.Array:
        """The count of tokens at each index, by row; tokens with an index below 0 are not counted."""
        rows = len(tokens)
        lengths = pc.list_value_length(tokens).to_numpy() if rows else np.zeros(0, np.int64)
        at = places(tokens.flatten()) if rows else np.zeros(0, np.int64)
        row: np.ndarray = np.repeat(np.arange(rows), lengths)
        kept = at >= 0
        counts = np.bincount(row[kept] * width + at[kept], minlength=rows * width)
        return fixed_tensors(counts.reshape(rows, width).astype(np.int64, copy=False))


class Tokenizer(_TextPreprocessor):
    """Splits texts into lists of tokens."""

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        tokenization_fn: TokenizationFn | None = None,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._set_columns(columns, output_columns)
        self._set_tokens(tokenization_fn)

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        pairs = zip(self.columns, self.output_columns, strict=True)
        return replaced(batch, {output: self._tokens(batch, name, nulls=True) for name, output in pairs})


class CountVectorizer(_TextPreprocessor):
    """A vector (int64) with the count of each token in a text, the most frequent token of the dataset first.

    max_features: keep only the N most frequent tokens.
    """

    def __init__(
        self,
        columns: Sequence[str],
        tokenization_fn: TokenizationFn | None = None,
        max_features: int | None = None,
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._set_columns(columns, output_columns)
        self._set_tokens(tokenization_fn)
        self.max_features = max_features

    def _fit(self, ds: Dataset) -> None:
        total: dict[str, dict[Any, int]] = {name: {} for name in self.columns}
        for batch in batches_of(ds, self.columns, "CountVectorizer"):
            for name, seen in total.items():
                counts = self._tokens(batch, name).flatten().value_counts()
                pairs = zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
                for token, count in pairs:
                    seen[token] = seen.get(token, 0) + count
        for name, seen in total.items():
            if not seen:
                raise ValueError(f"CountVectorizer: column {name!r} has no tokens to learn from: there are no rows")
            common = sorted(seen, key=lambda token: -seen[token])[: self.max_features]
            self.stats_[f"token_counts({name})"] = {token: seen[token] for token in common}

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        changed = {}
        for name, output in zip(self.columns, self.output_columns, strict=True):
            known = pa.array(list(self.stats_[f"token_counts({name})"]))
            changed[output] = self._counted(
                self._tokens(batch, name),
                len(known),
                lambda tokens: pc.index_in(tokens, value_set=known).fill_null(-1).to_numpy(),  # noqa: B023
            )
        return replaced(batch, changed)


class HashingVectorizer(_TextPreprocessor):
    """A vector (int64) of num_features counts: the hash of a token selects the element that counts it."""

    _is_fittable = False

    def __init__(
        self,
        columns: Sequence[str],
        num_features: int,
        tokenization_fn: TokenizationFn | None = None,
        *,
        output_columns: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._set_columns(columns, output_columns)
        self._set_tokens(tokenization_fn)
        self.num_features = _checked_features(num_features)

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        pairs = zip(self.columns, self.output_columns, strict=True)
        return replaced(
            batch,
            {
                output: self._counted(self._tokens(batch, name), self.num_features, self._places)
                for name, output in pairs
            },
        )

    def _places(self, tokens: pa.Array) -> np.ndarray:
        encoded = tokens.dictionary_encode()
        hashes: np.ndarray = np.array(
            [hashed(token, self.num_features) for token in encoded.dictionary.to_pylist()], np.int64
        )
        indices = encoded.indices.to_numpy()
        return hashes[indices] if len(indices) else np.zeros(0, np.int64)


class FeatureHasher(Preprocessor):
    """Combines columns of token counts, each named after its token, into one vector of num_features sums: the hash of a
    column's name selects the element that it is added to. The columns are kept."""

    _is_fittable = False

    def __init__(self, columns: Sequence[str], num_features: int, output_column: str) -> None:
        super().__init__()
        self.columns = checked_names("columns", columns)
        self.num_features = _checked_features(num_features)
        self.output_column = output_column

    def get_input_columns(self) -> list[str]:
        return self.columns

    def get_output_columns(self) -> list[str]:
        return [self.output_column]

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: numeric(batch, name, "FeatureHasher") for name in self.columns}
        whole = all(not pa.types.is_floating(column.type) for column in columns.values())
        sums: np.ndarray = np.zeros((batch.num_rows, self.num_features), np.int64 if whole else np.float64)
        for name, column in columns.items():
            if whole and column.null_count:
                raise nulls_in(name, "FeatureHasher")
            kind = pa.int64() if whole else pa.float64()
            sums[:, hashed(name, self.num_features)] += column.cast(kind, safe=False).to_numpy(zero_copy_only=False)
        return replaced(batch, {self.output_column: fixed_tensors(sums)})


def hashed(token: Any, places: int) -> int:
    """Equal on every machine and in every process, unlike hash(). The same as Ray's, so that models are portable."""
    return int(hashlib.sha256(str(token).encode()).hexdigest(), 16) % places


def _checked_features(num_features: int) -> int:
    if num_features < 1:
        raise ValueError(f"num_features={num_features}: expected at least 1")
    return num_features
