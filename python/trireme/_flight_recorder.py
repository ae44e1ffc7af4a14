"""Where torch writes the dump of its flight recorder, the last collective operations of a rank, when one times out."""

from __future__ import annotations

import os

from trireme._context import TrainContext

_SETTINGS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")  # the newer name is preferred by torch


def keep_flight_records(context: TrainContext) -> None:
    """In the run folder, where the controller looks for them, unless the user has chosen another place."""
    if context._path is None or any(name in os.environ for name in _SETTINGS):
        return
    folder = os.path.join(context._path, "stacks")
    if context._gpus:  # only NCCL writes dumps
        os.makedirs(folder, exist_ok=True)
    for name in _SETTINGS:
        os.environ[name] = os.path.join(folder, "flight_recorder_rank_")
