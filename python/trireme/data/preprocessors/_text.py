"""Converts text to tokens, and tokens to numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trireme.data._column_ops import require_columns
from trireme.data.preprocessors._columns import replaced
from trireme.data.preprocessors._core_preprocessor import CorePreprocessor

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

TokenizationFn = Callable[[str], Sequence[Any]]


class _TextPreprocessor(CorePreprocessor):
    """tokenization_fn: splits a text into a list of tokens; default: split at each space.

    The function runs in Python, and the core takes its tokens, which may be numbers, instead of the texts.
    """

    _functions = ("tokenization_fn",)
    tokenization_fn: TokenizationFn | None

    def __post_init__(self) -> None:
        if self.tokenization_fn is not None and not callable(self.tokenization_fn):
            raise ValueError(f"tokenization_fn={self.tokenization_fn!r}: expected a function that takes a string")
        super().__post_init__()

    def _batches(self, ds: Dataset, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in super()._batches(ds, columns):
            yield batch if self.tokenization_fn is None else self._tokenized(batch)

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.tokenization_fn is None:
            return super()._change(batch)
        made = super()._change(self._tokenized(batch))
        return replaced(batch, {name: made.column(name) for name in self.output_columns})

    def _tokenized(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Lists of tokens in place of the texts, without the other columns."""
        assert self.tokenization_fn is not None
        who = type(self).__name__
        require_columns(self.columns, batch.schema, who)
        tokens = {}
        for name in self.columns:
            texts = batch.column(name).to_pylist()
            for text in texts:
                if text is not None and not isinstance(text, str):
                    raise ValueError(f"{who}: column {name!r} is {batch.column(name).type}, expected text")
            tokens[name] = pa.array([None if text is None else list(self.tokenization_fn(text)) for text in texts])
        return pa.record_batch(tokens)


@dataclass(eq=False, repr=False)
class Tokenizer(_TextPreprocessor):
    """Splits texts into lists of tokens."""

    columns: Sequence[str]
    tokenization_fn: TokenizationFn | None = None
    output_columns: Sequence[str] | None = None

    def _change(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.tokenization_fn is None:
            return super()._change(batch)
        tokens = self._tokenized(batch)
        pairs = zip(self.columns, self.get_output_columns(), strict=True)
        return replaced(batch, {output: tokens.column(name) for name, output in pairs})


@dataclass(eq=False, repr=False)
class CountVectorizer(_TextPreprocessor):
    """A vector (int64) with the count of each token in a text, the most frequent token of the dataset first.

    max_features: keep only the N most frequent tokens.
    """

    columns: Sequence[str]
    tokenization_fn: TokenizationFn | None = None
    max_features: int | None = None
    _: KW_ONLY
    output_columns: Sequence[str] | None = None


@dataclass(eq=False, repr=False)
class HashingVectorizer(_TextPreprocessor):
    """A vector (int64) of num_features counts: the hash of a token selects the element that counts it."""

    columns: Sequence[str]
    num_features: int
    tokenization_fn: TokenizationFn | None = None
    _: KW_ONLY
    output_columns: Sequence[str] | None = None


@dataclass(eq=False, repr=False)
class FeatureHasher(CorePreprocessor):
    """Combines columns of token counts, each named after its token, into one vector of num_features sums: the hash of a
    column's name selects the element that it is added to. The columns are kept."""

    columns: Sequence[str]
    num_features: int
    output_column: str
