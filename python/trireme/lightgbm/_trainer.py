from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from trireme._boosting._trainer import BoostingTrainer
from trireme._checkpoint import Checkpoint
from trireme._config import DataConfig, RunConfig, ScalingConfig
from trireme.lightgbm._config import LightGBMConfig

_EVALS = "pass the datasets to evaluate as datasets={name: ...}; each is reported as '<name>-<metric>'"


class LightGBMTrainer(BoostingTrainer):
    """Trains LightGBM models on many workers.

    With train_loop_per_worker, every worker runs that function, which calls lightgbm.train() or a scikit-learn
    estimator of LightGBM on its own rows; get_network_params() returns the addresses of the others.

    With params, label_column and datasets={"train": ..., ...}, the trainer has its own loop. It reports the metrics of
    all datasets but "train" after every round, saves checkpoints as CheckpointConfig(checkpoint_frequency,
    checkpoint_at_end) say, and resumes from them. Every worker evaluates the complete datasets, because LightGBM does
    not combine the metrics of workers.

    num_boost_round: number of rounds; default 10.
    weight_column: weights of the rows. group_column: the query of each row, for ranking: a query's rows stay together.
    train_kwargs: feval and callbacks of lightgbm.train(), and early_stopping_rounds.
    """

    _library = "lightgbm"
    _accepted: ClassVar = ("feval", "early_stopping_rounds", "callbacks")
    _refused: ClassVar = {
        "valid_sets": _EVALS,
        "valid_names": _EVALS,
        "train_set": 'pass datasets={"train": ...}',
        "init_model": "pass resume_from_checkpoint",
    }

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None = None,
        *,
        train_loop_config: dict[str, Any] | None = None,
        lightgbm_config: LightGBMConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: Any = None,
        params: dict[str, Any] | None = None,
        label_column: str | None = None,
        num_boost_round: int | None = None,
        weight_column: str | None = None,
        group_column: str | None = None,
        **train_kwargs: Any,
    ) -> None:
        if lightgbm_config is not None and not isinstance(lightgbm_config, LightGBMConfig):
            raise TypeError(f"lightgbm_config must be a LightGBMConfig, got {lightgbm_config!r}")
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=lightgbm_config or LightGBMConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
            validation_config=validation_config,
            own_loop={
                "params": params,
                "label_column": label_column,
                "num_boost_round": num_boost_round,
                "weight_column": weight_column,
                "group_column": group_column,
                "train_kwargs": train_kwargs,
            },
        )

    @staticmethod
    def get_model(checkpoint: Checkpoint) -> Any:
        """The Booster in a checkpoint."""
        from trireme.lightgbm._report import ReportCallback

        return ReportCallback.get_model(checkpoint)

    @staticmethod
    def _loop() -> Callable[..., Any]:
        from trireme.lightgbm._start_loop import start_loop

        return start_loop
