"""The process-wide runtime: declared capacity, and the warm process that workers are forked from."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Any

from trireme import _core

_lock = threading.RLock()
_runtime: _core.Runtime | None = None
_abandoned: list[_core.Runtime] = []
_failure: _core.ConfigError | None = None  # of a start in the background


def runtime() -> _core.Runtime:
    """Creates the runtime on first use. Capacity that init() does not set is read from the environment."""
    global _failure
    with _lock:
        if _failure is not None:
            failure, _failure = _failure, None
            raise failure
        if _runtime is None:
            init()
        assert _runtime is not None
        return _runtime


def init(
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    engine: str | None = None,
    engine_options: dict[str, Any] | None = None,
) -> None:
    """Declare the capacity of this machine; TRIREME_NUM_CPUS, TRIREME_NUM_GPUS and TRIREME_RESOURCES do the same.

    Declared capacity is a hard limit. Undeclared CPUs are time-shared.

    Args:
        engine: Where workers run: "local" (this machine), "hosts:a,b", "ray", "slurm" or the path of an adapter. The
            default is TRIREME_ENGINE, or "local"; `trireme run --engine` takes precedence.
        engine_options: Options of the engine; docs/clusters.md lists them.
    """
    global _runtime, _failure
    with _lock:
        _failure = None
        if _runtime is None:
            made = _core.Runtime(_python_command())
            made.init(num_cpus, num_gpus, resources, engine, engine_options)
            _runtime = made
            atexit.register(shutdown)
        else:
            _runtime.init(num_cpus, num_gpus, resources, engine, engine_options)


def set_capacity(
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
) -> None:
    """Change the capacity of this machine during runs, from a callback or another thread. Omitted values do not change.
    Elastic runs grow and shrink with it at their next checkpoint.

    Raises ConfigError and changes nothing if the active runs need more. The command `trireme capacity` does the same.
    """
    if os.environ.get("TRIREME_WORKER") == "1":
        raise _core.ConfigError("set_capacity() was called in a worker; call it in the driver")
    runtime().set_capacity(num_cpus, num_gpus, resources)


def shutdown() -> None:
    """End the warm process and reset the declared capacity. Called automatically when the driver exits."""
    global _runtime
    with _lock:
        if _runtime is not None:
            _runtime.shutdown()
            _runtime = None
            atexit.unregister(shutdown)


def warm_up(preload: list[str]) -> None:
    """Start the warm process in the background, unless this is a worker or TRIREME_NO_WARM_UP is set."""
    if os.environ.get("TRIREME_WORKER") == "1" or os.environ.get("TRIREME_NO_WARM_UP") == "1":
        return
    if _runtime is None and _engine_of_environment() != "local":
        # The script continues while its engine connects to the cluster.
        threading.Thread(target=_warm_up_in_background, args=(preload,), name="trireme-warm-up").start()
        return
    runtime().warm_up(preload)


def _engine_of_environment() -> str:
    """As src/api/engine_choice.cpp chooses it for a script that has not called init()."""
    return os.environ.get("TRIREME_RUN_ENGINE") or os.environ.get("TRIREME_ENGINE") or "local"


def _warm_up_in_background(preload: list[str]) -> None:
    global _failure
    with _lock:
        if _failure is not None:
            return
        try:
            runtime().warm_up(preload)
        except _core.ConfigError as error:  # raised where the engine is needed, which may be much later
            _failure = error
            print(f"trireme warning: fit() will fail: {error}", file=sys.stderr, flush=True)


def _python_command() -> list[str]:
    """This interpreter, with the flags it was started with."""
    flags = [f"-W{option}" for option in sys.warnoptions]
    flags += [f"-X{key}" if value is True else f"-X{key}={value}" for key, value in sys._xoptions.items()]
    return [sys.executable, *flags]


def _forget_after_fork() -> None:
    """A forked child has none of the runtime's threads: it must neither use nor destroy the parent's runtime."""
    global _runtime, _lock, _failure
    _lock = threading.RLock()
    _failure = None
    if _runtime is not None:
        _abandoned.append(_runtime)
        _runtime = None
        atexit.unregister(shutdown)


os.register_at_fork(after_in_child=_forget_after_fork)
