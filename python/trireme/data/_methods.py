"""Shared by the parts of Dataset: streams of rows, and what methods that call a user's function take besides it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypedDict, TypeGuard

import pyarrow as pa

from trireme.data._derived import name_of, stream_of
from trireme.data._fragment import Op, Source
from trireme.data._plan import Plan
from trireme.data._promotion import one_table
from trireme.data._stats import Reading

if TYPE_CHECKING:
    from trireme.data._dataset import Dataset


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether it is an integer of Python or numpy; booleans are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


class DatasetMethods:
    _plan: Plan
    _reading: Reading | None = None  # the last pass

    def _made(self, plan: Plan | Source) -> Dataset:
        from trireme.data._dataset import Dataset

        made = Dataset(plan)
        made._name = getattr(self, "_name", None)
        made._context = getattr(self, "_context", made._context)
        return made

    def _then(self, op: Op) -> Dataset:
        return self._made(self._plan.then(op))

    def _stream(self, ahead: bool = True) -> Iterator[pa.RecordBatch]:
        """The rows in order; errors are raised unchanged. Holds only a few batches in memory."""
        self._reading = Reading()
        return self._reading.watch(stream_of(self._plan, ahead))

    def _table(self, limit: int | None = None) -> pa.Table:
        table = one_table(self._within(limit), name_of(self._plan))
        return self._plan.schema().empty_table() if table is None else table

    def _within(self, limit: int | None) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in self._stream():
            rows += batch.num_rows
            if limit is not None and rows > limit:
                raise ValueError(f"the dataset has more rows than limit={limit}; limit({limit}) returns the first")
            yield batch


def plans_of(method: str, datasets: Sequence[Any]) -> list[Plan]:
    """Of its arguments."""
    for index, dataset in enumerate(datasets, 1):
        if not isinstance(dataset, DatasetMethods):
            raise TypeError(f"{method}: argument {index} is a {type(dataset).__name__}, expected a Dataset")
    return [dataset._plan for dataset in datasets]


class RayResources(TypedDict, total=False):
    """Accepted for scripts that were written for Ray. Functions run in processes of the workers, without
    reservations."""

    num_cpus: Any
    num_gpus: Any
    memory: Any
    resources: Any
    accelerator_type: Any
    runtime_env: Any
    max_calls: Any
    label_selector: Any
    fallback_strategy: Any
    scheduling_strategy: Any
    ray_remote_args: Any
    ray_remote_args_fn: Any


class FunctionOptions(RayResources, total=False):
    """fn_args, fn_kwargs: for every call, after the row or the batch. fn_constructor_args, fn_constructor_kwargs: for a
    class, which is instantiated once in each process. concurrency: the processes that call it, (min, max) or a number;
    compute: the same as a TaskPoolStrategy or an ActorPoolStrategy.
    """

    compute: Any
    fn_args: Sequence[Any] | None
    fn_kwargs: Mapping[str, Any] | None
    fn_constructor_args: Sequence[Any] | None
    fn_constructor_kwargs: Mapping[str, Any] | None
    concurrency: int | tuple[int, ...] | None


def check_resources(method: str, given: Mapping[str, Any]) -> None:
    """For methods that need no processes: `compute` and `concurrency` have no effect either."""
    for name in given:
        if name not in RayResources.__annotations__ and name not in ("compute", "concurrency"):
            raise TypeError(f"{method}() has no argument {name!r}")


def function_options(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those that have an effect. Raises a TypeError for an unknown name."""
    options = {name: value for name, value in given.items() if name not in RayResources.__annotations__}
    for name in options:
        if name not in FunctionOptions.__annotations__:
            raise TypeError(f"{method}() has no argument {name!r}")
    return options
