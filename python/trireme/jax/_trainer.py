from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from trireme._config import ConfigError
from trireme._extras import require_package
from trireme._result import Result
from trireme._trainer import DataParallelTrainer, TrainerOptions, backend_config
from trireme.jax._compiled_folder import compiled_folder
from trireme.jax._config import TESTED, JaxConfig


class JaxTrainer(DataParallelTrainer):
    """Runs a JAX training function on many workers, with jax.distributed initialized on each: `jax.devices()` are the
    devices of all workers, `jax.local_devices()` those of this one.

    options: of DataParallelTrainer.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        jax_config: JaxConfig | None = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        require_package("jax", tested=TESTED)
        config = backend_config("jax_config", jax_config, JaxConfig)
        super().__init__(train_loop_per_worker, backend_config=config, **options)
        if config.use_gpu and not self.scaling_config.num_gpus_per_worker:
            raise ConfigError(
                "JaxConfig(use_gpu=True): the workers have no GPUs; pass scaling_config=ScalingConfig(use_gpu=True)"
            )

    def fit(self) -> Result:
        config = self.backend_config
        assert isinstance(config, JaxConfig)
        config._compiled_folder = compiled_folder()
        return super().fit()
