"""Checks before anything starts that the user's function accepts its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    fn: Any  # a function, or a class whose instances are called
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    constructor_args: tuple[Any, ...]
    constructor_kwargs: Mapping[str, Any]

    def check(self, name: str, what: str, takes_generators: bool) -> None:
        """name: "map(double)"; what: the argument of the function, a "row" or a "batch"."""
        fn = self.fn
        if isinstance(fn, type):
            call = getattr(fn, "__call__", None)  # noqa: B004  of its instances, not of the class
            if not inspect.isfunction(call):
                raise TypeError(f"{name}: the class {fn.__name__} has no __call__ method to call with each {what}")
            self._bind(name, fn, "is constructed", self.constructor_args, self.constructor_kwargs)
            self._bind(name, call, f"is called with a {what}", (object(), object(), *self.args), self.kwargs)
        else:
            if self.constructor_args or self.constructor_kwargs:
                raise ValueError(
                    f"{name}: fn_constructor_args and fn_constructor_kwargs are for classes, but {name_of(fn)} is "
                    "not a class; use fn_args and fn_kwargs for a function"
                )
            self._bind(name, fn, f"is called with a {what}", (object(), *self.args), self.kwargs)
            call = fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn)  # noqa: B004
        if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
            raise TypeError(f"{name}: {name_of(fn)} is a coroutine; it must be a plain function or a generator")
        if inspect.isgeneratorfunction(call) and not takes_generators:
            raise TypeError(f"{name}: {name_of(fn)} is a generator; only map_batches and flat_map accept generators")

    def _bind(self, name: str, fn: Any, how: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            signature = inspect.signature(fn)
        except (ValueError, TypeError):  # some C functions have none
            return
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            more = {
                "fn_args": self.args,
                "fn_kwargs": self.kwargs,
                "fn_constructor_args": self.constructor_args,
                "fn_constructor_kwargs": self.constructor_kwargs,
            }
            given = ", ".join(f"{key}={value!r}" for key, value in more.items() if value)
            raise ValueError(
                f"{name}: {name_of(self.fn)}{signature} {how}{f' and {given}' if given else ''}: {error}"
            ) from None


def name_of(fn: Any) -> str:
    """The name for messages: double, Scaler.apply, <lambda>."""
    fn = getattr(fn, "func", fn)  # of a functools.partial
    name: str = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return name.rpartition("<locals>.")[2]


def processes_asked(name: str, concurrency: Any, compute: Any) -> int | None:
    """The maximum that `concurrency` or `compute` allows; None if neither is set."""
    if compute is not None and concurrency is not None:
        raise ValueError(f"{name}: compute={compute!r} and concurrency={concurrency!r}: set only one of them")
    if compute is not None:
        if not (hasattr(compute, "size") or hasattr(compute, "max_size")):
            raise TypeError(f"{name}: compute={compute!r}: expected a TaskPoolStrategy or an ActorPoolStrategy")
        sizes = [getattr(compute, key, None) for key in ("size", "max_size", "initial_size", "min_size")]
        concurrency = next((size for size in sizes if size is not None), None)
    most = concurrency[1] if isinstance(concurrency, (tuple, list)) and len(concurrency) in (2, 3) else concurrency
    if most is None:
        return None
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(
            f"{name}: concurrency={concurrency!r}: expected a number of processes, (min, max) or (min, max, initial)"
        )
    return most
