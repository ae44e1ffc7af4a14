"""Splits datasets by rows, by fraction, into training and test data, and for workers."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trireme._core import count_of
from trireme.data._column_ops import KeepRows, SelectColumns, require_columns
from trireme.data._derived import PlanSource, ordered, table_of
from trireme.data._fragment_slice import FragmentSlice
from trireme.data._methods import DatasetMethods, check_resources, is_whole
from trireme.data._plan import Plan, Shuffle
from trireme.data._streaming_split import SplitRows, check
from trireme.data._tensors import one_chunk

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset
    from trireme.data._iterator import DataIterator


class SplitMethods(DatasetMethods):
    def split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[Dataset]:
        """n datasets whose sizes differ by at most one row; equal: of equal size, dropping up to n - 1 rows."""
        _check_parts("split", n)
        rows = self._plan.rows()
        edges = (
            [rows // n * part for part in range(n + 1)] if equal else [-(-rows * part // n) for part in range(n + 1)]
        )
        return [self._between("split", start, stop) for start, stop in pairwise(edges)]

    def split_at_indices(self, indices: Sequence[int]) -> list[Dataset]:
        """[2, 5]: rows 0-1, 2-4, and the rest. Some may be empty."""
        edges = list(indices)
        if not edges:
            raise ValueError(
                "split_at_indices: the list is empty; pass the first row of each part except the first part"
            )
        for index in edges:
            if not is_whole(index) or index < 0:
                raise ValueError(f"split_at_indices({edges}): {index!r} is not a row; expected numbers, 0 or more")
        if edges != sorted(edges):
            raise ValueError(f"split_at_indices({edges}): the rows must be in ascending order: {sorted(edges)}")
        bounds: list[int | None] = [0, *edges, None]
        return [self._between("split_at_indices", start or 0, stop) for start, stop in pairwise(bounds)]

    def split_proportionately(self, proportions: Sequence[float]) -> list[Dataset]:
        """[0.2, 0.5]: two parts with these fractions of the rows, and a third with the rest. No part is empty."""
        shares = list(proportions)
        if not shares or not all(isinstance(share, (int, float)) and share > 0 for share in shares):
            raise ValueError(f"split_proportionately({shares}): expected fractions, each more than 0")
        if sum(shares) >= 1:
            raise ValueError(
                f"split_proportionately({shares}): the sum is {sum(shares):g}; it must be less than 1, "
                "the last part is the rest"
            )
        rows = self._plan.rows()
        # 0.1 + 0.2 is a little more than 0.3, and 1 - 0.9 a little less than 0.1.
        edges = [0, *(int(rows * sum(shares[: index + 1]) + 1e-9) for index in range(len(shares))), rows]
        for index in range(1, len(edges) - 1):
            edges[index] = max(edges[index], edges[index - 1] + 1)
        for index in range(len(edges) - 2, 0, -1):
            edges[index] = min(edges[index], edges[index + 1] - 1)
        if any(start >= stop for start, stop in pairwise(edges)):
            parts = len(shares) + 1
            raise ValueError(f"split_proportionately({shares}): {count_of(rows, 'row')} cannot fill {parts} parts")
        return [self._between("split_proportionately", start, stop) for start, stop in pairwise(edges)]

    def train_test_split(
        self, test_size: int | float, *, shuffle: bool = False, seed: int | None = None, stratify: str | None = None
    ) -> tuple[Dataset, Dataset]:
        """Two datasets. test_size: a number of rows, or a fraction between 0 and 1. The test rows are the last ones.

        shuffle: the test rows are random, and both datasets are shuffled. stratify: the test rows are the last ones for
        each value of this column, which is loaded into memory.
        """
        if not is_whole(test_size) and not isinstance(test_size, float):
            raise TypeError(f"test_size must be an int or a float, got {type(test_size).__name__}")
        if isinstance(test_size, float) and not 0 < test_size < 1:
            raise ValueError(f"test_size = {test_size}: a fraction must be more than 0 and less than 1")
        if stratify is not None and shuffle:
            raise ValueError("train_test_split: shuffle and stratify are mutually exclusive; shuffle the parts later")
        rows = self._plan.rows()
        if is_whole(test_size) and not 0 < test_size < rows:
            raise ValueError(f"test_size = {test_size}: a number of rows must be at least 1 and less than {rows}")
        if stratify is not None:
            share = test_size if isinstance(test_size, float) else test_size / rows
            plan = ordered(self._plan)
            return self._by_mask(plan, _stratified(plan, stratify, share))
        if not shuffle:
            if isinstance(test_size, float):
                train, test = self.split_proportionately([1 - test_size])
            else:
                train, test = self.split_at_indices([rows - test_size])
            return train, test
        count = test_size if is_whole(test_size) else min(max(round(rows * test_size), 1), rows - 1)
        seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        mask: np.ndarray = np.zeros(rows, bool)
        mask[np.random.default_rng(seed).permutation(rows)[:count]] = True
        parts = self._by_mask(self._plan.shuffled(None), mask)
        shuffled = [part._made(part._plan.shuffled(Shuffle(seed))) for part in parts]
        return shuffled[0], shuffled[1]

    def streaming_train_test_split(
        self,
        test_size: float,
        *,
        split_type: str = "random",
        hash_column: str | None = None,
        seed: int | None = None,
        **resources: Any,
    ) -> tuple[Dataset, Dataset]:
        """Two datasets, without counting the rows: each row is a test row with the probability test_size.

        split_type: "random", or "hash": rows with equal values of hash_column are in the same dataset. seed: default
        0, so that all calls split in the same way.
        """
        check_resources("streaming_train_test_split", resources)
        check(test_size, split_type, hash_column)
        train, test = (SplitRows(is_test, test_size, seed or 0, hash_column) for is_test in (False, True))
        return self._then(train), self._then(test)

    def streaming_split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[DataIterator]:
        """n iterators that divide the rows, for n processes or threads; equal: each gets the same number of rows."""
        _check_parts("streaming_split", n)
        from trireme.data._iterator import DataIterator

        planned = self.plan()  # type: ignore[attr-defined]
        return [DataIterator.of(planned, rank=rank, world=n, equal=equal) for rank in range(n)]

    def _between(self, name: str, start: int, stop: int | None) -> Dataset:
        shown = f"{name}, rows {start} to {'the end' if stop is None else stop}"
        return self._made(PlanSource(self._plan, shown, lambda plan: plan.cut(start, stop), (start, stop)))

    def _by_mask(self, plan: Plan, mask: np.ndarray) -> tuple[Dataset, Dataset]:
        """The rows for which the mask is False, and the rest. Nothing is copied: readers filter each fragment."""
        train, test = (partial(_masked, mask=chosen) for chosen in (~mask, mask))
        return (
            self._made(PlanSource(plan, "train_test_split, train", train)),
            self._made(PlanSource(plan, "train_test_split, test", test)),
        )


def _masked(plan: Plan, mask: np.ndarray) -> list[FragmentSlice]:
    plan.count()
    pieces = []
    at = 0
    for piece in plan.pieces():
        rows = piece.rows or 0
        chosen = mask[at : at + rows]
        at += rows
        kept = int(chosen.sum())
        if kept == rows:
            pieces.append(piece)
        elif kept:
            part = piece.then(KeepRows(chosen, f"{kept} of {rows} rows ({zlib.crc32(chosen.tobytes()):08x})"))
            part.count.rows = kept
            pieces.append(part)
    return pieces


def _stratified(plan: Plan, column: str, share: float) -> np.ndarray:
    """True for the last rows of each value of the column."""
    require_columns([column], plan.schema(), "train_test_split(stratify)")
    values = table_of(plan.then(SelectColumns([column]))).column(0)
    try:
        encoded = one_chunk(pc.dictionary_encode(values, null_encoding="encode"))
    except pa.ArrowException as error:
        raise ValueError(f"train_test_split: cannot group by column {column!r} ({values.type}): {error}") from error
    codes = encoded.indices.to_numpy()
    sizes = np.bincount(codes)
    order = np.argsort(codes, kind="stable")
    begins = np.cumsum(sizes) - sizes
    place = np.arange(len(codes)) - begins[codes[order]]
    mask: np.ndarray = np.zeros(len(codes), bool)
    mask[order] = place >= (sizes - (sizes * share).astype(np.int64))[codes[order]]
    return mask


def _check_parts(method: str, n: Any) -> None:
    if not is_whole(n) or n <= 0:
        raise ValueError(f"{method}({n!r}): the number of parts must be 1 or more")
