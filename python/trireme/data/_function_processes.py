"""The processes that call one chain of functions, and the work in flight between them and this process."""

from __future__ import annotations

import contextlib
import pickle
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from trireme.data._cut import Stage, WorkUnit, rows_text, work_units
from trireme.data._fragment import DataError, Where
from trireme.data._function_process import Answer, Failure, Request
from trireme.data._host_client import Host, HostGone
from trireme.data._segment import OwnedSegment, Segments

_MESSAGE = 1 << 16
_AHEAD = 2  # for each process: one unit in progress, one queued
_MOST_DEATHS = 3
_MOST_LOST_HOSTS = 5


class FunctionFailed(Exception):
    """Replaces an exception of a function that cannot be pickled."""


class _Task:
    def __init__(self, stage: int, where: Where, rows: int, given: OwnedSegment, end: int) -> None:
        self.stage = stage
        self.where = where
        self.rows = rows
        self.given = given
        self.end = end
        self.wanted: OwnedSegment | None = None
        self.answer: Answer | None = None
        self.error: DataError | None = None
        self.deaths = 0
        self.abandoned = False

    @property
    def done(self) -> bool:
        return self.answer is not None or self.error is not None


class _Process:
    def __init__(self, number: int, sock: socket.socket) -> None:
        self.number = number
        self.sock = sock
        self.tasks: deque[_Task] = deque()  # in the order of the answers
        self._known: dict[int, OwnedSegment] = {}

    def send(self, task: _Task) -> None:
        given, wanted = task.given, task.wanted
        assert wanted is not None
        wanted.step = 0
        gone = [number for number, segment in self._known.items() if segment.fd < 0]
        new = [segment for segment in (given, wanted) if segment.number not in self._known]
        request = Request(
            task.stage,
            task.where,
            task.rows,
            (given.number, given.size, task.end),
            (wanted.number, wanted.size),
            tuple(segment.number for segment in new),
            tuple(gone),
        )
        socket.send_fds(self.sock, [pickle.dumps(tuple(request))], [segment.fd for segment in new])
        for number in gone:
            del self._known[number]
        self._known.update((segment.number, segment) for segment in new)
        self.tasks.append(task)

    def receive(self) -> Answer | None:
        """None: the process has died. BlockingIOError: no answer yet."""
        try:
            data = self.sock.recv(_MESSAGE, socket.MSG_DONTWAIT)
        except ConnectionResetError:
            return None
        return Answer(*pickle.loads(data)) if data else None


class FunctionProcesses:
    """Any number of threads can run fragments at the same time. There is no dispatcher thread: a thread that waits for
    its answer also receives the answers for the others.
    """

    def __init__(self, stages: Sequence[Stage], payload: bytes, most: int, host: Callable[[], Host]) -> None:
        self._names = [[op.name for op in stage.ops] for stage in stages]
        self._payload = payload
        self._most = most
        self._host = host
        self._hosts: dict[int, Host] = {}  # the host of each process, by descriptor
        self._segments = Segments()
        self._processes: dict[int, _Process] = {}
        self._waiting: deque[_Task] = deque()
        self._epoll = select.epoll()
        self._changed = threading.Condition()
        self._polling = False
        self._closed = False
        self._last_lost: Host | None = None
        self._lost_hosts = 0  # since the last answer

    def run(
        self, stage: int, multiple: int | None, batches: Iterator[pa.RecordBatch], where: Where
    ) -> Iterator[pa.RecordBatch]:
        """The output of a stage for a fragment, in order. Sends units ahead of the consumer."""
        coming = work_units(batches, multiple, where)
        ahead: deque[_Task] = deque()
        try:
            while True:
                while len(ahead) <= self._most and not (len(ahead) > 1 and ahead[0].done):
                    unit = next(coming, None)
                    if unit is None:
                        break
                    ahead.append(self._submit(stage, unit))
                if not ahead:
                    return
                self._wait(ahead[0])
                made = self._result(ahead.popleft())
                while made:
                    yield made.popleft()  # keeps no reference to it
        finally:
            with self._changed:
                for task in ahead:
                    self._abandon(task)

    def close(self) -> None:
        """Ends the processes. Threads that wait for an answer raise an error."""
        with self._changed:
            self._closed = True
            for process in self._processes.values():
                with contextlib.suppress(OSError):
                    process.sock.shutdown(socket.SHUT_RDWR)  # wakes the polling thread
            self._changed.notify_all()
            while self._polling:
                self._changed.wait()
            for fd, process in self._processes.items():
                process.sock.close()
                self._hosts.pop(fd).kill(process.number)
            self._processes.clear()
            self._waiting.clear()
            self._segments.close()
            self._epoll.close()

    def _submit(self, stage: int, unit: WorkUnit) -> _Task:
        given = self._segments.take()
        task = _Task(stage, unit.where, unit.rows, given, given.write(unit.parts))
        with self._changed:
            self._waiting.append(task)
            self._dispatch()
        return task

    def _wait(self, task: _Task) -> None:
        with self._changed:
            while not task.done:
                if self._closed:
                    raise DataError(f"{self._name(task)}: its function processes were closed while it was being read")
                if self._polling:
                    self._changed.wait()
                else:
                    self._poll()

    def _poll(self) -> None:
        self._polling = True
        try:
            self._changed.release()
            try:
                ready = self._epoll.poll()
            finally:
                self._changed.acquire()
        finally:
            self._polling = False
            self._changed.notify_all()
        if self._closed:
            return
        for fd, _ in ready:
            if process := self._processes.get(fd):
                self._take_answer(fd, process)
        self._dispatch()

    def _take_answer(self, fd: int, process: _Process) -> None:
        try:
            answer = process.receive()
        except BlockingIOError:
            return
        if answer is None:
            self._bury(fd, process)
            return
        self._lost_hosts = 0
        task = process.tasks.popleft()
        assert task.wanted is not None
        task.wanted.grow(answer.size)
        if answer.keeps_given:
            task.given.close()
        else:
            self._segments.give_back(task.given)
        if task.abandoned:
            self._segments.give_back(task.wanted)
        else:
            task.answer = answer

    def _dispatch(self) -> None:
        while self._waiting and not self._closed:
            task = self._waiting[0]
            if task.done:
                self._waiting.popleft()
                continue
            if task.wanted is None:
                task.wanted = self._segments.take()
            try:
                fd = self._least_busy()
            except (DataError, OSError) as error:
                for task in self._waiting:
                    task.error = DataError(f"{self._name(task)}: cannot start a function process: {error}")
                self._waiting.clear()
                return
            if fd is None:
                return
            try:
                self._processes[fd].send(task)
            except OSError:
                self._bury(fd, self._processes[fd])
                continue
            self._waiting.popleft()

    def _least_busy(self) -> int | None:
        fd = min(self._processes, key=lambda fd: len(self._processes[fd].tasks), default=None)
        if fd is not None and not self._processes[fd].tasks:
            return fd
        if len(self._processes) < self._most:
            return self._start()
        return fd if fd is not None and len(self._processes[fd].tasks) < _AHEAD else None

    def _start(self) -> int:
        for _ in range(2):  # if the first host is dead, the second is a new one
            host = self._host()
            with contextlib.suppress(HostGone):
                number, sock = host.fork(self._payload)
                fd = sock.fileno()
                self._processes[fd] = _Process(number, sock)
                self._hosts[fd] = host
                self._epoll.register(fd, select.EPOLLIN)
                return fd
        raise DataError("the process that it is forked from exits immediately")

    def _bury(self, fd: int, process: _Process) -> None:
        """Other processes get its tasks. Its first task may have killed it."""
        del self._processes[fd]
        self._epoll.unregister(fd)
        process.sock.close()
        host = self._hosts.pop(fd)
        how = host.how_it_ended(process.number)
        left = list(process.tasks)
        if how is None:
            self._count_lost(host, left)
        elif left and not left[0].abandoned:
            self._blame(left[0], how)
        for task in reversed(left):
            if not (task.abandoned or task.done):
                self._waiting.appendleft(task)
            elif task.error is None:
                self._release(task)

    def _count_lost(self, host: Host, tasks: Sequence[_Task]) -> None:
        """No task is to blame if a host dies; but if hosts keep dying before any answer, the tasks fail."""
        if host is self._last_lost:
            return
        self._last_lost = host
        self._lost_hosts += 1
        what = "the warm process that function processes are forked from was killed"
        if self._lost_hosts < _MOST_LOST_HOSTS:
            print(f"trireme: {what}; a new one is started", file=sys.stderr, flush=True)
            return
        for task in (*tasks, *self._waiting):
            task.error = DataError(f"{self._name(task)}: {what}, for the {self._lost_hosts}th time")
        self._lost_hosts = 0

    def _blame(self, task: _Task, how: str) -> None:
        task.deaths += 1
        where = f"{self._name(task)} on {rows_text(task.where, task.rows)}"
        if task.deaths < _MOST_DEATHS:
            told = f"trireme: {where}: its function process {how}; a new one repeats the work"
            print(told, file=sys.stderr, flush=True)
            return
        advice = "see the log for its last output"
        if "SIGKILL" in how:
            advice = "if memory ran out, use a smaller batch_size or a smaller concurrency"
        task.error = DataError(f"{where}: its function process {how}, for the {task.deaths}rd time; {advice}")
        self._release(task)

    def _name(self, task: _Task) -> str:
        """The name of the function that was running."""
        names = self._names[task.stage]
        return names[min(task.wanted.step if task.wanted else 0, len(names) - 1)]

    def _release(self, task: _Task) -> None:
        self._segments.give_back(task.given)
        if task.wanted is not None:
            self._segments.give_back(task.wanted)

    def _abandon(self, task: _Task) -> None:
        task.abandoned = True
        if task.answer is not None:
            assert task.wanted is not None
            self._segments.give_back(task.wanted)
        elif task in self._waiting:
            self._waiting.remove(task)
            self._release(task)

    def _result(self, task: _Task) -> deque[pa.RecordBatch]:
        if task.error is not None:
            raise task.error
        assert task.answer is not None and task.wanted is not None
        if not task.answer.failed:
            return deque(self._segments.lend(task.wanted, task.answer.end))
        failure = Failure(*task.wanted.read_object(task.answer.end))
        self._segments.give_back(task.wanted)
        error = DataError(failure.message)
        error.add_note(f"In the function process:\n{failure.trace}")
        raise error from _cause(failure)


def _cause(failure: Failure) -> BaseException:
    if failure.cause is not None:
        with contextlib.suppress(Exception):
            cause = pickle.loads(failure.cause)
            if isinstance(cause, BaseException):
                return cause
    return FunctionFailed(failure.trace.rstrip())
