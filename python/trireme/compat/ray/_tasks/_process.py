"""The process of a task or an actor."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import inspect
import os
import pickle
import queue
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trireme._compat import prepare_compat
from trireme._user_exception import dump_exception, format_exception
from trireme._zygote import _reseed, flush
from trireme.compat.ray._tasks import _client, _errors, _values, _where
from trireme.compat.ray._tasks._calls import package_of, unpack_arguments
from trireme.compat.ray._tasks._records import Actor, Call, Task
from trireme.compat.ray._tasks._where import ExitActor


def run(sock: socket.socket, payload: int) -> None:
    with open(payload, "rb") as file:
        setup, path, process_id, resources = pickle.load(file)
    environment, folder, sys_path, argv = pickle.loads(setup)
    os.environ.clear()
    os.environ.update(environment)
    os.environ["TRIREME_WORKER"] = "1"
    os.environ["TRIREME_RAY_SESSION"] = path
    os.chdir(folder)
    sys.path[:], sys.argv[:] = sys_path, argv
    importlib.invalidate_caches()
    _reseed()
    prepare_compat()
    client = _client.client()
    _where.resources = resources
    client.send("hello", process_id)
    _Executor(client).serve()
    flush()


class _Executor:
    def __init__(self, client: _client.Client) -> None:
        self._client = client
        self._main = threading.get_ident()
        self._current: tuple[str, ...] = ()
        self._object: Any = None
        self._pool: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._coroutines: dict[tuple[str, ...], Any] = {}

    def serve(self) -> None:
        """Cancels arrive on a thread of their own, because this one may run the user's function."""
        calls: Any = queue.SimpleQueue()
        threading.Thread(target=self._sort, args=(calls,), daemon=True).start()
        while True:
            kind, *arguments = calls.get()
            if kind == "exit":
                break
            try:
                getattr(self, f"_{kind}")(*arguments)
            except ExitActor:
                break
            if kind == "task":
                break
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _sort(self, calls: Any) -> None:
        while True:
            message = self._client.inbox.get()
            if message[0] == "cancel":
                self._cancel(message[1])
            else:
                calls.put(message)

    def _cancel(self, ref: str) -> None:
        for returns, future in list(self._coroutines.items()):
            if ref in returns:
                future.cancel()
        if ref in self._current:
            stop = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._main), stop)

    def _task(self, task: Task, function: bytes, values: dict[str, _values.Stored]) -> None:
        _where.task_id, _where.task_name = task.id, task.name
        retry = pickle.loads(task.retry_exceptions)
        retries = task.retries if retry else 0
        kinds = tuple(retry) if isinstance(retry, (list, tuple)) else (Exception,)
        while True:
            try:
                self._current = task.returns
                args, kwargs = unpack_arguments(task.arguments, values)
                self._answer(task.returns, pickle.loads(function)(*args, **kwargs), task.name)
            except BaseException as error:
                if retries and isinstance(error, kinds):
                    retries -= 1
                    continue
                self._fail(task.returns, task.name, error)
            break
        self._current = ()
        self._drop(task.arguments)
        flush()
        self._client.send("finished")

    def _actor(self, actor: Actor, function: bytes, values: dict[str, _values.Stored]) -> None:
        _where.actor_id, _where.actor_name, _where.handle = actor.id, actor.name, actor.handle
        _where.namespace = actor.namespace
        try:
            cls = pickle.loads(function)
            args, kwargs = unpack_arguments(actor.creation.arguments, values)
            is_async = any(inspect.iscoroutinefunction(member) for _, member in inspect.getmembers(cls))
            if is_async:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, daemon=True).start()
            elif actor.max_concurrency and actor.max_concurrency > 1:
                self._pool = ThreadPoolExecutor(actor.max_concurrency)
            self._object = cls(*args, **kwargs)
        except BaseException as error:
            text = f"{actor.handle[1]}.__init__() failed:\n{format_exception(error)}"
            stored, _ = _values.store(_errors.ActorDiedError(text, actor.id, True), True)
            self._client.send("failed_to_start", stored)
            raise ExitActor from error

    def _call(self, call: Call, values: dict[str, _values.Stored]) -> None:
        if self._loop is not None:
            future = asyncio.run_coroutine_threadsafe(self._run_async(call, values), self._loop)
            self._coroutines[call.returns] = future
        elif self._pool is not None:
            self._pool.submit(self._run, call, values)
        else:
            self._current = call.returns
            try:
                self._run(call, values)
            finally:
                self._current = ()

    def _run(self, call: Call, values: dict[str, _values.Stored]) -> None:
        try:
            args, kwargs = unpack_arguments(call.arguments, values)
            self._answer(call.returns, self._method(call.method)(*args, **kwargs), call.method)
        except ExitActor:
            self._answer(call.returns, None, call.method)
            self._client.send("called", call.returns)
            raise
        except BaseException as error:
            self._fail(call.returns, call.method, error)
        self._after(call)

    async def _run_async(self, call: Call, values: dict[str, _values.Stored]) -> None:
        try:
            args, kwargs = unpack_arguments(call.arguments, values)
            value = self._method(call.method)(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            self._answer(call.returns, value, call.method)
        except BaseException as error:
            self._fail(call.returns, call.method, error)
        self._after(call)

    def _after(self, call: Call) -> None:
        self._coroutines.pop(call.returns, None)
        self._drop(call.arguments)
        flush()
        self._client.send("called", call.returns)

    def _method(self, name: str) -> Callable[..., Any]:
        if name == "__ray_ready__":
            return lambda: True
        if name == "__ray_terminate__":
            return _leave
        method: Callable[..., Any] = getattr(self._object, name)
        return method

    def _answer(self, returns: tuple[str, ...], value: Any, name: str) -> None:
        if len(returns) == 1:
            self._client.put(value, returns[0])
        elif returns:
            parts = list(value)
            if len(parts) != len(returns):
                raise ValueError(f"{name}() returned {len(parts)} values, but num_returns={len(returns)}")
            for ref, part in zip(returns, parts, strict=True):
                self._client.put(part, ref)

    def _fail(self, returns: tuple[str, ...], name: str, error: BaseException) -> None:
        cancelled = isinstance(error, (KeyboardInterrupt, asyncio.CancelledError))
        value = _errors.TaskCancelledError(f"{name}() was cancelled") if cancelled else self._error(name, error)
        for ref in returns:
            self._client.put(value, ref, failed=True)

    def _error(self, name: str, error: BaseException) -> Exception:
        text = format_exception(error)
        if isinstance(error, _errors.RayTaskError) and error.cause is not None:
            error = error.cause
        cause = error if dump_exception(error) is not None else RuntimeError(f"{type(error).__name__}: {error}")
        return _errors.RayTaskError(name, text, cause, actor_id=_where.actor_id or None)

    def _drop(self, arguments: bytes) -> None:
        if package := package_of(arguments):
            self._client.send("free", [package])


def _leave() -> None:
    raise ExitActor
