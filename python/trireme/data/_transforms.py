"""Operations on a dataset's rows and columns. They run when rows are requested."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow.compute as pc

from trireme.data._column_ops import (
    DropColumns,
    FilterExpression,
    RandomSample,
    RenameColumns,
    SelectColumns,
    WithColumns,
)
from trireme.data._derived import JoinedFragment, PlanSource, UnionSource
from trireme.data._expressions import conditions, expression
from trireme.data._fragment import Fragment
from trireme.data._fragment_slice import FragmentSlice
from trireme.data._functions import AddColumn, FilterRows, FlatMap, Map, MapBatches
from trireme.data._methods import DatasetMethods, FunctionOptions, check_resources, function_options, is_whole, plans_of
from trireme.data._mix import MixedSource, MixStoppingCondition, checked_weights
from trireme.data._plan import Plan, Shuffle

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


class TransformMethods(DatasetMethods):
    def map(self, fn: Callable[..., Any], **options: Unpack[FunctionOptions]) -> Dataset:
        """fn maps each row to a row, a dict. A class is instantiated once in each process, and the instance called."""
        return self._then(Map(fn, **function_options("map", options)))

    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: int | str | None = None,
        batch_format: str | None = "default",
        zero_copy_batch: bool = True,
        udf_modifying_row_count: bool | None = None,
        **options: Unpack[FunctionOptions],
    ) -> Dataset:
        """fn maps each batch to one or more batches: dicts of arrays, DataFrames ("pandas") or tables ("pyarrow").

        A trial call on the first rows determines whether fn keeps the number of rows, unless `udf_modifying_row_count`
        is set. If it does not, fn runs on all rows once before training starts, to count them.
        """
        return self._then(
            MapBatches(
                fn,
                batch_size=batch_size,
                batch_format=batch_format,
                zero_copy_batch=zero_copy_batch,
                udf_modifying_row_count=udf_modifying_row_count,
                **function_options("map_batches", options),
            )
        )

    def flat_map(self, fn: Callable[..., Any], **options: Unpack[FunctionOptions]) -> Dataset:
        """fn maps each row to a list of rows."""
        return self._then(FlatMap(fn, **function_options("flat_map", options)))

    def filter(
        self,
        fn: Callable[..., Any] | str | pc.Expression | None = None,
        expr: str | pc.Expression | None = None,
        **options: Unpack[FunctionOptions],
    ) -> Dataset:
        """The rows for which fn(row) is true, or an expression: col("x") > 3, or "x > 3 and y == 'a'".

        An expression is evaluated without Python, and skips row groups of Parquet files that it excludes.
        """
        given = function_options("filter", options)
        if (fn is None) == (expr is None):
            raise ValueError("filter: pass either a function or an expression")
        if expr is not None or isinstance(fn, (str, pc.Expression)):
            return self._then(FilterExpression(conditions(fn if expr is None else expr, "filter")))
        assert fn is not None
        return self._then(FilterRows(fn, **given))

    def add_column(
        self,
        col: str,
        fn: Callable[..., Any],
        *,
        batch_format: str | None = "pandas",
        **options: Unpack[FunctionOptions],
    ) -> Dataset:
        """Adds or replaces a column with the result of fn(batch)."""
        return self._then(AddColumn(col, fn, batch_format=batch_format, **function_options("add_column", options)))

    def with_column(self, column_name: str, expr: pc.Expression | str, **resources: Any) -> Dataset:
        """Adds or replaces a column computed by an expression: with_column("area", col("a") * col("b")), or "a * b"."""
        check_resources("with_column", resources)
        return self._then(WithColumns({column_name: expression(expr, "with_column")}, "with_column"))

    def with_columns(self, exprs: Mapping[str, pc.Expression | str], **resources: Any) -> Dataset:
        """Adds or replaces several columns. All expressions use the original columns."""
        check_resources("with_columns", resources)
        return self._then(WithColumns({name: expression(expr, "with_columns") for name, expr in exprs.items()}))

    def select_columns(self, cols: str | Sequence[str], **resources: Any) -> Dataset:
        """Keeps these columns, in this order. The others are not read if the file format allows it."""
        check_resources("select_columns", resources)
        return self._then(SelectColumns(_names("select_columns", cols)))

    def drop_columns(self, cols: str | Sequence[str], **resources: Any) -> Dataset:
        check_resources("drop_columns", resources)
        return self._then(DropColumns(_names("drop_columns", cols)))

    def rename_columns(self, names: Mapping[str, str] | Sequence[str], **resources: Any) -> Dataset:
        """Takes a dict of old to new names, or a list with the new names of all columns."""
        check_resources("rename_columns", resources)
        if isinstance(names, str) or not names:
            raise ValueError(f"rename_columns({names!r}): expected a dict of old to new names, or a list of all names")
        return self._then(RenameColumns(names))

    def random_sample(self, fraction: float, *, seed: int | None = None) -> Dataset:
        """Keeps each row with this probability; always the same rows."""
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
            raise ValueError(f"random_sample(fraction={fraction!r}): expected a number from 0 to 1")
        share, chosen = float(fraction), _seed("random_sample", seed)
        plan = self._plan
        name = f"random_sample({share}, seed={chosen})"
        sample = Plan(PlanSource(plan.shuffled(None), name, partial(_sample, fraction=share, seed=chosen)))
        return self._made(sample.shuffled(plan.shuffle))

    def random_shuffle(
        self,
        *,
        seed: int | None = None,
        num_blocks: int | None = None,
        window_rows: int | None = None,
        **resources: Any,
    ) -> Dataset:
        """Shuffles all rows, in a different order in every epoch of a training run.

        In training, fragments are read in random order, and rows are shuffled within windows of `window_rows`
        consecutive rows (default: as many as take 256 MiB). If the result of a later operation depends on the order of
        the rows (limit, split, zip, union), all rows are loaded into memory and shuffled.
        """
        check_resources("random_shuffle", resources)
        if window_rows is not None and (not is_whole(window_rows) or window_rows < 1):
            raise ValueError(f"random_shuffle(window_rows={window_rows!r}): expected a number of rows, 1 or more")
        return self._made(self._plan.shuffled(Shuffle(_asked_seed("random_shuffle", seed), True, window_rows)))

    def randomize_block_order(self, *, seed: int | None = None) -> Dataset:
        """Shuffles the fragments (row groups, files), but not the rows in each."""
        return self._made(self._plan.shuffled(Shuffle(_asked_seed("randomize_block_order", seed), False)))

    def limit(self, limit: int) -> Dataset:
        """The first rows. Reads only as much as needed."""
        rows = _rows("limit", limit)
        return self._made(PlanSource(self._plan, f"limit({rows})", lambda plan: plan.cut(0, rows), (0, rows)))

    def union(self, *other: Dataset) -> Dataset:
        """The rows of this dataset, then those of the others. All datasets need the same columns."""
        return self._made(UnionSource([self._plan, *plans_of("union", other)]))

    def mix(
        self,
        *other: Dataset,
        weights: Sequence[float] | None = None,
        stopping_condition: MixStoppingCondition = MixStoppingCondition.STOP_ON_LONGEST_DROP,
    ) -> Dataset:
        """Interleaves the rows of several datasets in a fixed ratio; always in the same order. Rows are counted.

        weights: the ratio, this dataset first; default: equal. The order in each dataset is kept.
        """
        plans = [self._plan, *plans_of("mix", other)]
        stop = MixStoppingCondition(getattr(stopping_condition, "value", stopping_condition))
        return self._made(MixedSource(plans, checked_weights(weights, len(plans)), stop))

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: Sequence[str] | None = None,
        sort: bool = False,
    ) -> Dataset:
        """The same rows in `num_blocks` fragments, or in fragments of `target_num_rows_per_block` rows, without a copy.

        shuffle: in random order. keys, sort: sorted by these columns, which loads all rows into memory.
        """
        if (num_blocks is None) == (target_num_rows_per_block is None):
            raise ValueError("repartition: pass either num_blocks or target_num_rows_per_block")
        name = "num_blocks" if num_blocks is not None else "target_num_rows_per_block"
        size = num_blocks if num_blocks is not None else target_num_rows_per_block
        if not is_whole(size) or size < 1:
            raise ValueError(f"repartition({name}={size!r}): expected 1 or more")
        plan = self._plan
        if keys is not None or sort:
            from trireme.data._relational import sorted_plan

            plan = sorted_plan(plan, list(keys or plan.schema().names), False)
        after = Shuffle() if shuffle else plan.shuffle
        blocks = partial(_blocks, size=size, is_number=num_blocks is not None)
        repartitioned = Plan(PlanSource(plan.shuffled(None), f"repartition({name}={size})", blocks))
        return self._made(repartitioned.shuffled(after))


def _sample(plan: Plan, fraction: float, seed: int) -> list[FragmentSlice]:
    plan.count()  # a row is kept by its index in the dataset
    pieces = plan.pieces()
    firsts = itertools.accumulate((piece.rows or 0 for piece in pieces), initial=0)
    return [piece.then(RandomSample(fraction, seed, first)) for piece, first in zip(pieces, firsts, strict=False)]


def _blocks(plan: Plan, size: int, is_number: bool) -> list[Fragment]:
    rows = plan.rows()
    edges = [rows * block // size for block in range(size + 1)] if is_number else [*range(0, rows, size), rows]
    return [parts[0] if len(parts) == 1 else JoinedFragment(parts) for parts in plan.cuts(edges) if parts]


def _names(method: str, cols: str | Sequence[str]) -> list[str]:
    names = [cols] if isinstance(cols, str) else list(cols)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{method}({cols!r}): expected column names")
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{method}: column {sorted(twice)[0]!r} is listed more than once")
    return names


def _rows(method: str, rows: int) -> int:
    if not is_whole(rows) or rows < 0:
        raise ValueError(f"{method}({rows!r}): expected a number of rows, 0 or more")
    return int(rows)


def _asked_seed(method: str, seed: Any) -> int | None:
    seed = getattr(seed, "seed", seed)  # Ray's RandomSeedConfig
    if seed is not None and (not is_whole(seed) or seed < 0):
        raise ValueError(f"{method}(seed={seed!r}): expected an integer, 0 or more, or None")
    return None if seed is None else int(seed)


def _seed(method: str, seed: Any) -> int:
    asked = _asked_seed(method, seed)
    return random.SystemRandom().getrandbits(32) if asked is None else asked
