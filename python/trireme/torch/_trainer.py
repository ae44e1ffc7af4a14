from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from trireme._trainer import DataParallelTrainer, TrainerOptions, backend_config
from trireme.torch._config import TorchConfig


class TorchTrainer(DataParallelTrainer):
    """Runs a PyTorch training function on many workers, with torch.distributed initialised on each.

    options: of DataParallelTrainer.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        torch_config: TorchConfig | None = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        config = backend_config("torch_config", torch_config, TorchConfig)
        super().__init__(train_loop_per_worker, backend_config=config, **options)
