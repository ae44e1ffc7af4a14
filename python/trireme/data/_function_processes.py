"""Runs the user's functions on a fragment's batches: in this process, or in function processes that it starts, feeds
and replaces. _function_process.py is their side."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import select
import socket
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

from trireme import _ship
from trireme._process_host import FUNCTIONS, VARIABLE, Ended, Host, HostGone, take_host
from trireme.data import _function_process
from trireme.data._cut import Stage, WorkUnit, rows_text, run_unit, stages, work_units
from trireme.data._fragment import DataError, FunctionOp, Where
from trireme.data._function_process import MESSAGE_BYTES, Answer, Failure, Request, Setup
from trireme.data._functions import Function
from trireme.data._segment import OwnedSegment, Segments

_AHEAD = 2  # for each process: one unit in progress, one queued
_MOST_DEATHS = 3
_MOST_LOST_HOSTS = 5

# Never held while acquiring a pool's lock: pools request the host while they hold theirs.
_lock = threading.RLock()
_pools: dict[tuple[int, ...], _Pool] = {}
_host: Host | None = None


def run_functions(ops: Sequence[Function], batches: Iterator[pa.RecordBatch], where: Where) -> Iterator[pa.RecordBatch]:
    """The output of the functions for a fragment's batches, in order. Called from any thread.

    On the driver the functions run in this process, unless concurrency is set. In a worker they run in function
    processes, so that they do not take the interpreter from the training thread. The processes live until `ops` are
    collected or close() is called.
    """
    made = stages(ops)
    pool = _pool(ops, made) if processes_for(ops) else None
    stream = batches
    for index, stage in enumerate(made):
        stream = _run(index, stage, pool, stream, where)
        where = Where(f"the output of {stage.name} for {where.fragment}")
    return stream


def processes_for(ops: Sequence[FunctionOp]) -> int:
    """How many processes call these functions; 0: this one does."""
    if _function_process.inside:
        return 0
    asked = max((op.concurrency or 0 for op in ops), default=0)
    if asked or os.environ.get("TRIREME_WORKER") != "1":
        return asked
    text = os.environ.get(VARIABLE, "")
    return max(int(text), 1) if text.isdigit() else 1


def close(ops: Sequence[Function] | None = None) -> None:
    """Ends the processes of these functions, or of all functions. Calling a function again starts new ones."""
    with _lock:
        keys = list(_pools) if ops is None else [_key(ops)]
        closed = [_pools.pop(key) for key in keys if key in _pools]
    for pool in closed:
        pool.close()
    _close_host()


def _run(
    index: int, stage: Stage, pool: _Pool | None, batches: Iterator[pa.RecordBatch], where: Where
) -> Iterator[pa.RecordBatch]:
    """Keeps the functions alive while it runs."""
    if pool is not None:
        yield from pool.run(index, stage.multiple, batches, where)
        return
    for unit in work_units(batches, stage.multiple, where):
        yield from run_unit(stage.ops, unit)


def _pool(ops: Sequence[Function], made: Sequence[Stage]) -> _Pool:
    key = _key(ops)
    with _lock:
        if pool := _pools.get(key):
            return pool
        _pools[key] = pool = _Pool(made, _packed(made), processes_for(ops))
        # The pool does not reference the functions: it is closed when they are collected.
        weakref.finalize(ops[0], _collected, key, weakref.ref(pool)).atexit = False
        return pool


def _packed(made: Sequence[Stage]) -> bytes:
    try:
        return pickle.dumps(Setup.of(made, _ship.absolute_sys_path()))
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


def _key(ops: Sequence[Function]) -> tuple[int, ...]:
    return tuple(map(id, ops))


def _collected(key: tuple[int, ...], pool: weakref.ref[_Pool]) -> None:
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
            _host = Host(FUNCTIONS, take_host())
        return _host


def _close_host(at_exit: bool = False) -> None:
    """A host that this process started can be restarted; one that was forked with the worker cannot."""
    global _host
    with _lock:
        if _pools or _host is None or not (_host.restartable or at_exit):
            return
        closed, _host = _host, None
    closed.close()


@atexit.register
def _close_at_exit() -> None:
    close()
    _close_host(at_exit=True)


def _forget_after_fork() -> None:
    """The processes belong to the parent."""
    global _lock, _host
    _lock = threading.RLock()
    _host = None
    _pools.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


class _Task:
    """A unit of work."""

    def __init__(self, stage: int, unit: WorkUnit, given: OwnedSegment) -> None:
        self.stage = stage
        self.where = unit.where
        self.rows = unit.rows
        self.given = given
        self.end = given.write(unit.parts)
        self.wanted: OwnedSegment | None = None
        self.answer: Answer | None = None
        self.error: DataError | None = None
        self.deaths = 0
        self.abandoned = False

    @property
    def done(self) -> bool:
        return self.answer is not None or self.error is not None


class _Process:
    def __init__(self, host: Host, payload: bytes) -> None:
        self.sock = host.fork(payload)
        self.host = host
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
        socket.send_fds(self.sock, [pickle.dumps(request)], [segment.fd for segment in new])
        for number in gone:
            del self._known[number]
        self._known.update((segment.number, segment) for segment in new)
        self.tasks.append(task)

    def receive(self) -> Answer | Ended | None:
        """None: the host has died. BlockingIOError: no answer yet."""
        for _ in range(2):
            # Once, if the process has left requests unread; what was sent before follows.
            with contextlib.suppress(ConnectionResetError):
                data = self.sock.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
                received: Answer | Ended | None = pickle.loads(data) if data else None
                return received
        return None


class _Pool:
    """The processes that call one chain of functions, and the work in flight between them and this process.

    Any number of threads can run fragments at the same time. There is no dispatcher thread: a thread that waits for its
    answer also receives the answers for the others.
    """

    def __init__(self, stages: Sequence[Stage], payload: bytes, most: int) -> None:
        self._names = [[op.name for op in stage.ops] for stage in stages]
        self._payload = payload
        self._most = most
        self._segments = Segments()
        self._processes: dict[int, _Process] = {}  # by descriptor
        self._readings: list[list[object]] = [[] for _ in stages]  # the fragments that a stage reads, oldest first
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
        coming = work_units(batches, multiple, where, self._most)
        reading = object()
        with self._changed:
            self._readings[stage].append(reading)
        ahead: deque[_Task] = deque()
        try:
            while True:
                while self._has_room(ahead, reading is self._readings[stage][0]):
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
                self._readings[stage].remove(reading)
                for task in ahead:
                    self._abandon(task)

    def _has_room(self, ahead: deque[_Task], oldest: bool) -> bool:
        """The oldest fragment keeps all processes busy. Others get those that it leaves idle, and hold few units."""
        if not ahead:
            return True
        if len(ahead) > 1 and ahead[0].done:
            return False
        if oldest:
            return len(ahead) <= self._most
        with self._changed:
            pending = len(self._waiting) + sum(len(process.tasks) for process in self._processes.values())
        return len(ahead) < _AHEAD and pending < self._most

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
            for process in self._processes.values():
                process.sock.close()  # the host kills the process
            self._processes.clear()
            self._waiting.clear()
            self._segments.close()
            self._epoll.close()

    def _submit(self, stage: int, unit: WorkUnit) -> _Task:
        task = _Task(stage, unit, self._segments.take())
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
                with contextlib.suppress(BlockingIOError):
                    self._take(process, process.receive())
        self._dispatch()

    def _take(self, process: _Process, answer: Answer | Ended | None) -> None:
        if not isinstance(answer, Answer):
            self._bury(process, answer)
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
                process = self._least_busy()
            except (DataError, OSError) as error:
                for task in self._waiting:
                    task.error = DataError(f"{self._name(task)}: cannot start a function process: {error}")
                self._waiting.clear()
                return
            if process is None:
                return
            try:
                process.send(task)
            except ConnectionError:  # it has exited: what was sent before is still to be received
                self._take(process, process.receive())
                continue
            self._waiting.popleft()

    def _least_busy(self) -> _Process | None:
        process = min(self._processes.values(), key=lambda each: len(each.tasks), default=None)
        if process is not None and not process.tasks:
            return process
        if len(self._processes) < self._most:
            return self._start()
        return process if process is not None and len(process.tasks) < _AHEAD else None

    def _start(self) -> _Process:
        for _ in range(2):  # if the first host is dead, the second is a new one
            with contextlib.suppress(HostGone):
                process = _Process(_current_host(), self._payload)
                self._processes[process.sock.fileno()] = process
                self._epoll.register(process.sock, select.EPOLLIN)
                return process
        raise DataError("the process that it is forked from exits immediately")

    def _bury(self, process: _Process, ended: Ended | None) -> None:
        """Other processes get its tasks. Its first task may have killed it."""
        del self._processes[process.sock.fileno()]
        self._epoll.unregister(process.sock)
        process.sock.close()
        left = list(process.tasks)
        if ended is None:
            process.host.alive = False
            self._count_lost(process.host, left)
        elif left and not left[0].abandoned:
            self._blame(left[0], ended)
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

    def _blame(self, task: _Task, ended: Ended) -> None:
        task.deaths += 1
        how = f"(pid {ended.pid}) {ended.how()}"
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
        failure: Failure = task.wanted.read_object(task.answer.end)
        self._segments.give_back(task.wanted)
        raise failure.error()
