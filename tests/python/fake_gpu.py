"""The test device of tests/cpp/fake_gpu.cpp. It stays in the process that loads it: use it in workers only."""

from __future__ import annotations

import ctypes
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cpp_programs import BUILD

LIBRARY = BUILD / "tests/libfake_gpu.so"


class Counts(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "copies_to_host",
            "copies_to_pageable",
            "copies_on_first_stream",
            "waits",
            "registered",
            "unregistered",
            "recorded",
        )
    ]


class FakeGpu:
    def __init__(self) -> None:
        import torch

        self._library = ctypes.CDLL(str(LIBRARY))
        self._library.fake_gpu_counts.restype = Counts
        self._library.fake_gpu_await_waits.argtypes = [ctypes.c_int64]
        self._library.cudaHostRegister.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
        self._library.cudaHostUnregister.argtypes = [ctypes.c_void_p]
        module: Any = types.ModuleType("torch.fakegpu")
        module.is_available = lambda: True
        module.device_count = lambda: 1
        module.current_device = lambda: 0
        module._is_in_bad_fork = lambda: False
        module.cudart = lambda: self._library
        torch.utils.rename_privateuse1_backend("fakegpu")
        torch._register_device_module("fakegpu", module)  # type: ignore[no-untyped-call]
        self.device = torch.device("fakegpu:0")

    def counts(self) -> dict[str, int]:
        counts = self._library.fake_gpu_counts()
        return {name: getattr(counts, name) for name, _ in Counts._fields_}  # type: ignore[misc]

    def close_gate(self) -> None:
        """Work on the current stream waits from now on."""
        self._library.fake_gpu_close_gate()

    @contextmanager
    def opened_by_a_wait(self) -> Iterator[None]:
        """The gate opens when the program waits for the device."""
        waits = self.counts()["waits"]

        def open_it() -> None:
            self._library.fake_gpu_await_waits(waits + 1)
            self._library.fake_gpu_open_gate()

        opener = threading.Thread(target=open_it)
        opener.start()
        yield
        opener.join()
