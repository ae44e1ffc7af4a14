"""A process's connection to the broker."""

from __future__ import annotations

import itertools
import os
import queue
import secrets
import sys
import threading
from concurrent.futures import Future
from typing import Any

from trireme.compat.ray._refusal import refusal
from trireme.compat.ray._tasks import _errors, _values
from trireme.compat.ray._tasks._wire import VARIABLE, Gone, connect

_TO_PROCESS = {"task", "actor", "call", "cancel", "exit"}


class Client:
    def __init__(self, path: str) -> None:
        self._connection = connect(path)
        self._requests: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._sent_functions: set[str] = set()
        self.inbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()  # of a task or an actor
        threading.Thread(target=self._read, name="trireme-ray-client", daemon=True).start()

    def send(self, *message: Any) -> None:
        try:
            self._connection.send(*message)
        except Gone as error:
            raise _errors.RaySystemError("the driver of this script has ended") from error

    def ask(self, kind: str, *arguments: Any) -> Any:
        """Waits for the answer. A refusal is a ValueError with its text, or the exception itself."""
        return self.begin(kind, *arguments)[1].result()

    def begin(self, kind: str, *arguments: Any) -> tuple[int, Future[Any]]:
        number, future = next(self._numbers), Future[Any]()
        self._requests[number] = future
        self.send(kind, number, *arguments)
        return number, future

    def forget(self, request: int, refs: list[str]) -> list[str]:
        """Ends a get that waits; returns the references that are ready by now."""
        future: Future[Any] = Future()
        before, self._requests[request] = self._requests.get(request), future
        if before is not None and before.done():  # answered meanwhile
            return refs
        self.send("forget", request, refs)
        answer: list[Any] = future.result()
        return refs if len(answer) == len(refs) and not isinstance(answer[0], str) else answer

    def put(self, value: Any, ref: str | None = None, failed: bool = False) -> str:
        name = ref or new_id()
        stored, fd = _values.store(value, failed)
        try:
            self._connection.send("put", name, stored, fd=fd)
        finally:
            if fd is not None:
                os.close(fd)
        return name

    def function_once(self, key: str, function: bytes) -> bytes | None:
        """The function, if the broker does not have it from this process."""
        if key in self._sent_functions:
            return None
        self._sent_functions.add(key)
        return function

    def close(self) -> None:
        self._connection.close()

    def _read(self) -> None:
        try:
            while True:
                (kind, *arguments), _ = self._connection.receive()
                if kind in _TO_PROCESS:
                    self.inbox.put((kind, *arguments))
                    continue
                request, answer = arguments
                future = self._requests.pop(request, None)
                if future is None:
                    continue
                if kind == "refused":
                    future.set_exception(ValueError(answer) if isinstance(answer, str) else answer)
                else:
                    future.set_result(answer)
        except Exception as error:
            if not isinstance(error, Gone):  # a message that this process cannot read
                sys.excepthook(type(error), error, error.__traceback__)
            self.inbox.put(("exit",))
            lost = _errors.RaySystemError("the driver of this script has ended, or ray.shutdown() was called")
            for future in list(self._requests.values()):
                if not future.done():
                    future.set_exception(lost)


def new_id() -> str:
    return secrets.token_hex(14)


_lock = threading.RLock()
_client: Client | None = None
_broker: Any = None


def client() -> Client:
    """Of this process. The driver starts the broker on first use."""
    global _client
    with _lock:
        if _client is None:
            path = start_broker() if os.environ.get("TRIREME_WORKER") != "1" else os.environ.get(VARIABLE)
            if not path:
                raise refusal("ray.remote in a process without a driver", "create tasks and actors in the script")
            try:
                _client = Client(path)
            except OSError as error:
                raise refusal(
                    "a task or an actor of the driver from this process",
                    f"the driver is on another machine or has ended ({error}); tasks and actors run on one machine",
                ) from error
        return _client


def start_broker() -> str:
    """In the driver; workers that start later find it in their environment."""
    global _broker
    with _lock:
        if _broker is None:
            from trireme._runtime import runtime
            from trireme.compat.ray._tasks._broker import Broker

            totals: dict[str, float] = {}
            for node in runtime().nodes():
                for name, amount in node["total"].items():
                    totals[name] = totals.get(name, 0.0) + float(amount)
            _broker = Broker(totals)
            os.environ[VARIABLE] = _broker.path
        return str(_broker.path)


def stop_broker() -> None:
    global _client, _broker
    with _lock:
        if _client is not None:
            _client.close()
            _client = None
        if _broker is not None:
            _broker.close()
            _broker = None
            os.environ.pop(VARIABLE, None)


def _forget_after_fork() -> None:
    """The connection and the broker belong to the parent."""
    global _lock, _client, _broker
    _lock, _client, _broker = threading.RLock(), None, None


os.register_at_fork(after_in_child=_forget_after_fork)
