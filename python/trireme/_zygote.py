"""The warm process that Python workers are forked from: `python -m trireme._zygote`, started by the driver.

It imports frameworks, runs none of their operations and stays single-threaded, because a fork copies only one thread:
a lock held by another thread would stay locked in the worker forever. It forks between imports, never during one. After
an import that failed midway, or that initialized a GPU driver, it restarts in a new interpreter without that module:
otherwise every worker would inherit the partial import, or a driver that does not work after a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time
import types
from collections.abc import Mapping
from typing import Any, NoReturn

from trireme._giving_way import giving_way
from trireme._gpu_drivers import initialized_driver
from trireme._preload import LATER
from trireme._zygote_channel import Channel, DriverGone

_PR_SET_PDEATHSIG = 1
_IDLE_MS = 500

# Prefixes of environment variables that these modules read once, on import.
_SETTINGS = ("TORCH", "PYTORCH_", "INDUCTOR_", "AOT", "PARTITIONER_", "SYMPY_")
# Those that the libraries of a framework read when they are loaded, for example the choice of the CUDA allocator.
_READ_ON_LOAD = {
    "torch": ("PYTORCH_",),
    "tensorflow": ("TF_USE_LEGACY_KERAS", "TF_ENABLE_ONEDNN_OPTS", "TF_XLA_FLAGS"),
    "keras": ("KERAS_",),
    "jax": ("JAX_",),
}
# Read on each use. The engine sets the first one in this process, so that torch.cuda.is_available() does not initialize
# CUDA. torch itself sets the second one in a driver that loads its compiler: later workers must still be forked. JAX
# has a function that sets the third one later.
_READ_ON_USE = ("PYTORCH_NVML_BASED_CUDA_CHECK", "TORCHINDUCTOR_CACHE_DIR", "JAX_PLATFORMS")
# Imports the modules that read all of them.
_READER = "torch._dynamo"
# A thread that an import has started and joined is listed a little longer.
_THREAD_PATIENCE_S = 0.2
_libc = ctypes.CDLL(None, use_errno=True)


class Zygote:
    def __init__(self, channel: Channel, driver_pidfd: int, kept: dict[str, Any] | None = None) -> None:
        """kept: the state from an earlier interpreter of this process; see _start_over()."""
        self._channel = channel
        self._driver_pidfd = driver_pidfd
        self._started_with = dict(os.environ)
        self._children: dict[int, int] = {}  # pidfd -> pid
        self._imported: list[str] = []
        self._failed: dict[str, str] = {}
        self._later: list[str] = []
        self._settings: dict[str, str] | None = None  # of the workers so far, or those that _later modules have read
        self._read: dict[str, dict[str, str]] = {}  # by framework
        self._driver_from_the_start = initialized_driver()
        self._poisonous: set[str] = set()  # modules that have initialized a driver
        self._deeper = False
        self._poll = select.poll()
        self._poll.register(channel.sock, select.POLLIN)
        self._poll.register(driver_pidfd, select.POLLIN)
        self._kept = kept

    def serve(self) -> None:
        """Returns when the driver has exited, after killing all children."""
        try:
            if self._kept is not None:
                self._resume(self._kept)
            self._channel.send({"op": "ready", "pid": os.getpid()})
            idle_ms = _IDLE_MS
            while True:
                waits = self._later and self._settings is not None
                ready = {fd for fd, _ in self._poll.poll(idle_ms if waits else None)}
                if not ready:
                    self._import_one_more()
                    idle_ms = 0
                    continue
                idle_ms = _IDLE_MS
                if self._driver_pidfd in ready:
                    return
                for pidfd in ready & self._children.keys():
                    self._reap(pidfd)
                if self._channel.sock.fileno() in ready:
                    self._handle(*self._channel.receive())
        except DriverGone:
            return
        finally:
            self._kill_children()

    def _resume(self, kept: dict[str, Any]) -> None:
        for pid in kept["children"]:
            self._watch(pid)
        self._failed = kept["failed"]
        self._settings = kept["settings"]
        self._preload(kept, kept["answer"])

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        try:
            if message["op"] == "preload":
                self._preload(message)
            elif message["op"] == "fork":
                self._fork(message, fds[0])
        finally:
            for fd in fds:
                os.close(fd)

    def _preload(self, message: dict[str, Any], answer: bool = True) -> None:
        for entry in reversed(message.get("sys_path", [])):
            if entry not in sys.path:
                sys.path.insert(0, entry)
        self._adopt_settings(message.get("env", {}))
        wanted = [name for name in message["modules"] if name not in self._imported and name not in self._failed]
        for index, name in enumerate(wanted):
            if not self._import(name):
                self._start_over(name, wanted[index + 1 :], answer)
            if name in self._imported:
                self._later += [later for later in LATER.get(name, ()) if later not in self._failed]
            if _READER in sys.modules and not self._deeper:
                self._deeper, self._settings = True, _settings_of(os.environ)
        if answer:
            told = {"op": "preloaded", "modules": self._imported, "failed": self._failed, "threads": thread_count()}
            self._channel.send(told)

    def _adopt_settings(self, env: Mapping[str, str]) -> None:
        """The driver's script may set variables before it imports a framework, after this process was started."""
        for framework, names in _READ_ON_LOAD.items():
            if env and framework not in sys.modules:
                for variables in (os.environ, self._started_with):
                    for name in _settings_of(variables, names):
                        del variables[name]
                    variables.update(_settings_of(env, names))

    def _import_one_more(self) -> None:
        """Imports in the background, so that replacement workers start faster."""
        if not self._deeper:
            self._deeper = True
            for name in _settings_of(os.environ):
                del os.environ[name]
            os.environ.update(self._settings or {})
        name = self._later.pop(0)
        with giving_way(self._poll):
            whole = self._import(name, listed=False)
        if not whole:
            self._start_over(name, [], answer=False)

    def _import(self, name: str, listed: bool = True) -> bool:
        """False if workers must not inherit the module: the import failed midway, or initialized a GPU driver. A module
        that does not exist leaves nothing behind and returns True."""
        threads = thread_count()
        # Before the import, which may set some of them.
        missing = [framework for framework in _READ_ON_LOAD if framework not in self._read]
        read = {framework: _settings_of(os.environ, _READ_ON_LOAD[framework]) for framework in missing}
        try:
            _load(name)
        except BaseException as error:  # including SystemExit: the worker then imports the module itself
            self._failed[name] = f"{type(error).__name__}: {error}"
            return _is_absent(name, error)
        if not self._driver_from_the_start and (driver := initialized_driver()):
            self._poisonous.add(name)
            self._failed[name] = (
                f"its import initialized {driver}, which does not work after a fork; to start workers faster, move "
                "calls such as torch.cuda.get_device_name() into the training function"
            )
            return False
        if threads == 1 and _starts_threads():
            self._poisonous.add(name)
            self._failed[name] = "its import started a thread, which a fork would not copy"
            return False
        self._read.update({framework: found for framework, found in read.items() if framework in sys.modules})
        if listed:
            self._imported.append(name)
        return True

    def _start_over(self, broken: str, more: list[str], answer: bool) -> NoReturn:
        """Restarts the interpreter in this process, which stays the parent of its workers, and imports the rest again.

        The partially imported package is removed from `sys.modules` but its submodules are still there: importing it
        again would give a new package without them.
        """
        why = self._failed[broken]
        if broken not in self._poisonous:
            why = f"its import failed midway: {why}"
        self._channel.send({"op": "replacing", "module": broken, "why": why})
        kept = {
            "children": list(self._children.values()),
            "failed": self._failed,
            "settings": self._settings,
            "sys_path": sys.path,
            "modules": [*self._imported, *more],
            "answer": answer,
        }
        flush()
        self._channel.sock.set_inheritable(True)
        variables = {
            "TRIREME_ZYGOTE_FD": str(self._channel.sock.fileno()),
            "TRIREME_ZYGOTE_KEPT": str(_write_memory("trireme_zygote", json.dumps(kept))),
        }
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**self._started_with, **variables})

    def _fork(self, request: dict[str, Any], log_fd: int) -> None:
        if why := self._unfit_to_fork():
            self._channel.send({"op": "refused", "id": request["id"], "why": why})
            return
        settings = _settings_of(request["env"])
        if not self._deeper:
            self._settings = settings
        fits = settings == self._settings and all(
            _settings_of(request["env"], _READ_ON_LOAD[framework]) == read for framework, read in self._read.items()
        )
        gc.freeze()  # the collector must not write to pages shared by parent and children
        flush()
        zygote_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._close_in_child()
            _become_worker(request, log_fd, zygote_pid, fits)
        self._channel.send({"op": "forked", "id": request["id"], "pid": pid}, (self._watch(pid),))

    def _unfit_to_fork(self) -> str:
        """The reason why workers cannot be forked; empty: they can."""
        imported = ", ".join(self._imported) or "nothing"
        if (threads := thread_count()) != 1:
            return f"{threads} threads after importing {imported}"
        if driver := self._driver_from_the_start:
            return (
                f"{driver} is initialized when Python starts, before anything is imported, and does not work after a "
                "fork; look for it in sitecustomize, .pth files and LD_PRELOAD"
            )
        if driver := initialized_driver():
            return f"{driver} is initialized after importing {imported}, and does not work after a fork"
        return ""

    def _watch(self, pid: int) -> int:
        pidfd = os.pidfd_open(pid)  # only this process reaps the child, so the pid is still valid
        self._children[pidfd] = pid
        self._poll.register(pidfd, select.POLLIN)
        return pidfd

    def _close_in_child(self) -> None:
        self._channel.sock.close()
        for fd in (self._driver_pidfd, *self._children):
            os.close(fd)

    def _reap(self, pidfd: int) -> None:
        pid = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        left = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if left is None or left.si_status != 0:
            # It may have exited because the driver did, before this process noticed: then no other process would kill
            # its children. Its pid is valid until it is reaped.
            self._kill_with_children({pid})
        _, status = os.waitpid(pid, 0)
        self._channel.send({"op": "exit", "pid": pid, "status": status})

    def _kill_children(self) -> None:
        self._kill_with_children(set(self._children.values()))

    def _kill_with_children(self, workers: set[int]) -> None:
        for pid in workers:
            # The group includes the worker's children; before the worker calls setsid() only the pid exists.
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)
        # Processes that have left the group, for example by job control.
        for pid in _in_sessions(workers):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _load(name: str) -> None:
    """Imports a module, or the one that a package loads when this attribute of it is used."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        package, _, attribute = name.rpartition(".")
        if error.name != name or not hasattr(sys.modules.get(package), attribute):
            raise


def _starts_threads() -> bool:
    deadline = time.monotonic() + _THREAD_PATIENCE_S
    while (several := thread_count() > 1) and time.monotonic() < deadline:
        time.sleep(0.01)
    return several


def _is_absent(name: str, error: BaseException) -> bool:
    """Whether the module or its parent package was not found, so that none of its code ran."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or not f"{name}.".startswith(f"{error.name}."):
        return False
    package = error.name.rpartition(".")[0]
    return not package or package in sys.modules


def _write_memory(name: str, text: str) -> int:
    """A descriptor of an in-memory file that a program executed in this process inherits."""
    fd = os.memfd_create(name, 0)
    with open(fd, "w", encoding="utf-8", closefd=False) as file:
        file.write(text)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _in_sessions(leaders: set[int]) -> list[int]:
    found: list[int] = []
    for name in os.listdir("/proc") if leaders else ():
        with contextlib.suppress(OSError, ValueError):
            with open(f"/proc/{int(name)}/stat", errors="replace") as file:
                session = int(file.read().rpartition(") ")[2].split()[3])
            if session in leaders:
                found.append(int(name))
    return found


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _settings_of(env: Mapping[str, str], prefixes: str | tuple[str, ...] = _SETTINGS) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(prefixes) and name not in _READ_ON_USE}


def _become_worker(request: dict[str, Any], log_fd: int, zygote_pid: int, fits: bool) -> NoReturn:
    code = 1
    try:
        os.setsid()
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != zygote_pid:
            os._exit(1)
        _set_streams(log_fd)
        gc.enable()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(request["env"])
        os.environ["TRIREME_WORKER"] = "1"
        os.chdir(request["cwd"])
        if not fits:
            _start_afresh(request["ticket"])
        sys.modules["__main__"] = types.ModuleType("__main__")  # the user's __main__ is pickled by value
        _reseed()
        _set_thread_counts()
        from trireme import _worker

        code = _worker.main(request["ticket"])
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _exit(code)


def _start_afresh(ticket: str) -> NoReturn:
    """Restarts the interpreter, because the imported modules have read other settings than this worker's."""
    from trireme._runtime import _python_command

    os.environ["TRIREME_TICKET_FD"] = str(_write_memory("trireme_ticket", ticket))
    command = [*_python_command(), "-m", "trireme._worker"]
    os.execv(command[0], command)


def _set_streams(log_fd: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(null)
    # The descriptors belong to the process, not to these objects.
    sys.stdin = sys.__stdin__ = _stream(0, "r")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w")  # type: ignore[misc]


def _stream(fd: int, mode: str) -> Any:
    return open(fd, mode, buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _reseed() -> None:
    """Seeds the generators that a new process seeds differently from any other."""
    random.seed()
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()


def _set_thread_counts() -> None:
    """Libraries read these variables once on load, which happened in the zygote with its environment."""
    threads = _number("OMP_NUM_THREADS")
    if threads and (torch := sys.modules.get("torch")):
        torch.set_num_threads(threads)
    threads = _number("OPENBLAS_NUM_THREADS") or threads
    if threads and "numpy" in sys.modules:
        _set_openblas_threads(threads)


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() and int(text) > 0 else None


def _set_openblas_threads(threads: int) -> None:
    """NumPy and SciPy bundle their own copies with their own symbol names and no Python API for this."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if "openblas" in line}
    for path in paths:
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_set_num_threads", "openblas_set_num_threads"):
            if setter := getattr(library, name + "64_", None) or getattr(library, name, None):
                setter(threads)
                break


def _exit(code: int) -> NoReturn:
    """Runs the interpreter's exit steps without tearing down modules whose pages are still shared."""
    import atexit
    import threading

    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        flush()
        os._exit(code)


def _driver_pid(sock: socket.socket) -> int:
    """The process that created the socket pair: unlike getppid() it is correct even if the driver has just died."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid or os.getppid()


def _read_kept() -> dict[str, Any] | None:
    fd = os.environ.pop("TRIREME_ZYGOTE_KEPT", None)
    if fd is None:
        return None
    with open(int(fd), encoding="utf-8") as file:
        kept: dict[str, Any] = json.load(file)
    return kept


def main() -> None:
    # Modules imported by user code check this and start nothing here.
    os.environ["TRIREME_WORKER"] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal belongs to the driver
    # Slurm signals all processes of a step. The workers would end with this process, before their last checkpoint.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sock = socket.socket(fileno=int(os.environ.pop("TRIREME_ZYGOTE_FD")))
    sock.set_inheritable(False)
    try:
        driver_pidfd = os.pidfd_open(_driver_pid(sock))
    except ProcessLookupError:
        return
    gc.disable()  # imports make little garbage, and the collector takes a tenth of their time
    # So that no worker has to.
    import trireme
    from trireme import _worker  # noqa: F401

    for name in trireme.__all__:
        getattr(trireme, name)

    # `-m` has put the current folder first; each request has its own sys.path.
    if not getattr(sys.flags, "safe_path", False) and sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    with contextlib.suppress(DriverGone):
        Zygote(Channel(sock), driver_pidfd, _read_kept()).serve()
    # Skip finalizers: those of frameworks may be slow, and there is nothing to save.
    os._exit(0)


if __name__ == "__main__":
    main()
