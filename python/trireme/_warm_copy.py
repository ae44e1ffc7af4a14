"""A warm process made of the driver itself, where a script has imported its frameworks before it came to Trireme.

To import them again in a fresh process would double the time to the first worker. A copy is as good as a fresh process
that has imported the same, as long as the script has done nothing but import so far and no other thread runs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from collections.abc import Iterator

# What import statements leave behind, and constants. Anything else may hold a file, a lock, a folder to be removed.
_HARMLESS = (
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
    type(None),
    bool,
    int,
    float,
    str,
    bytes,
)

_ON_THE_WAY = ("trireme", "importlib", "_frozen_importlib", "_frozen_importlib_external")


def copy_driver(frameworks: list[str]) -> tuple[int, int] | None:
    """Pid of the copy and our end of its control socket; None where a fresh process is the better one."""
    if not frameworks or not all(name in sys.modules for name in frameworks) or not _only_imported_so_far():
        return None
    import socket

    from trireme import _zygote

    ours, theirs = socket.socketpair()
    _zygote.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _zygote.serve_as_copy(theirs)
    theirs.close()
    # Libraries that are prepared for a fork end their threads on the way into it (OpenBLAS does). Whatever still runs
    # now ran then too, and locks that it held are locked in the copy for ever.
    if _zygote.thread_count() != 1:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        ours.close()
        return None
    return pid, ours.detach()


def _only_imported_so_far() -> bool:
    if threading.active_count() != 1 or threading.current_thread() is not threading.main_thread():
        return False
    # A debugger or a profiler must not find itself in every worker.
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return False
    if (cuda := sys.modules.get("torch.cuda")) and cuda.is_initialized():
        return False
    script = vars(sys.modules["__main__"])
    if not _is_imported_by(script):
        return False
    names = {name for name in script if not (name.startswith("__") and name.endswith("__"))}
    return all(isinstance(script[name], _HARMLESS) for name in names) and not any(_modules_beside(script))


def _is_imported_by(script: dict[str, object]) -> bool:
    """Whether an import statement of the script itself has led here, and not a function, a test runner or a server."""
    frame: types.FrameType | None = sys._getframe()
    while frame and str(frame.f_globals.get("__name__")).partition(".")[0] in _ON_THE_WAY:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_name == "<module>" and frame.f_globals is script


def _modules_beside(script: dict[str, object]) -> Iterator[str]:
    """Modules of the user's own: workers import these afresh, with whatever the file says by then."""
    folder = os.path.dirname(os.path.abspath(str(script.get("__file__", "?"))))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # multiprocessing knows the script under a second name.
        if vars(module) is script or "." in name or not isinstance(file, str):
            continue
        home = os.path.dirname(os.path.abspath(file))
        if folder in (home, os.path.dirname(home) if hasattr(module, "__path__") else home):
            yield name
