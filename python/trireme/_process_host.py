"""A clean process that others are forked from: for functions of datasets, and for tasks and actors.

The host is forked from a worker while that has one thread, or started by any other process. Every message to it is the
descriptors of a new process: its socket, what it is given, and its output. The host keeps the socket as well: it kills
a process whose socket the other side has closed, and sends an `Ended` for one that has exited.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from trireme._runtime import _python_command
from trireme._zygote import _PR_SET_PDEATHSIG, _driver_pid, _libc, _stream, flush, thread_count

# Set for workers whose datasets have functions: the default number of processes per function.
VARIABLE = "TRIREME_FUNCTION_HOST"
FUNCTIONS = "trireme.data._function_process:call_functions"
_HOST_FD = "TRIREME_FUNCTION_HOST_FD"
_MOST_FDS = 4

Program = Callable[[socket.socket, int], Any]  # called in each process with its socket and what it is given


class Ended(NamedTuple):
    """From the host: the process has exited, and answers nothing more."""

    pid: int
    status: int

    def how(self) -> str:
        code = os.waitstatus_to_exitcode(self.status)
        if code >= 0:
            return f"exited with code {code}"
        try:
            return f"died of {signal.Signals(-code).name}"
        except ValueError:
            return f"died of signal {-code}"


def _become_process(program: Program, host: int, sock: int, payload: int, out: int, err: int) -> NoReturn:
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
        program(socket.socket(fileno=sock), payload)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        flush()
        os._exit(code & 0xFF)  # skips inherited finalizers


class Forked(NamedTuple):
    sock: socket.socket
    pid: int


_forked: Forked | None = None


def fork_host() -> None:
    """Called once in a worker, before anything starts a thread: its function processes are forked from this host."""
    global _forked
    if thread_count() != 1:
        return  # a new host process is started when it is needed
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    flush()
    worker = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _close_all_but(theirs.fileno())
            # Otherwise Arrow's allocator starts a thread on import.
            os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
            _serve_for(theirs, worker, FUNCTIONS)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    theirs.close()
    _forked = Forked(ours, pid)
    atexit.register(_end_unused)


def take_host() -> Forked | None:
    """Passes ownership of the worker's host to the caller."""
    global _forked
    taken, _forked = _forked, None
    return taken


def _end_unused() -> None:
    if (host := take_host()) is not None:
        host.sock.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(host.pid, 0)


def _close_all_but(kept: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))


class HostGone(Exception):
    """The host was killed or closed."""


class Host:
    """This process's end of its host, which was forked with this worker or is started. It and its children exit when it
    is closed or this process exits."""

    def __init__(self, program: str, forked: Forked | None = None) -> None:
        """program: "module:function", what each process runs. forked: the host of this worker, if there is one."""
        self.alive = True
        self._owner = os.getpid()
        self.restartable = forked is None
        self._started: subprocess.Popen[bytes] | None = None
        if forked is not None:
            self._sock, self._pid = forked
            return
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {
            **os.environ,
            _HOST_FD: str(theirs.fileno()),
            # Keep both libraries from starting threads on import.
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [*_python_command(), "-c", f"from {__name__} import main; main({program!r})"]
        with theirs:
            self._started = subprocess.Popen(
                command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2
            )
        self._pid = self._started.pid

    def fork(self, payload: bytes) -> socket.socket:
        """The socket of a new process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        with theirs, os.fdopen(os.memfd_create("trireme_setup"), "w+b") as memory:
            memory.write(payload)
            memory.seek(0)
            try:
                socket.send_fds(self._sock, [b"."], [theirs.fileno(), memory.fileno(), 1, 2])
            except OSError as error:
                ours.close()
                self.alive = False
                raise HostGone from error
        return ours

    def close(self) -> None:
        self.alive = False
        self._sock.close()
        if os.getpid() != self._owner:
            return
        if self._started is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._started.wait(5)
        else:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)


class _Child(NamedTuple):
    pid: int
    pidfd: int
    sock: socket.socket


class _Serving:
    """Single-threaded, and imports no user code: every fork is equivalent to a new interpreter."""

    def __init__(self, program: Program, sock: socket.socket, parent_pidfd: int) -> None:
        self._program = program
        self._sock = sock
        self._parent_pidfd = parent_pidfd
        self._children: list[_Child] = []
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
                for child in list(self._children):
                    if child.pidfd in ready:
                        self._reap(child)
                    elif child.sock.fileno() in ready:  # nobody waits for its answers
                        self._poll.unregister(child.sock)
                        os.kill(child.pid, signal.SIGKILL)
                if self._sock.fileno() in ready:
                    data, fds, _, _ = socket.recv_fds(self._sock, 1, _MOST_FDS)
                    if not data:
                        return
                    self._fork(*fds)
        except ConnectionError:
            return
        finally:
            for child in self._children:
                os.kill(child.pid, signal.SIGKILL)
            for child in self._children:
                os.waitpid(child.pid, 0)

    def _fork(self, sock: int, *fds: int) -> None:
        flush()
        host = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._sock.close()
            for fd in (self._parent_pidfd, *(child.pidfd for child in self._children)):
                os.close(fd)
            for child in self._children:
                child.sock.close()
            _become_process(self._program, host, sock, *fds)
        for fd in fds:
            os.close(fd)
        child = _Child(pid, os.pidfd_open(pid), socket.socket(fileno=sock))
        self._children.append(child)
        self._poll.register(child.pidfd, select.POLLIN)
        self._poll.register(child.sock, 0)  # only POLLHUP: the requests are the child's

    def _reap(self, child: _Child) -> None:
        ended = Ended(*os.waitpid(child.pid, 0))
        self._children.remove(child)
        self._poll.unregister(child.pidfd)
        with contextlib.suppress(KeyError):
            self._poll.unregister(child.sock)
        os.close(child.pidfd)
        with contextlib.suppress(OSError):  # closed by the other side
            child.sock.send(pickle.dumps(ended), socket.MSG_DONTWAIT)
        child.sock.close()


def _serve_for(sock: socket.socket, parent: int, program: str) -> NoReturn:
    """Becomes the host of `parent`, whose only thread has just forked this process."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    _serve(sock, parent, program)


def main(program: str) -> None:
    os.environ["TRIREME_WORKER"] = "1"  # modules that user code imports start no processes or threads here
    sock = socket.socket(fileno=int(os.environ.pop(_HOST_FD)))
    _serve(sock, _driver_pid(sock), program)


def _serve(sock: socket.socket, parent: int, program: str) -> NoReturn:
    module, _, function = program.partition(":")
    run: Program = getattr(importlib.import_module(module), function)
    # The process that trains handles both signals: it may need batches until its last checkpoint.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sock.set_inheritable(False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdin = sys.__stdin__ = _stream(0, "r")  # type: ignore[misc]
    with contextlib.suppress(ProcessLookupError):
        _Serving(run, sock, os.pidfd_open(parent)).serve()
    os._exit(0)
