"""Finds GPU drivers that are initialized in this process: they do not work in a process that is forked from it."""

from __future__ import annotations

import contextlib
import ctypes
import os

_CUDA_NOT_INITIALIZED = 3
# ROCm's runtime opens it when it is initialized, and has no function that reports whether it is.
_ROCM_DEVICE = "/dev/kfd"


def initialized_driver() -> str:
    """The name of one; empty: none."""
    if _cuda_initialized():
        return "CUDA"
    return "ROCm" if _is_open(_ROCM_DEVICE) else ""


def _cuda_initialized() -> bool:
    """Whether cuInit() was called in this process. torch.cuda.is_initialized() does not notice if others called it."""
    try:
        library = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False  # not loaded
    code: int = library.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
    return code != _CUDA_NOT_INITIALIZED


def _is_open(path: str) -> bool:
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed again
            if os.readlink(f"/proc/self/fd/{fd}") == path:
                return True
    return False
