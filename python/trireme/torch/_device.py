from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from trireme._context import TrainContext
from trireme._session import current_session

if TYPE_CHECKING:
    import torch


def get_device() -> torch.device:
    """Return the first device of this worker, or the CPU."""
    return devices_of(current_session("get_device").context)[0]


def get_devices() -> list[torch.device]:
    """Return all devices of this worker, or the CPU if it has no GPU."""
    return devices_of(current_session("get_devices").context)


def devices_of(context: TrainContext) -> list[torch.device]:
    import torch

    if context._path is None:  # local mode: nothing was assigned
        return [torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")]
    # A worker without GPUs must not ask torch, which would initialize the driver.
    if not context._gpus:
        return [torch.device("cpu")]
    kind = _device_type()
    if kind == "cpu":
        warnings.warn(
            f"this worker holds GPU {', '.join(context._gpus)}, but torch {torch.__version__} finds no device, so it "
            "computes on the CPU; install a build of torch for this GPU, or check the driver",
            stacklevel=3,
        )
        return [torch.device("cpu")]
    return [torch.device(kind, context._visible_gpus.index(gpu)) for gpu in context._gpus]


def _device_type() -> str:
    import torch

    if torch.cuda.is_available():
        return "cuda"
    # Other accelerators (torch 2.6).
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None and accelerator.is_available():
        kind: str = accelerator.current_accelerator().type
        return kind
    return "cpu"
