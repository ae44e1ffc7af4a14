"""The processes that call the user's functions; _process_host.py is the warm process that they are forked from."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import pickle
import socket
import sys
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from trireme._compat import prepare_compat
from trireme._forked import call_ending_forks
from trireme._ship import dumps
from trireme._user_exception import dump_exception, format_exception
from trireme._zygote import _reseed, _set_thread_counts
from trireme.data._context import DataContext
from trireme.data._cut import Stage, WorkUnit, rows_text, run_unit
from trireme.data._fragment import DataError, Where
from trireme.data._segment import Segment

MESSAGE_BYTES = 1 << 16
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


class _Owner:
    """Lives while any batch that was read with it does, and keeps their segment mapped."""

    __slots__ = ("__weakref__", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment


def call_functions(sock: socket.socket, payload: int) -> None:
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
        prepare_compat()
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
