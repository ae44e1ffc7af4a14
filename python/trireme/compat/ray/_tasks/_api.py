"""ray.get, put, wait, kill, cancel and get_actor."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from trireme.compat.ray._refs import ReadyRef
from trireme.compat.ray._tasks import _errors, _values
from trireme.compat.ray._tasks._client import client
from trireme.compat.ray._tasks._refs import ObjectRef
from trireme.compat.ray._tasks._remote import ActorHandle


def put(value: Any, *, _owner: Any = None, **internal: Any) -> ObjectRef:
    if isinstance(value, ObjectRef):
        raise TypeError("ray.put() got an ObjectRef: pass the reference itself to tasks")
    return ObjectRef(client().put(value), owned=True)


def get(object_refs: Any, *, timeout: float | None = None, **internal: Any) -> Any:
    """The value of a reference, or the values of a list of them. Raises the exception of a failed task."""
    if isinstance(object_refs, (ObjectRef, ReadyRef)):
        return _values_of([object_refs], timeout)[0]
    if not isinstance(object_refs, list):
        raise ValueError(f"ray.get() expects an ObjectRef or a list of them, got {type(object_refs).__name__}")
    for each in object_refs:
        if not isinstance(each, (ObjectRef, ReadyRef)):
            raise ValueError(f"ray.get() expects a list of ObjectRefs, got one with a {type(each).__name__}")
    return _values_of(object_refs, timeout)


def _values_of(refs: list[Any], timeout: float | None) -> list[Any]:
    names = list(dict.fromkeys(ref._id for ref in refs if isinstance(ref, ObjectRef)))
    found: dict[str, _values.Stored] = {}
    if names:
        request, future = client().begin("get", names, len(names))
        try:
            found = dict(zip(names, future.result(timeout), strict=True))
        except concurrent.futures.TimeoutError:
            client().forget(request, names)
            raise _errors.GetTimeoutError(f"ray.get(timeout={timeout:g}): not all values were ready in time") from None
    return [ref.value if isinstance(ref, ReadyRef) else resolve(found[ref._id]) for ref in refs]


def resolve(stored: _values.Stored) -> Any:
    value = _values.load(stored)
    if not stored.failed:
        return value
    raise value.as_instanceof_cause() if isinstance(value, _errors.RayTaskError) else value


def wait(
    ray_waitables: list[Any], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[Any], list[Any]]:
    """The references that are ready, at most num_returns, and the others."""
    object_refs = ray_waitables
    if not isinstance(object_refs, list):
        raise TypeError(f"ray.wait() expects a list of ObjectRefs, got {type(object_refs).__name__}")
    if len(set(object_refs)) != len(object_refs):
        raise ValueError("ray.wait() expects different ObjectRefs, got one of them twice")
    if not 0 < num_returns <= len(object_refs):
        raise ValueError(f"ray.wait(num_returns={num_returns}): expected 1 to {len(object_refs)}")
    names = [ref._id for ref in object_refs]
    request, future = client().begin("get", names, num_returns)
    try:
        answer = future.result(timeout)
        ready = set(names if len(names) == num_returns else answer)
    except concurrent.futures.TimeoutError:
        ready = set(client().forget(request, names))
    done = [ref for ref in object_refs if ref._id in ready][:num_returns]
    return done, [ref for ref in object_refs if ref not in done]


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    if not isinstance(actor, ActorHandle):
        raise ValueError(f"ray.kill() expects an actor, got {type(actor).__name__}; ray.cancel() ends a task")
    client().send("kill", actor._actor_id, no_restart)


def cancel(ray_waitable: ObjectRef, *, force: bool = False, recursive: bool = True) -> None:
    if not isinstance(ray_waitable, ObjectRef):
        raise TypeError(f"ray.cancel() expects an ObjectRef, got {type(ray_waitable).__name__}")
    client().send("cancel", ray_waitable._id, force)


def as_completed(
    refs: Sequence[ObjectRef], *, chunk_size: int = 10, yield_obj_refs: bool = False, **options: Any
) -> Iterator[Any]:
    """The values, or the references, as they become ready."""
    waiting = list(refs)
    while waiting:
        ready, waiting = wait(waiting, num_returns=1)
        yield from ready if yield_obj_refs else get(ready)


def map_unordered(
    fn: Any,
    items: Iterable[Any],
    *,
    backpressure_size: int | None = 100,
    chunk_size: int = 10,
    yield_obj_refs: bool = False,
    **options: Any,
) -> Iterator[Any]:
    """fn.remote(item) for each item, at most backpressure_size at a time; yields as they become ready."""
    rest = iter(items)
    waiting = [fn.remote(item) for item in islice(rest, backpressure_size)]
    while waiting:
        ready, waiting = wait(waiting, num_returns=1)
        waiting += [fn.remote(item) for item in islice(rest, 1)]
        yield ready[0] if yield_obj_refs else get(ready[0])


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    return ActorHandle(*client().ask("named", namespace or "", name))


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    found: list[dict[str, str]] = client().ask("names")
    return found if all_namespaces else [each["name"] for each in found if not each["namespace"]]
