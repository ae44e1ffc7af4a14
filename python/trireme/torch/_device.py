from __future__ import annotations

import os
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

    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    if context._path is None:  # local mode: nothing was assigned
        return [torch.device("cuda", torch.cuda.current_device())]
    visible = [entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    # torch numbers devices by their position in CUDA_VISIBLE_DEVICES.
    places = [visible.index(str(gpu)) if str(gpu) in visible else gpu for gpu in context._gpus]
    return [torch.device("cuda", place) for place in places] or [torch.device("cpu")]
