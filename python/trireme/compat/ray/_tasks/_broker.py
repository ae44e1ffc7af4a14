"""The broker: a thread of the driver that starts the processes of tasks and actors and passes values between them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import threading
from collections import deque

from trireme._process_host import Host
from trireme.compat.ray._tasks import _errors, _values
from trireme.compat.ray._tasks._processes import Peer, Process, watch
from trireme.compat.ray._tasks._records import Actor, Call, Task, Waiter
from trireme.compat.ray._tasks._resources import Resources
from trireme.compat.ray._tasks._wire import Connection, Gone, is_own_user

PROGRAM = "trireme.compat.ray._tasks._process:run"


class Broker:
    """All state is guarded by one lock. Handlers of messages are the methods `on_...`."""

    def __init__(self, totals: dict[str, float]) -> None:
        self._lock = threading.RLock()
        self._folder = tempfile.mkdtemp(prefix="trireme_ray_")  # mode 0700
        self.path = os.path.join(self._folder, "socket")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(128)
        self._host: Host | None = None
        self._closed = False
        self.resources = Resources(totals)
        self._values: dict[str, _values.Stored] = {}
        self._waiters: dict[str, list[Waiter]] = {}
        self._queue: deque[Task] = deque()  # tasks that wait for resources
        self._tasks: dict[str, Task] = {}  # by reference of their results, while they are pending
        self._actors: dict[str, Actor] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._processes: dict[str, Process] = {}
        self._functions: dict[str, bytes] = {}
        threading.Thread(target=self._accept, name="trireme-ray", daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            processes = list(self._processes.values())
            for stored in self._values.values():
                _free(stored)
            self._values.clear()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for process in processes:
            process.kill()
        if self._host is not None:
            self._host.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Connections.

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if not is_own_user(sock):
                sock.close()
                continue
            threading.Thread(target=self._serve, args=(Peer(Connection(sock)),), daemon=True).start()

    def _serve(self, peer: Peer) -> None:
        try:
            while True:
                (kind, *arguments), fds = peer.connection.receive()
                with self._lock:
                    getattr(self, f"on_{kind}")(peer, *arguments, *([fds[0]] if fds else []))
        except Exception as error:
            if not isinstance(error, Gone):  # a message that the driver cannot read
                sys.excepthook(type(error), error, error.__traceback__)
            peer.connection.close()

    def on_hello(self, peer: Peer, process_id: str) -> None:
        """From a process that the broker has started."""
        if process := self._processes.get(process_id):
            peer.process = process
            process.attach(peer)

    # Values.

    def on_put(self, peer: Peer, ref: str, stored: _values.Stored, fd: int | None = None) -> None:
        if fd is not None:  # received: now a descriptor of this process
            stored = _values.Stored(None, stored.failed, os.getpid(), fd, stored.inode, stored.size)
        if self._closed or ref in self._values:
            _free(stored)
            return
        self._values[ref] = stored
        self._tasks.pop(ref, None)
        for waiter in self._waiters.pop(ref, []):
            waiter.note(ref)
        self._dispatch()

    def on_get(self, peer: Peer, request: int, refs: list[str], needed: int) -> None:
        """Answers when `needed` of the references have a value: with all values, or the ready references."""
        waiter = Waiter(peer, request, refs, needed, self._values)
        missing = [ref for ref in refs if ref not in self._values]
        if waiter.complete():
            return
        for ref in missing:
            self._waiters.setdefault(ref, []).append(waiter)
        # A task that waits lends its CPUs to others, which it may wait for.
        if peer.process is not None and peer.process.lend(self.resources):
            waiter.lender = peer.process
            self._dispatch()

    def on_forget(self, peer: Peer, request: int, refs: list[str]) -> None:
        """A wait with a timeout has ended: what is ready by now."""
        for ref in refs:
            for waiter in list(self._waiters.get(ref, [])):
                if waiter.peer is peer and waiter.request == request:
                    waiter.finish(self.resources)
                    self._waiters[ref].remove(waiter)
        peer.send("ready", request, [ref for ref in refs if ref in self._values])

    def on_free(self, peer: Peer, refs: list[str]) -> None:
        for ref in refs:
            if stored := self._values.pop(ref, None):
                _free(stored)

    # Tasks.

    def on_submit(self, peer: Peer, request: int, task: Task, function: bytes | None) -> None:
        if function is not None:
            self._functions[task.function] = function
        if problem := self.resources.impossible(task.resources):
            peer.send("refused", request, problem)
            return
        for ref in task.returns:
            self._tasks[ref] = task
        self._queue.append(task)
        peer.send("done", request, None)
        self._dispatch()

    def _dispatch(self) -> None:
        """Starts what has its arguments and resources; asks for what a call of an actor waits for."""
        if self._closed:
            return
        waiting: deque[Task] = deque()
        while self._queue:
            task = self._queue.popleft()
            ready = self._arguments(task)
            if ready is None:
                waiting.append(task)
            elif isinstance(ready, _values.Stored):
                self._fail(task.returns, ready)
            elif self.resources.take(task):
                self._start_task(task, ready)
            else:
                waiting.append(task)
        self._queue = waiting
        for actor in list(self._actors.values()):
            self._pump(actor)

    def _arguments(self, call: Task | Call) -> dict[str, _values.Stored] | _values.Stored | None:
        """The values of its references; the error of one of them; None: not all are there yet."""
        found = {}
        for ref in call.needs:
            stored = self._values.get(ref)
            if stored is None:
                return None
            if stored.failed:
                return stored
            found[ref] = stored
        return found

    def _start_task(self, task: Task, values: dict[str, _values.Stored]) -> None:
        process = self._fork(task.setup, task)
        process.task = task
        process.post("task", task, self._functions[task.function], values)

    def on_finished(self, peer: Peer) -> None:
        """A task has sent its results."""
        if peer.process is not None:
            peer.process.task = None  # it exits

    def on_cancel(self, peer: Peer, ref: str, force: bool) -> None:
        task = self._tasks.get(ref)
        if task is None:
            return
        task.cancelled = True
        if task in self._queue:
            self._queue.remove(task)
            self._fail(task.returns, cancelled())
            return
        for process in self._processes.values():
            if process.task is task:
                task.retries = 0
                if force:
                    process.kill()
                else:
                    process.post("cancel", ref)
        for actor in self._actors.values():
            if any(ref in call.returns for call in actor.running) and actor.process:
                actor.process.post("cancel", ref)

    def _fail(self, returns: tuple[str, ...], stored: _values.Stored) -> None:
        for ref in returns:
            self.on_put(_NOBODY, ref, stored)

    # Actors.

    def on_create(self, peer: Peer, request: int, actor: Actor, function: bytes | None) -> None:
        if function is not None:
            self._functions[actor.creation.function] = function
        name = (actor.namespace, actor.name)
        if actor.name and name in self._names:
            existing = self._actors[self._names[name]]
            if actor.get_if_exists:
                peer.send("done", request, existing.handle)
            else:
                text = f"the name {actor.name!r} is taken by another actor"
                peer.send("refused", request, _errors.ActorAlreadyExistsError(text))
            return
        if problem := self.resources.impossible(actor.creation.resources):
            peer.send("refused", request, problem)
            return
        self._actors[actor.id] = actor
        if actor.name:
            self._names[name] = actor.id
        peer.send("done", request, actor.handle)
        self._dispatch()

    def _pump(self, actor: Actor) -> None:
        """Starts the actor when its resources are free, and sends the calls whose arguments are there, in order."""
        if actor.dead:
            return
        if actor.process is None:
            ready = self._arguments(actor.creation)
            if ready is None:
                return
            if isinstance(ready, _values.Stored):
                self._bury(actor, ready)
                return
            if not self.resources.take(actor.creation):
                return
            actor.process = self._fork(actor.creation.setup, actor.creation)
            actor.process.actor = actor
            actor.process.post("actor", actor, self._functions[actor.creation.function], ready)
        while actor.calls:
            call = actor.calls[0]
            values = self._arguments(call)
            if values is None:
                return
            actor.calls.popleft()
            if isinstance(values, _values.Stored):
                self._fail(call.returns, values)
                continue
            actor.running.append(call)
            actor.process.post("call", call, values)

    def on_call(self, peer: Peer, actor_id: str, call: Call) -> None:
        actor = self._actors.get(actor_id)
        if actor is None or actor.dead:
            self._fail(call.returns, actor.death if actor and actor.death else died("the actor has ended", actor_id))
            return
        actor.calls.append(call)
        self._pump(actor)

    def on_called(self, peer: Peer, returns: tuple[str, ...]) -> None:
        if peer.process is not None and (actor := peer.process.actor) is not None:
            actor.running = [call for call in actor.running if call.returns != returns]

    def on_failed_to_start(self, peer: Peer, stored: _values.Stored) -> None:
        if peer.process is not None and (actor := peer.process.actor) is not None:
            self._bury(actor, stored)
            peer.process.kill()

    def on_named(self, peer: Peer, request: int, namespace: str, name: str) -> None:
        found = self._names.get((namespace, name))
        if found is None:
            peer.send("refused", request, f"no actor is named {name!r}; use .options(name={name!r}).remote()")
        else:
            peer.send("done", request, self._actors[found].handle)

    def on_names(self, peer: Peer, request: int) -> None:
        peer.send("done", request, [{"namespace": namespace, "name": name} for namespace, name in self._names])

    def on_kill(self, peer: Peer, actor_id: str, no_restart: bool) -> None:
        actor = self._actors.get(actor_id)
        if actor is None or actor.dead:
            return
        if no_restart:
            actor.restarts = 0
        process = actor.process
        if process is None or no_restart:
            self._bury(actor, died("the actor was killed with ray.kill()", actor.id))
        if process is not None:
            process.kill()

    def on_exhausted(self, peer: Peer, actor_id: str) -> None:
        """The last handle of an actor is gone: it ends after the calls that it has."""
        actor = self._actors.get(actor_id)
        if actor is not None and not actor.dead and actor.process is not None:
            actor.restarts = 0
            actor.process.post("exit")

    def on_resources(self, peer: Peer, request: int) -> None:
        peer.send("done", request, self.resources.free())

    def _bury(self, actor: Actor, why: _values.Stored) -> None:
        actor.dead, actor.death = True, why
        self._names = {name: each for name, each in self._names.items() if each != actor.id}
        calls = [*actor.running, *actor.calls]
        actor.running, actor.calls = [], deque()
        for call in calls:
            self._fail(call.returns, why)

    # Processes.

    def _fork(self, setup: bytes, holder: Task) -> Process:
        if self._host is None or not self._host.alive:
            self._host = Host(PROGRAM)
        process = Process.start(self._host, setup, self.path, holder)
        self._processes[process.id] = process
        watch(process, self._ended)
        return process

    def _ended(self, process: Process, how: str) -> None:
        with self._lock:
            self._processes.pop(process.id, None)
            process.give_back(self.resources)
            if self._closed:
                return
            if task := process.task:
                self._task_died(task, how)
            if (actor := process.actor) and not actor.dead:
                self._actor_died(actor, how)
            self._dispatch()

    def _task_died(self, task: Task, how: str) -> None:
        if task.cancelled:
            self._fail(task.returns, cancelled())
        elif task.retries != 0 and not all(ref in self._values for ref in task.returns):
            task.retries -= 1
            self._queue.append(task)
        else:
            error = _errors.WorkerCrashedError(f"the process of task {task.name}() {how}")
            self._fail(task.returns, _values.store(error, True)[0])

    def _actor_died(self, actor: Actor, how: str) -> None:
        text = f"the process of actor {actor.handle[1]} {how}"
        if actor.restarts == 0:
            self._bury(actor, died(text, actor.id))
            return
        why = _values.store(_errors.ActorUnavailableError(f"{text}; it restarts", actor.id), True)[0]
        actor.restarts -= 1
        actor.process = None
        running, actor.running = actor.running, []
        for call in running:
            self._fail(call.returns, why)


_NOBODY = Peer(None)  # type: ignore[arg-type]


def died(text: str, actor_id: str) -> _values.Stored:
    return _values.store(_errors.ActorDiedError(text, actor_id), True)[0]


def cancelled() -> _values.Stored:
    return _values.store(_errors.TaskCancelledError("the task was cancelled"), True)[0]


def _free(stored: _values.Stored) -> None:
    if stored.fd >= 0 and stored.pid == os.getpid():
        os.close(stored.fd)
