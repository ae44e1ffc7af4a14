"""The host that a worker's function processes are forked from. It is forked while the worker has one thread."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
from typing import NamedTuple

# Set for workers whose datasets have functions: the default number of processes per function.
VARIABLE = "TRIREME_FUNCTION_HOST"


class Forked(NamedTuple):
    sock: socket.socket
    pid: int


_forked: Forked | None = None


def fork_host() -> None:
    """Called once in a worker, before anything starts a thread."""
    global _forked
    from trireme._zygote import flush, thread_count

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
            from trireme._process_host import serve_for

            serve_for(theirs, worker, "trireme.data._function_process:call_functions")
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    theirs.close()
    _forked = Forked(ours, pid)
    atexit.register(_end_unused)


def take_host() -> Forked | None:
    """Passes ownership of the host to the caller."""
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
