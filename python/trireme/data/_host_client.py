"""This process's connection to the host of its function processes; see _function_host.py."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading

from trireme._function_fork import take_host
from trireme._runtime import _python_command

_MESSAGE = 1 << 16


class Host:
    """Thread-safe. The host and its children exit when it is closed or this process exits."""

    def __init__(self, sock: socket.socket, pid: int, started: subprocess.Popen[bytes] | None = None) -> None:
        self.alive = True
        self._sock = sock
        self._pid = pid
        self._started = started
        self._owner = os.getpid()
        self._lock = threading.RLock()  # a destructor may run on the same thread while it is held
        self._numbers = 0

    @classmethod
    def connect(cls) -> Host:
        """The host that was forked with this worker, or a new one."""
        forked = take_host()
        return cls(forked.sock, forked.pid) if forked else cls._start()

    @classmethod
    def _start(cls) -> Host:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {
            **os.environ,
            "TRIREME_FUNCTION_HOST_FD": str(theirs.fileno()),
            # Keep both libraries from starting threads on import.
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [*_python_command(), "-m", "trireme.data._function_host"]
        started = subprocess.Popen(
            command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=2
        )
        theirs.close()
        return cls(ours, started.pid, started)

    @property
    def restartable(self) -> bool:
        return self._started is not None

    def fork(self, payload: bytes) -> tuple[int, socket.socket]:
        """A new function process: its number, and the socket for its requests."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        memory = os.memfd_create("trireme_setup")
        try:
            _write_all(memory, payload)
            os.lseek(memory, 0, os.SEEK_SET)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            with self._lock:
                self._numbers += 1
                number = self._numbers
                self._send(("fork", number), [theirs.fileno(), memory, 1, 2])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(memory)
        return number, ours

    def kill(self, number: int) -> None:
        with self._lock, contextlib.suppress(HostGone):
            self._send(("kill", number))

    def how_it_ended(self, number: int) -> str | None:
        """A description for messages. Kills the process if it is still running. None: the host has exited, too."""
        try:
            with self._lock:
                self._send(("how", number))
                data = self._sock.recv(_MESSAGE)
        except (OSError, HostGone):
            data = b""
        if not data:
            self.alive = False
            return None
        answered, ended = pickle.loads(data)
        if answered != number or ended is None:
            return "ended"
        pid, status = ended
        return f"(pid {pid}) {_status_text(status)}"

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

    def _send(self, request: tuple[str, int], fds: list[int] | None = None) -> None:
        try:
            socket.send_fds(self._sock, [pickle.dumps(request)], fds or [])
        except OSError as error:
            self.alive = False
            raise HostGone from error


class HostGone(Exception):
    """The host was killed or closed."""


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _status_text(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"died of {signal.Signals(-code).name}"
    except ValueError:
        return f"died of signal {-code}"
