"""Runs the user's functions on a fragment's batches, in this process or in function processes."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Iterator, Sequence

import pyarrow as pa

from trireme import _ship
from trireme._function_fork import VARIABLE
from trireme.data import _function_process
from trireme.data._cut import Stage, run_unit, stages, work_units
from trireme.data._fragment import Where
from trireme.data._function_processes import FunctionProcesses
from trireme.data._functions import Function
from trireme.data._host_client import Host

_Key = tuple[int, ...]

# Never held while acquiring a pool's lock: pools request the host while they hold theirs.
_lock = threading.RLock()
_pools: dict[_Key, FunctionProcesses] = {}
_host: Host | None = None


def run_functions(ops: Sequence[Function], batches: Iterator[pa.RecordBatch], where: Where) -> Iterator[pa.RecordBatch]:
    """The output of the functions for a fragment's batches, in order. Called from any thread.

    On the driver the functions run in this process, unless concurrency is set. In a worker they run in function
    processes, so that they do not take the interpreter from the training thread. The processes live until `ops` are
    collected or close() is called.
    """
    made = stages(ops)
    pool = _pool(ops, made) if _wants_processes(ops) else None
    stream = batches
    for index, stage in enumerate(made):
        stream = _run(index, stage, pool, stream, where)
        where = Where(f"the output of {stage.name} for {where.fragment}")
    return stream


def close(ops: Sequence[Function] | None = None) -> None:
    """Ends the processes of these functions, or of all functions. Calling a function again starts new ones."""
    with _lock:
        keys = list(_pools) if ops is None else [_key(ops)]
        closed = [_pools.pop(key) for key in keys if key in _pools]
    for pool in closed:
        pool.close()
    _close_host()


def _run(
    index: int, stage: Stage, pool: FunctionProcesses | None, batches: Iterator[pa.RecordBatch], where: Where
) -> Iterator[pa.RecordBatch]:
    """Keeps the functions alive while it runs."""
    if pool is not None:
        yield from pool.run(index, stage.multiple, batches, where)
        return
    for unit in work_units(batches, stage.multiple, where):
        yield from run_unit(stage.ops, unit)


def _wants_processes(ops: Sequence[Function]) -> bool:
    if _function_process.inside:
        return False
    return os.environ.get("TRIREME_WORKER") == "1" or any(op.concurrency for op in ops)


def _pool(ops: Sequence[Function], made: Sequence[Stage]) -> FunctionProcesses:
    key = _key(ops)
    with _lock:
        if pool := _pools.get(key):
            return pool
        most = max((op.concurrency or 0 for op in ops), default=0) or _default_concurrency()
        pool = FunctionProcesses(made, _pack(made), most, _current_host)
        _pools[key] = pool
        # The pool does not reference the functions: it is closed when they are collected.
        weakref.finalize(ops[0], _collected, key, weakref.ref(pool)).atexit = False
        return pool


def _pack(made: Sequence[Stage]) -> bytes:
    try:
        return _function_process.pack(made, _ship.absolute_sys_path())
    except Exception as error:
        ops = [op for stage in made for op in stage.ops]
        for op in ops:
            if found := _ship._find_unpicklable(op.name, op):
                trail, culprit, reason = found
                raise TypeError(
                    f"{op.name} cannot be sent to a function process: {' -> '.join(trail[1:]) or 'it'}, a "
                    f"{type(culprit).__name__}, cannot be pickled: {reason}. Create it inside the function, or in the "
                    "constructor of a class"
                ) from error
        raise


def _key(ops: Sequence[Function]) -> _Key:
    return tuple(map(id, ops))


def _default_concurrency() -> int:
    text = os.environ.get(VARIABLE, "")
    return max(int(text), 1) if text.isdigit() else 1


def _collected(key: _Key, pool: weakref.ref[FunctionProcesses]) -> None:
    with _lock:
        found = _pools.get(key)
        if found is None or found is not pool():  # already closed and replaced
            return
        del _pools[key]
    found.close()
    _close_host()


def _current_host() -> Host:
    global _host
    with _lock:
        if _host is not None and not _host.alive:
            _host.close()
            _host = None
        if _host is None:
            _host = Host.connect()
        return _host


def _close_host(at_exit: bool = False) -> None:
    """A host that this process started can be restarted; one that was forked with the worker cannot."""
    global _host
    with _lock:
        if _pools or _host is None or not (_host.restartable or at_exit):
            return
        closed, _host = _host, None
    closed.close()


def _close_at_exit() -> None:
    close()
    _close_host(at_exit=True)


def _forget_after_fork() -> None:
    """The processes belong to the parent."""
    global _lock, _host
    _lock = threading.RLock()
    _host = None
    _pools.clear()


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_forget_after_fork)
