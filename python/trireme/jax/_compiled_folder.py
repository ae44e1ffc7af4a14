from __future__ import annotations

import atexit
import fcntl
import functools
import glob
import os
import shutil
import tempfile

_PREFIX = "trireme_jax_"


@functools.cache
def compiled_folder() -> str:
    """A folder of this driver for compiled functions, removed when it exits. Also removes those of killed drivers."""
    for folder in glob.glob(os.path.join(tempfile.gettempdir(), f"{_PREFIX}*")):
        if (fd := _lock(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(fd)
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    _lock(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _lock(folder: str) -> int | None:
    """Until this process ends, unless the descriptor is closed. None: another process has it, or another user."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
