"""Compiled functions, kept in files while the driver runs: neither a restart nor the next fit() compiles them again.

For workers on the CPUs of one machine. On GPUs, processes tune a function together while they compile it, so that all
of them or none must find it; a folder that they share does that (JAX_COMPILATION_CACHE_DIR).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pathlib
import tempfile
from typing import Any

import jax
from jax._src import compilation_cache, compiler
from jax._src.compilation_cache_interface import CacheInterface

from trireme._context import TrainContext
from trireme._patches import wrap
from trireme._rank_variables import one_host
from trireme.jax._config import TESTED

_MOST_BYTES = 1 << 30
_log = logging.getLogger(__name__)


def keep_compiled(folder: str, platforms: str, context: TrainContext) -> None:
    """folder: of the driver, so a worker on another machine does not have it. A user may have chosen another one, or
    JAX_ENABLE_COMPILATION_CACHE=0."""
    chosen = jax.config.jax_compilation_cache_dir or not jax.config.jax_enable_compilation_cache
    here = platforms == "cpu" and one_host(context) and os.path.isdir(folder)
    if chosen or not here or not jax.__version__.startswith(TESTED):
        return
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

    def get_file_cache(original: Any, path: str) -> Any:
        return (_Files(folder), path) if path == folder else original(path)

    wrap(compilation_cache, "get_file_cache", get_file_cache)
    wrap(compiler, "_cache_write", functools.partial(_write_on_every_rank, folder))


def _write_on_every_rank(
    folder: str, original: Any, key: str, seconds: float, name: str, backend: Any, executable: Any, callbacks: Any
) -> None:
    """JAX only writes those of rank 0, and a function has another key on every rank."""
    if jax.config.jax_compilation_cache_dir != folder:
        original(key, seconds, name, backend, executable, callbacks)
    elif not callbacks:  # they are addresses in this process
        try:
            compilation_cache.put_executable_and_time(key, name, executable, backend, int(seconds))
        except Exception as error:
            _log.info("%s is not kept for the next attempt: %s", name, error)


class _Files(CacheInterface):  # type: ignore[misc]
    """Other than JAX's own, it has no incomplete files: a process may be killed while it writes one."""

    def __init__(self, folder: str) -> None:
        self._path = pathlib.Path(folder)

    def get(self, key: str) -> bytes | None:
        try:
            return (self._path / key).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, key: str, value: bytes) -> None:
        if _size(self._path) + len(value) > _MOST_BYTES:
            return
        with tempfile.NamedTemporaryFile(dir=self._path, delete=False) as file:
            file.write(value)
        os.replace(file.name, self._path / key)


def _size(folder: pathlib.Path) -> int:
    size = 0
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # another rank has just renamed it
            size += entry.stat().st_size
    return size
