from __future__ import annotations

from typing import Any

import torch.distributed as dist


def process_group_ready(caller: str) -> None:
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            f"{caller}() needs torch.distributed, which is not initialised: use trireme.torch.TorchTrainer with "
            "num_workers of at least 1, or call torch.distributed.init_process_group() first"
        )


def gathered(value: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
    """Of all ranks of the group."""
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group)
    return values
