"""What an attempt leaves in the memory of a process that is kept for the next one. Does not import torch."""

from __future__ import annotations

import gc
import sys
from typing import Any


def collect_garbage() -> None:
    """Frees objects in reference cycles, such as models, and the code that torch.compile has cached for them."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and hasattr(dynamo, "reset"):  # otherwise its import has not finished
        dynamo.reset()
    gc.collect()


def device_in_use() -> Any:
    """torch's module of the accelerator that this process has initialized, such as torch.cuda; None: it has not."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    module = torch.cuda
    if hasattr(torch, "accelerator"):
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is None:
            return None
        module = torch.get_device_module(accelerator)
    return module if hasattr(module, "is_initialized") and module.is_initialized() else None


def clear_device(module: Any) -> None:
    """Frees the memory of the attempt on the device. Raises the error of a failed kernel: it stays in the process, and
    every later operation would raise it too.
    """
    collect_garbage()
    for index in _own_devices(module):
        module.synchronize(index)
    if hasattr(module, "empty_cache"):
        module.empty_cache()


def _own_devices(module: Any) -> list[int]:
    """The devices that this process uses. Synchronizing another one would allocate a context there."""
    import torch

    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if module is torch.cuda and has_context is not None:
        return [index for index in range(module.device_count()) if has_context(index)]
    return [module.current_device()]
