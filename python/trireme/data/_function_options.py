"""What the methods that call a user's function take in addition to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


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
