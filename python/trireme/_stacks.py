"""Lets a worker report its stacks even when it hangs: faulthandler dumps Python frames without the GIL."""

from __future__ import annotations

import faulthandler
import os
import signal
import site
import sysconfig

from trireme import _core

# The core uses the signal before this one to dump native frames.
DUMP_SIGNAL = signal.SIGRTMIN + 7


def prepare() -> None:
    """Called once in a worker, on its main thread, before user code. The file stays open until the process exits."""
    faulthandler.enable(2)  # a crash in native code writes the Python stack to the worker's log
    dump = os.memfd_create("trireme_stacks")
    faulthandler.register(DUMP_SIGNAL, file=dump, all_threads=True, chain=False)
    _core.prepare_stacks()
    _core.set_python_dump(DUMP_SIGNAL, dump, _library_folders())


def _library_folders() -> list[str]:
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = os.path.dirname(os.path.abspath(__file__))
    return [*folders, *site.getsitepackages(), site.getusersitepackages(), own]
