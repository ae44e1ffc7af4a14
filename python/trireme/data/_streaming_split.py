"""Splits rows into train and test while they are read: nothing is counted or loaded before."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme.data._column_ops import require_columns
from trireme.data._fragment import Op, Where

_RANGE = 2.0**64


class SplitRows(Op):
    """Keeps the train rows or the test rows. A row's hash decides, so every row is in exactly one of them."""

    keeps_rows = False

    def __init__(self, test: bool, test_size: float, seed: int, column: str | None) -> None:
        self._test = test
        self._limit = test_size
        self._seed = seed
        self._column = column
        by = f"hash of {column}" if column is not None else "random"
        self.any_columns = column is None
        self.name = f"streaming_train_test_split({'test' if test else 'train'}, {test_size}, {by}, seed={seed})"

    def __call__(self, batches: Iterator[pa.RecordBatch], where: Where) -> Iterator[pa.RecordBatch]:
        row = where.row
        fragment = zlib.crc32(where.fragment.encode())
        for batch in batches:
            if self._column is None:
                numbers = np.arange(row, row + batch.num_rows, dtype=np.uint64) + np.uint64(fragment << 32)
            else:
                numbers = _values(batch.column(self._column))
            row += batch.num_rows
            is_test = _mixed(numbers, self._seed) / _RANGE < self._limit
            yield batch.filter(pa.array(is_test if self._test else ~is_test))

    def schema(self, schema: pa.Schema) -> pa.Schema:
        if self._column is not None:
            require_columns([self._column], schema, "streaming_train_test_split(hash_column)")
        return schema


def check(test_size: Any, split_type: str, hash_column: str | None) -> None:
    what = "streaming_train_test_split"
    if not isinstance(test_size, float) or not 0 < test_size < 1:
        raise ValueError(f"{what}(test_size={test_size!r}): expected a fraction, more than 0 and less than 1")
    if split_type not in ("random", "hash"):
        raise ValueError(f"{what}(split_type={split_type!r}): expected 'random' or 'hash'")
    if (split_type == "hash") != (hash_column is not None):
        raise ValueError(f"{what}: split_type='hash' needs hash_column, and only it takes one")


def _values(column: pa.Array) -> np.ndarray:
    """A number for each value, the same in every process."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    hashes = [zlib.crc32(repr(value).encode()) for value in encoded.dictionary.to_pylist()]
    found: np.ndarray = np.array(hashes, np.uint64)[encoded.indices.to_numpy()]
    return found


def _mixed(numbers: np.ndarray, seed: int) -> np.ndarray:
    """splitmix64 of the numbers."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(seed % 2**64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        done: np.ndarray = mixed ^ (mixed >> np.uint64(31))
        return done
