"""ray.remote: functions and classes whose calls run in processes of their own."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from trireme import _ship
from trireme.compat.ray._refusal import refusal
from trireme.compat.ray._tasks._calls import checked_options, pack_arguments, pickled_function, resources_of, setup_of
from trireme.compat.ray._tasks._client import client, new_id
from trireme.compat.ray._tasks._records import Actor, Call, Task
from trireme.compat.ray._tasks._refs import ObjectRef

_YIELDS = "_yields"
_RETRIES = 3  # of a task whose process dies, as in Ray


def remote(*args: Any, **options: Any) -> Any:
    """@ray.remote, @ray.remote(num_cpus=2, ...), ray.remote(function)."""
    if len(args) == 1 and not options and callable(args[0]):
        return _made(args[0], {})
    if args:
        raise TypeError("ray.remote takes one function or class, or options by name: @ray.remote(num_cpus=1)")
    checked_options(options)
    return lambda target: _made(target, options)


def method(**options: Any) -> Callable[[Any], Any]:
    """@ray.method(num_returns=2) on a method of an actor."""

    def note(function: Any) -> Any:
        function.__ray_options__ = checked_options(options)
        return function

    return note


def _made(target: Any, options: dict[str, Any]) -> Any:
    if inspect.isclass(target):
        return ActorClass(target, options)
    if callable(target):
        return RemoteFunction(target, options)
    raise TypeError(f"ray.remote expects a function or a class, got {type(target).__name__}")


def _yields(function: Any) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _check_returns(name: str, yields: bool, count: int) -> None:
    if yields and count == 1:  # of which Ray makes a reference to every value
        raise refusal(
            f"{name}(), a generator", "return a list, pass num_returns=N, or put the values into a ray.util.queue.Queue"
        )


class _NoGraphs:
    def bind(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise refusal("bind(), for ray.dag and ray.workflow", "call .remote() and pass its references on")


class RemoteFunction(_NoGraphs):
    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        name = self._function.__name__
        raise TypeError(f"remote functions cannot be called directly: use {name}.remote() in place of {name}()")

    def options(self, **changes: Any) -> RemoteFunction:
        return RemoteFunction(self._function, {**self._options, **checked_options(changes)})

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        options = self._options
        count = options.get("num_returns", 1)
        _check_returns(self._function.__name__, _yields(self._function), count)
        connection = client()
        key, body = pickled_function(self._function)
        packed, needs, kept = pack_arguments(connection, args, kwargs)
        returns = tuple(new_id() for _ in range(count))
        task = Task(
            id=new_id(),
            name=options.get("name") or self._function.__name__,
            function=key,
            arguments=packed,
            needs=needs,
            returns=returns,
            resources=resources_of(options, 1),
            setup=setup_of(options),
            retries=options.get("max_retries", _RETRIES),
            retry_exceptions=_ship.dumps(options.get("retry_exceptions", False)),
        )
        connection.ask("submit", task, connection.function_once(key, body))
        del kept
        return _references(returns)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFunction, (self._function, self._options)


def _references(returns: tuple[str, ...]) -> Any:
    made = [ObjectRef(name, owned=True) for name in returns]
    return made[0] if len(made) == 1 else made or None


class ActorClass(_NoGraphs):
    def __init__(self, cls: type, options: dict[str, Any]) -> None:
        self._class = cls
        self._options = options
        self.__name__ = cls.__name__
        self.__doc__ = cls.__doc__
        self.__module__ = cls.__module__
        self.__ray_metadata__ = self

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        name = self._class.__name__
        raise TypeError(f"actors cannot be created directly: use {name}.remote() in place of {name}()")

    def options(self, **changes: Any) -> ActorClass:
        return ActorClass(self._class, {**self._options, **checked_options(changes)})

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        connection, options = client(), self._options
        key, body = pickled_function(self._class)
        packed, needs, kept = pack_arguments(connection, args, kwargs)
        actor_id, name = new_id(), options.get("name") or ""
        creation = Task(
            id=actor_id,
            name=f"{self._class.__name__}.__init__",
            function=key,
            arguments=packed,
            needs=needs,
            returns=(),
            resources=resources_of(options, 0),
            setup=setup_of(options),
        )
        actor = Actor(
            id=actor_id,
            name=name,
            namespace=options.get("namespace") or "",
            get_if_exists=bool(options.get("get_if_exists")),
            creation=creation,
            handle=(actor_id, self._class.__name__, _methods(self._class)),
            max_concurrency=options.get("max_concurrency"),
            restarts=options.get("max_restarts", 0),
        )
        described = connection.ask("create", actor, connection.function_once(key, body))
        del kept
        made = ActorHandle(*described)
        if not name:
            made._end_with_last_handle()
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return ActorClass, (self._class, self._options)


def _methods(cls: type) -> dict[str, dict[str, Any]]:
    """The options of each method."""
    found = {}
    for name, member in inspect.getmembers(cls, callable):
        if not name.startswith("__") or name == "__call__":
            count = getattr(member, "__ray_options__", {}).get("num_returns", 1)
            found[name] = {"num_returns": count, _YIELDS: _yields(member)}
    return found


class ActorHandle:
    def __init__(self, actor_id: str, name: str, methods: dict[str, dict[str, Any]]) -> None:
        self._actor_id = actor_id
        self._name = name
        self._methods = methods
        self._shared = [False]

    def __getattr__(self, name: str) -> ActorMethod:
        methods = self.__dict__.get("_methods", {})
        if name not in methods:
            if name in ("__ray_ready__", "__ray_terminate__"):
                return ActorMethod(self, name, {})
            known = ", ".join(methods)
            raise AttributeError(f"actor {self.__dict__.get('_name')} has no method {name!r} (methods: {known})")
        return ActorMethod(self, name, methods[name])

    def _end_with_last_handle(self) -> None:
        """Unless the handle was sent to another process."""
        weakref.finalize(self, _exhausted, self._actor_id, self._shared).atexit = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and self._actor_id == other._actor_id

    def __hash__(self) -> int:
        return hash(self._actor_id)

    def __repr__(self) -> str:
        return f"Actor({self._name}, {self._actor_id})"

    def __reduce__(self) -> tuple[Any, ...]:
        self._shared[0] = True
        return ActorHandle, (self._actor_id, self._name, self._methods)


def _exhausted(actor_id: str, shared: list[bool]) -> None:
    from trireme.compat.ray._tasks import _client

    if not shared[0] and _client._client is not None:
        _client._client.send("exhausted", actor_id)


class ActorMethod(_NoGraphs):
    def __init__(self, actor: ActorHandle, name: str, options: dict[str, Any]) -> None:
        self._actor = actor
        self._name = name
        self._options = options

    def options(self, **changes: Any) -> ActorMethod:
        return ActorMethod(self._actor, self._name, {**self._options, **checked_options(changes)})

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        count = self._options.get("num_returns", 1)
        _check_returns(self._name, self._options.get(_YIELDS, False), count)
        connection = client()
        packed, needs, kept = pack_arguments(connection, args, kwargs)
        returns = tuple(new_id() for _ in range(count))
        connection.send("call", self._actor._actor_id, Call(self._name, packed, needs, returns))
        del kept
        return _references(returns)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"methods of actors cannot be called directly: use {self._name}.remote()")
