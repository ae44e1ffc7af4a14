"""Copies tensors from an accelerator to host memory: asynchronously, on a separate stream, with one wait for all.

Does not import torch: only called with its tensors.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any


def has_streams(device: Any) -> bool:
    """Whether the device is the machine's accelerator with streams; others are copied tensor by tensor."""
    module = getattr(sys.modules["torch"], "accelerator", None)  # since torch 2.6
    accelerator = module.current_accelerator() if module is not None else None
    return accelerator is not None and accelerator.type == device.type and device.type != "mps"


def copy_to_host(copies: Iterable[tuple[Any, int]]) -> None:
    """copies: tensors, and the addresses that their bytes are copied to, in row-major order."""
    torch = sys.modules["torch"]
    by_device: dict[Any, list[tuple[Any, int]]] = {}
    for tensor, address in copies:
        if tensor.numel() > 0:
            by_device.setdefault(tensor.device, []).append((tensor, address))
    copied = []
    for device, group in by_device.items():
        stream = _stream(device)
        # The values are those that the training has computed so far.
        stream.wait_stream(torch.accelerator.current_stream(device))
        with stream, torch.no_grad():
            for tensor, address in group:
                _at(torch, address, tensor).copy_(tensor, non_blocking=True)
        copied.append(stream.record_event())
    for event in copied:
        event.synchronize()


def pin(tensor: Any, address: int, size: int) -> Callable[[], object] | None:
    """Registers memory with the device's driver, which otherwise copies through memory of its own. Returns the function
    that ends it; None if the driver has no such function or refuses."""
    module = sys.modules["torch"].get_device_module(tensor.device)
    runtime = getattr(module, "cudart", None)  # ROCm has it too
    if runtime is None:
        return None
    error = int(runtime().cudaHostRegister(address, size, 0))
    if error != 0:
        print(
            f"could not register {size} bytes of host memory for copies from {tensor.device} (cudaHostRegister: error "
            f"{error}): snapshots take longer; check the limit of locked memory (ulimit -l)",
            file=sys.stderr,
            flush=True,
        )
        return None
    return lambda: runtime().cudaHostUnregister(address)


@functools.cache
def _stream(device: Any) -> Any:
    return sys.modules["torch"].Stream(device=device)


def _at(torch: Any, address: int, tensor: Any) -> Any:
    """A tensor like the given one in host memory."""
    memory = (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype).view(tensor.shape)
