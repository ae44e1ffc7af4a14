"""The warm process that function processes are forked from: forked itself from a worker that has one thread, or
`python -m trireme.data._function_host`, started by any other process.

Requests are pickles, sent with file descriptors over a socket that preserves message boundaries.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import socket
import sys
import types
from typing import Any, NoReturn

from trireme._zygote import _PR_SET_PDEATHSIG, _driver_pid, _libc, _stream, flush
from trireme.data import _function_process

_MESSAGE = 1 << 16
_PATIENCE_S = 1.0


class FunctionHost:
    """Single-threaded, and imports no user code: every fork is equivalent to a new interpreter."""

    def __init__(self, sock: socket.socket, parent_pidfd: int) -> None:
        self._sock = sock
        self._parent_pidfd = parent_pidfd
        self._children: dict[int, tuple[int, int]] = {}  # pidfd -> number, pid
        self._ended: dict[int, tuple[int, int]] = {}  # number -> pid, status
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._poll.register(parent_pidfd, select.POLLIN)

    def serve(self) -> None:
        """Returns when the other process exits or closes its end. All children are killed then."""
        gc.collect()
        gc.freeze()  # keeps the collector from writing to pages that are shared with the children
        try:
            while True:
                ready = {fd for fd, _ in self._poll.poll()}
                if self._parent_pidfd in ready:
                    return
                for pidfd in ready & self._children.keys():
                    self._reap(pidfd)
                if self._sock.fileno() in ready:
                    data, fds, _, _ = socket.recv_fds(self._sock, _MESSAGE, 4)
                    if not data:
                        return
                    self._handle(pickle.loads(data), fds)
        except ConnectionError:
            return
        finally:
            for _, pid in self._children.values():
                _kill(pid)
            for _, pid in self._children.values():
                os.waitpid(pid, 0)

    def _handle(self, request: tuple[str, int], fds: list[int]) -> None:
        operation, number = request
        if operation == "fork":
            self._fork(number, fds)
        elif operation == "kill":
            self._kill_child(number)
        elif operation == "how":
            for pidfd in self._found(number):
                # The child has closed its socket and is about to exit, unless a function closed the socket.
                if not select.select([pidfd], [], [], _PATIENCE_S)[0]:
                    self._kill_child(number)
                self._reap(pidfd)
            self._sock.send(pickle.dumps((number, self._ended.pop(number, None))))

    def _fork(self, number: int, fds: list[int]) -> None:
        flush()
        host = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._leave()
            _become_function_process(host, *fds)
        for fd in fds:
            os.close(fd)
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = number, pid
        self._poll.register(pidfd, select.POLLIN)

    def _leave(self) -> None:
        self._sock.close()
        for fd in (self._parent_pidfd, *self._children):
            os.close(fd)

    def _found(self, number: int) -> list[int]:
        return [pidfd for pidfd, (known, _) in self._children.items() if known == number]

    def _kill_child(self, number: int) -> None:
        for pidfd in self._found(number):
            _kill(self._children[pidfd][1])

    def _reap(self, pidfd: int) -> None:
        number, pid = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        self._ended[number] = os.waitpid(pid, 0)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _become_function_process(host: int, sock: int, payload: int, out: int, err: int) -> NoReturn:
    code = 1
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != host:
            os._exit(1)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for fd in {out, err} - {1, 2}:
            os.close(fd)
        # The descriptors belong to the process, not to these objects.
        sys.stdout = sys.__stdout__ = _stream(1, "w")  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = _stream(2, "w")  # type: ignore[misc]
        sys.modules["__main__"] = types.ModuleType("__main__")  # the user's __main__ is pickled by value
        os.set_inheritable(sock, False)
        requests = socket.socket(fileno=sock)  # closed by exiting, which tells the other side
        _function_process.run(requests, payload)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        flush()
        os._exit(code & 0xFF)  # skips inherited finalizers


def serve_for(sock: socket.socket, parent: int) -> NoReturn:
    """Runs in a process that `parent` has just forked."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    _serve(sock, parent)


def _serve(sock: socket.socket, parent: int) -> NoReturn:
    # The process that trains handles both signals: it may need batches until its last checkpoint.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sock.set_inheritable(False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdin = sys.__stdin__ = _stream(0, "r")  # type: ignore[misc]
    with contextlib.suppress(ProcessLookupError):
        FunctionHost(sock, os.pidfd_open(parent)).serve()
    os._exit(0)


def main() -> None:
    os.environ["TRIREME_WORKER"] = "1"  # modules that user code imports start no processes or threads here
    sock: Any = socket.socket(fileno=int(os.environ.pop("TRIREME_FUNCTION_HOST_FD")))
    _serve(sock, _driver_pid(sock))


if __name__ == "__main__":
    main()
