from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Unpack

from trireme._config import ConfigError
from trireme._result import Result
from trireme._trainer import DataParallelTrainer, TrainerOptions, backend_config
from trireme.tensorflow._cluster import check_size, has_servers
from trireme.tensorflow._config import TensorflowConfig, require_tensorflow


class TensorflowTrainer(DataParallelTrainer):
    """Runs a TensorFlow training function on many workers, with TF_CONFIG set on each.

    options: of DataParallelTrainer.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        tensorflow_config: TensorflowConfig | None = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        config = backend_config("tensorflow_config", tensorflow_config, TensorflowConfig)
        super().__init__(train_loop_per_worker, backend_config=config, **options)

    def fit(self) -> Result:
        require_tensorflow()
        config = self.backend_config
        assert isinstance(config, TensorflowConfig)
        scaling = self.scaling_config
        if scaling.max_workers > 0:
            check_size(config.roles, scaling.min_workers, scaling.max_workers)
            if has_servers(config.roles) and self.datasets:
                raise ConfigError(
                    "TensorflowTrainer(datasets=...) and parameter servers exclude each other: TensorFlow reads the "
                    "data in the servers, which cannot run Python; create a tf.data.Dataset of files with "
                    "ClusterCoordinator.create_per_worker_dataset()"
                )
            _check_environment({**os.environ, **self._variables_of_workers()})
        return super().fit()

    def _variables_of_workers(self) -> dict[str, str]:
        variables: dict[str, str] = (self.run_config.worker_runtime_env or {}).get("env_vars", {})
        return variables


def _check_environment(variables: dict[str, str]) -> None:
    if given := variables.get("TF_CONFIG"):
        raise ConfigError(
            f"TF_CONFIG is already set, to {given}: TensorflowTrainer sets it on every worker, to the addresses of the "
            "run's own cluster; remove it from the environment, or train without TensorflowTrainer"
        )
