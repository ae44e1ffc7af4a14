"""Makes a worker able to tell where it is, whatever it hangs in: Python's frames by faulthandler, without its lock."""

from __future__ import annotations

import faulthandler
import os
import signal
import site
import sysconfig

from trireme import _core

# The core asks threads for their native frames with the signal before this one.
DUMP_SIGNAL = signal.SIGRTMIN + 7


def prepare() -> None:
    """Once in a worker, on its main thread, before the user's code. The file stays open for as long as the process."""
    faulthandler.enable(2)  # a crash in native code shows the Python lines that led to it, in the worker's log
    dump = os.memfd_create("trireme_stacks")
    faulthandler.register(DUMP_SIGNAL, file=dump, all_threads=True, chain=False)
    _core.prepare_stacks()
    _core.set_python_dump(DUMP_SIGNAL, dump, _library_folders())


def _library_folders() -> list[str]:
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    own = os.path.dirname(os.path.abspath(__file__))
    return [*folders, *site.getsitepackages(), site.getusersitepackages(), own]
