"""The processes that call the user's functions, and the warm process, the host, that they are forked from.

The host is forked from a worker while that has one thread, or started by any other process. Every message to it is the
descriptors of a new function process: the socket of its requests, its Setup, and its output. The host keeps the socket
as well: it kills a process whose socket the other side has closed, and sends an `Ended` for one that has exited.
"""

from __future__ import annotations

import contextlib
import faulthandler
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
import weakref
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import pyarrow as pa

from trireme._forked import call_ending_forks
from trireme._function_fork import take_host
from trireme._runtime import _python_command
from trireme._ship import dumps
from trireme._user_exception import dump_exception, format_exception
from trireme._zygote import _PR_SET_PDEATHSIG, _driver_pid, _libc, _reseed, _set_thread_counts, _stream, flush
from trireme.data._context import DataContext
from trireme.data._cut import Stage, WorkUnit, rows_text, run_unit
from trireme.data._fragment import DataError, Where
from trireme.data._segment import Segment

MESSAGE_BYTES = 1 << 16
HOST_FD = "TRIREME_FUNCTION_HOST_FD"
_MOST_FDS = 4

# Whether this is a function process: if a function uses datasets, their functions run in the same process.
inside = False


class Setup(NamedTuple):
    """Sent once to each process."""

    environment: dict[str, str]
    folder: str
    sys_path: list[str]
    argv: list[str]
    names: list[str]  # of the stages
    context: bytes  # the DataContext
    stages: bytes  # a list[Stage], by cloudpickle; loading it imports modules from sys_path

    @classmethod
    def of(cls, stages: Sequence[Stage], sys_path: list[str]) -> Setup:
        """With the current environment of this process."""
        names = [stage.name for stage in stages]
        context = dumps(DataContext.get_current())
        return cls(dict(os.environ), os.getcwd(), sys_path, list(sys.argv), names, context, dumps(list(stages)))


class Request(NamedTuple):
    stage: int
    where: Where
    rows: int
    given: tuple[int, int, int]  # the segment of the input, its size, the end of the batches in it
    wanted: tuple[int, int]  # the segment for the output, its size
    new: tuple[int, ...]  # segments whose descriptors are sent with the request
    gone: tuple[int, ...]  # segments that are not used again


class Answer(NamedTuple):
    end: int  # the end of the batches in the segment
    size: int  # the current size of the segment
    failed: bool  # the segment contains a Failure
    keeps_given: bool  # a function still references the input batches


class FunctionFailed(Exception):
    """Replaces an exception of a function that cannot be pickled."""


class Failure(NamedTuple):
    message: str
    cause: bytes | None  # the exception, if it can be pickled
    trace: str

    def error(self) -> DataError:
        cause = None
        if self.cause is not None:
            with contextlib.suppress(Exception):
                cause = pickle.loads(self.cause)
        error = DataError(self.message)
        error.add_note(f"In the function process:\n{self.trace}")
        error.__cause__ = cause if isinstance(cause, BaseException) else FunctionFailed(self.trace.rstrip())
        return error


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


# The function process.


class _Owner:
    """Lives while any batch that was read with it does, and keeps their segment mapped."""

    __slots__ = ("__weakref__", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment


def _call_functions(sock: socket.socket, payload: int) -> None:
    """Until the socket is closed."""
    global inside
    inside = True
    faulthandler.enable()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # if memory runs out, kill this process before the training process
    with open(payload, "rb") as packed:
        setup: Setup = pickle.load(packed)
    loaded = _load(setup)
    segments: dict[int, Segment] = {}
    while True:
        data, fds, _, _ = socket.recv_fds(sock, MESSAGE_BYTES, _MOST_FDS)
        if not data:
            return
        request: Request = pickle.loads(data)
        sizes = {request.given[0]: request.given[1], request.wanted[0]: request.wanted[1]}
        for number in request.gone:
            segments.pop(number, None)
        for number, fd in zip(request.new, fds, strict=True):
            segments[number] = Segment(fd, sizes[number])
            os.close(fd)
        for number, size in sizes.items():
            segments[number].grow(size)
        answer = _work(loaded, setup.names, request, segments)
        if answer.keeps_given:
            del segments[request.given[0]]
        try:
            sock.send(pickle.dumps(answer))
        except (BrokenPipeError, ConnectionResetError):
            return


def _load(setup: Setup) -> list[Stage] | Failure:
    os.environ.clear()
    os.environ.update(setup.environment)
    # Several such processes share the cores with the training process: one thread each.
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["TRIREME_WORKER"] = "1"
    _set_thread_counts()
    pa.set_cpu_count(1)
    _reseed()
    try:
        os.chdir(setup.folder)
        sys.path[:], sys.argv[:] = setup.sys_path, setup.argv
        importlib.invalidate_caches()
        DataContext._set_current(pickle.loads(setup.context))
        stages: list[Stage] = pickle.loads(setup.stages)
    except Exception as error:
        told = f"cannot be loaded in a function process: {type(error).__name__}: {error}"
        return _failure(DataError(f"{', '.join(setup.names)} {told}"), error)
    return stages


def _work(loaded: list[Stage] | Failure, names: list[str], request: Request, segments: dict[int, Segment]) -> Answer:
    given, _, end = request.given
    wanted = segments[request.wanted[0]]
    owner = _Owner(segments[given])
    alive = weakref.ref(owner)
    failure: Failure | None = None
    try:
        if isinstance(loaded, Failure):
            failure = loaded
        else:
            end = _run(loaded[request.stage], request, segments[given], end, owner, wanted)
    except DataError as error:
        failure = _failure(error, error.__cause__ or error)
    except Exception as error:
        on = rows_text(request.where, request.rows)
        told = f"the output of {names[request.stage]} for {on} cannot be sent: {type(error).__name__}: {error}"
        failure = _failure(DataError(told), error)
    if failure is not None:
        end = wanted.write_object(failure)
    del owner
    return Answer(end, wanted.size, failure is not None, alive() is not None)


def _run(stage: Stage, request: Request, given: Segment, end: int, owner: _Owner, wanted: Segment) -> int:
    unit = WorkUnit(given.read(end, owner), request.rows, request.where)

    def entered(index: int) -> None:
        wanted.step = index

    return wanted.write(call_ending_forks(lambda: list(run_unit(stage.ops, unit, entered))))


def _failure(error: DataError, cause: BaseException) -> Failure:
    return Failure(str(error), dump_exception(cause), format_exception(cause))


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
        _call_functions(socket.socket(fileno=sock), payload)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        flush()
        os._exit(code & 0xFF)  # skips inherited finalizers


# The host.


class HostGone(Exception):
    """The host was killed or closed."""


class Host:
    """This process's end of its host, which was forked with this worker or is started. It and its children exit when it
    is closed or this process exits."""

    def __init__(self) -> None:
        self.alive = True
        self._owner = os.getpid()
        forked = take_host()
        self.restartable = forked is None
        self._started: subprocess.Popen[bytes] | None = None
        if forked is not None:
            self._sock, self._pid = forked
            return
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {
            **os.environ,
            HOST_FD: str(theirs.fileno()),
            # Keep both libraries from starting threads on import.
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [*_python_command(), "-c", f"from {__name__} import main; main()"]
        with theirs:
            self._started = subprocess.Popen(
                command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2
            )
        self._pid = self._started.pid

    def fork(self, payload: bytes) -> socket.socket:
        """The socket of a new function process."""
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

    def __init__(self, sock: socket.socket, parent_pidfd: int) -> None:
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
            _become_function_process(host, sock, *fds)
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


def serve_for(sock: socket.socket, parent: int) -> NoReturn:
    """Becomes the host of `parent`, whose only thread has just forked this process."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)
    _serve(sock, parent)


def main() -> None:
    os.environ["TRIREME_WORKER"] = "1"  # modules that user code imports start no processes or threads here
    sock = socket.socket(fileno=int(os.environ.pop(HOST_FD)))
    _serve(sock, _driver_pid(sock))


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
        _Serving(sock, os.pidfd_open(parent)).serve()
    os._exit(0)
