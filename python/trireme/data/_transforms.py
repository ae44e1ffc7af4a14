"""What can be done to a dataset's rows and columns. Nothing runs before the rows are needed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

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
from trireme.data._expressions import expression
from trireme.data._fragment import Fragment
from trireme.data._methods import DatasetMethods, is_whole
from trireme.data._plan import Plan, Shuffle

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset

# Where functions run is not reserved: processes beside each worker. Scripts that were written for Ray say it.
_RESOURCES = frozenset(
    (
        *("num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "runtime_env", "max_calls"),
        *("label_selector", "fallback_strategy", "scheduling_strategy", "ray_remote_args", "ray_remote_args_fn"),
    )
)


class TransformMethods(DatasetMethods):
    def map(
        self,
        fn: Callable[..., Any],
        *,
        compute: Any = None,
        fn_args: Sequence[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Sequence[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        concurrency: int | tuple[int, ...] | None = None,
        **resources: Any,
    ) -> Dataset:
        """fn makes a row, a dict, of each row. A class is made once in each process, and called."""
        from trireme.data._functions import Map

        check_resources("map", resources)
        return self._then(
            Map(
                fn,
                compute=compute,
                fn_args=fn_args,
                fn_kwargs=fn_kwargs,
                fn_constructor_args=fn_constructor_args,
                fn_constructor_kwargs=fn_constructor_kwargs,
                concurrency=concurrency,
            )
        )

    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: int | str | None = None,
        compute: Any = None,
        batch_format: str | None = "default",
        zero_copy_batch: bool = True,
        fn_args: Sequence[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Sequence[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        concurrency: int | tuple[int, ...] | None = None,
        udf_modifying_row_count: bool | None = None,
        **resources: Any,
    ) -> Dataset:
        """fn makes a batch, or several, of each batch: dicts of arrays, DataFrames ("pandas") or tables ("pyarrow").

        Whether it keeps the number of rows is found out by trying it with the first ones, unless
        `udf_modifying_row_count` says it. One that does not is run once more, to count, before a training starts.
        """
        from trireme.data._functions import MapBatches

        check_resources("map_batches", resources)
        return self._then(
            MapBatches(
                fn,
                batch_size=batch_size,
                compute=compute,
                batch_format=batch_format,
                zero_copy_batch=zero_copy_batch,
                fn_args=fn_args,
                fn_kwargs=fn_kwargs,
                fn_constructor_args=fn_constructor_args,
                fn_constructor_kwargs=fn_constructor_kwargs,
                concurrency=concurrency,
                udf_modifying_row_count=udf_modifying_row_count,
            )
        )

    def flat_map(
        self,
        fn: Callable[..., Any],
        *,
        compute: Any = None,
        fn_args: Sequence[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Sequence[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        concurrency: int | tuple[int, ...] | None = None,
        **resources: Any,
    ) -> Dataset:
        """fn makes a list of rows of each row."""
        from trireme.data._functions import FlatMap

        check_resources("flat_map", resources)
        return self._then(
            FlatMap(
                fn,
                compute=compute,
                fn_args=fn_args,
                fn_kwargs=fn_kwargs,
                fn_constructor_args=fn_constructor_args,
                fn_constructor_kwargs=fn_constructor_kwargs,
                concurrency=concurrency,
            )
        )

    def filter(
        self,
        fn: Callable[..., Any] | str | pc.Expression | None = None,
        expr: str | pc.Expression | None = None,
        *,
        compute: Any = None,
        fn_args: Sequence[Any] | None = None,
        fn_kwargs: Mapping[str, Any] | None = None,
        fn_constructor_args: Sequence[Any] | None = None,
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        concurrency: int | tuple[int, ...] | None = None,
        **resources: Any,
    ) -> Dataset:
        """The rows for which fn(row) is true, or an expression: col("x") > 3, or "x > 3 and y == 'a'".

        An expression needs no Python for each row, and Parquet files are read only where it can be true.
        """
        check_resources("filter", resources)
        if (fn is None) == (expr is None):
            raise ValueError("filter: give a function or an expression, one of them")
        if expr is not None or isinstance(fn, (str, pc.Expression)):
            return self._then(FilterExpression(expression(fn if expr is None else expr, "filter")))
        from trireme.data._functions import FilterRows

        assert fn is not None
        return self._then(
            FilterRows(
                fn,
                compute=compute,
                fn_args=fn_args,
                fn_kwargs=fn_kwargs,
                fn_constructor_args=fn_constructor_args,
                fn_constructor_kwargs=fn_constructor_kwargs,
                concurrency=concurrency,
            )
        )

    def add_column(
        self,
        col: str,
        fn: Callable[..., Any],
        *,
        batch_format: str | None = "pandas",
        compute: Any = None,
        concurrency: int | tuple[int, ...] | None = None,
        **resources: Any,
    ) -> Dataset:
        """A column that fn(batch) gives."""
        from trireme.data._functions import AddColumn

        check_resources("add_column", resources)
        return self._then(AddColumn(col, fn, batch_format=batch_format, compute=compute, concurrency=concurrency))

    def with_column(self, column_name: str, expr: pc.Expression | str, **resources: Any) -> Dataset:
        """A column that an expression gives: with_column("area", col("a") * col("b")), or "a * b"."""
        check_resources("with_column", resources)
        return self._then(WithColumns({column_name: expression(expr, "with_column")}, "with_column"))

    def with_columns(self, exprs: Mapping[str, pc.Expression | str], **resources: Any) -> Dataset:
        """Several of them; none sees another's column."""
        check_resources("with_columns", resources)
        return self._then(WithColumns({name: expression(expr, "with_columns") for name, expr in exprs.items()}))

    def select_columns(self, cols: str | Sequence[str], **resources: Any) -> Dataset:
        """These columns, in this order. The others are not read, where the files allow it."""
        check_resources("select_columns", resources)
        return self._then(SelectColumns(_names("select_columns", cols)))

    def drop_columns(self, cols: str | Sequence[str], **resources: Any) -> Dataset:
        check_resources("drop_columns", resources)
        return self._then(DropColumns(_names("drop_columns", cols)))

    def rename_columns(self, names: Mapping[str, str] | Sequence[str], **resources: Any) -> Dataset:
        """By a dict of old and new names, or by the new names of all columns."""
        check_resources("rename_columns", resources)
        if isinstance(names, str) or not names:
            raise ValueError(f"rename_columns({names!r}): expected a dict of old and new names, or a list of all names")
        return self._then(RenameColumns(names))

    def random_sample(self, fraction: float, *, seed: int | None = None) -> Dataset:
        """Each row with this probability; the same rows every time the dataset is read."""
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
            raise ValueError(f"random_sample(fraction={fraction!r}): expected a number from 0 to 1")
        return self._then(RandomSample(float(fraction), _seed("random_sample", seed)))

    def random_shuffle(
        self,
        *,
        seed: int | None = None,
        num_blocks: int | None = None,
        window_rows: int | None = None,
        **resources: Any,
    ) -> Dataset:
        """A new order of all rows, another one in every epoch of a training.

        In a training files are read in random order, and rows are shuffled completely among `window_rows` that follow
        one another (as many as take 256 MiB, if it is not said). Where the order of the rows decides what
        comes out (limit, split, zip, union), all of them are taken into memory to be shuffled.
        """
        check_resources("random_shuffle", resources)
        if window_rows is not None and (not is_whole(window_rows) or window_rows < 1):
            raise ValueError(f"random_shuffle(window_rows={window_rows!r}): expected a number of rows, 1 or more")
        return self._made(self._plan.shuffled(Shuffle(_asked_seed("random_shuffle", seed), True, window_rows)))

    def randomize_block_order(self, *, seed: int | None = None) -> Dataset:
        """A new order of the fragments (row groups, files); rows stay as they are in each."""
        return self._made(self._plan.shuffled(Shuffle(_asked_seed("randomize_block_order", seed), False)))

    def limit(self, limit: int) -> Dataset:
        """The first rows; no more is read than that takes."""
        rows = _rows("limit", limit)
        return self._made(PlanSource(self._plan, f"limit({rows})", lambda plan: plan.cut(0, rows)))

    def union(self, *other: Dataset) -> Dataset:
        """The rows of this dataset, then those of the others. All need the same columns."""
        for index, dataset in enumerate(other, 1):
            if not isinstance(dataset, DatasetMethods):
                raise TypeError(f"union: argument {index} is a {type(dataset).__name__}, expected a Dataset")
        return self._made(UnionSource([self._plan, *(dataset._plan for dataset in other)]))

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
        """The same rows in so many fragments, or in fragments of so many rows. Nothing is copied.

        shuffle: in random order. keys, sort: sorted by these columns (which takes them into memory).
        """
        if (num_blocks is None) == (target_num_rows_per_block is None):
            raise ValueError("repartition: give num_blocks or target_num_rows_per_block, one of them")
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


def _blocks(plan: Plan, size: int, is_number: bool) -> list[Fragment]:
    rows = plan.rows()
    edges = [rows * block // size for block in range(size + 1)] if is_number else [*range(0, rows, size), rows]
    return [parts[0] if len(parts) == 1 else JoinedFragment(parts) for parts in plan.cuts(edges) if parts]


def check_resources(method: str, given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in _RESOURCES:
            raise TypeError(f"{method}() has no argument {name!r}")


def _names(method: str, cols: str | Sequence[str]) -> list[str]:
    names = [cols] if isinstance(cols, str) else list(cols)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{method}({cols!r}): expected the names of columns")
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{method}: column {sorted(twice)[0]!r} is there more than once")
    return names


def _rows(method: str, rows: int) -> int:
    if not is_whole(rows) or rows < 0:
        raise ValueError(f"{method}({rows!r}): expected a number of rows, 0 or more")
    return int(rows)


def _asked_seed(method: str, seed: Any) -> int | None:
    seed = getattr(seed, "seed", seed)  # Ray's RandomSeedConfig
    if seed is not None and (not is_whole(seed) or seed < 0):
        raise ValueError(f"{method}(seed={seed!r}): expected a number, 0 or more, or None")
    return None if seed is None else int(seed)


def _seed(method: str, seed: Any) -> int:
    asked = _asked_seed(method, seed)
    return random.SystemRandom().getrandbits(32) if asked is None else asked
