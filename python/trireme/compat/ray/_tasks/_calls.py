"""The arguments and options of a call."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from dataclasses import dataclass
from typing import Any

from trireme import _ship
from trireme._runtime_env import check_runtime_env, worker_start
from trireme.compat.ray import _runtime_env
from trireme.compat.ray._refusal import refusal, warn_once
from trireme.compat.ray._tasks import _values
from trireme.compat.ray._tasks._client import Client
from trireme.compat.ray._tasks._refs import ObjectRef

_HARMLESS = {
    "scheduling_strategy",
    "max_calls",
    "memory",
    "object_store_memory",
    "max_task_retries",
    "max_pending_calls",
    "accelerator_type",
    "placement_group",
    "placement_group_bundle_index",
    "placement_group_capture_child_tasks",
    "label_selector",
    "fallback_strategy",
    "enable_task_events",
    "_metadata",
    "concurrency_groups",
    "allow_out_of_order_execution",
}
_KNOWN = {
    "num_cpus",
    "num_gpus",
    "resources",
    "num_returns",
    "max_retries",
    "retry_exceptions",
    "runtime_env",
    "name",
    "namespace",
    "lifetime",
    "get_if_exists",
    "max_concurrency",
    "max_restarts",
}


def checked_options(options: dict[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        if name not in _KNOWN | _HARMLESS:
            raise ValueError(f"ray.remote: unknown option {name!r} (options: {', '.join(sorted(_KNOWN))})")
        if name == "num_gpus" and value:
            raise refusal(
                "ray.remote(num_gpus=...)", "workers of a trainer get GPUs: ScalingConfig(use_gpu=True, num_workers=1)"
            )
        if name == "num_returns" and not isinstance(value, int):
            raise refusal(f"ray.remote(num_returns={value!r})", "return a list, or use ray.util.queue.Queue")
        if name == "lifetime" and value == "detached":
            warn_once("an actor with lifetime='detached' ends with the script, as every process of Trireme does")
    return options


def resources_of(options: dict[str, Any], cpus: float) -> dict[str, float]:
    asked = options.get("num_cpus")
    found = {"CPU": float(cpus if asked is None else asked), **(options.get("resources") or {})}
    return {name: float(amount) for name, amount in found.items() if amount}


@dataclass(frozen=True)
class Placeholder:
    """In the arguments, for a reference whose value the call gets."""

    ref: str


def pack_arguments(
    client: Client, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[bytes, tuple[str, ...], list[ObjectRef]]:
    """The pickled arguments, the references that they need, and these references, to be kept until the call is sent."""
    kept = [value for value in (*args, *kwargs.values()) if isinstance(value, ObjectRef)]
    for ref in kept:
        ref._shared = True  # the call may run after this process has dropped it

    def placed(value: Any) -> Any:
        return Placeholder(value._id) if isinstance(value, ObjectRef) else value

    package = (tuple(map(placed, args)), {name: placed(value) for name, value in kwargs.items()})
    try:
        stored, fd = _values.store(package)
    except Exception as error:
        raise TypeError(
            f"an argument of this call cannot be sent to another process: {type(error).__name__}: {error}; make it in "
            "the task, or pass the values to create it from"
        ) from error
    needs = tuple(dict.fromkeys(ref._id for ref in kept))
    if fd is None:
        return pickle.dumps(stored), needs, kept
    os.close(fd)
    package_ref = client.put(package)
    return pickle.dumps(package_ref), (*needs, package_ref), kept


def unpack_arguments(packed: bytes, values: dict[str, _values.Stored]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    found = pickle.loads(packed)
    args, kwargs = _values.load(values[found] if isinstance(found, str) else found)

    def given(value: Any) -> Any:
        return _values.load(values[value.ref]) if isinstance(value, Placeholder) else value

    return tuple(map(given, args)), {name: given(value) for name, value in kwargs.items()}


def package_of(packed: bytes) -> str | None:
    """The reference that only holds the arguments."""
    found = pickle.loads(packed)
    return found if isinstance(found, str) else None


def pickled_function(function: Any) -> tuple[str, bytes]:
    try:
        body = _ship.dumps(function)
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        found = _ship._find_unpicklable(name, function)
        where = " -> ".join(found[0]) if found else str(error)
        raise TypeError(f"{name} cannot be sent to another process: {where}: {error}") from error
    return hashlib.sha256(body).hexdigest(), body


def setup_of(options: dict[str, Any]) -> bytes:
    """The environment of the process."""
    asked = _runtime_env.merged(_runtime_env.plain(options.get("runtime_env")))
    start = worker_start(check_runtime_env(asked, "runtime_env"))
    return pickle.dumps((start.env, start.cwd, start.sys_path, list(sys.argv)))
