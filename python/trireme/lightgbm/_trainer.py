from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Unpack

from trireme._boosting._trainer import EVALS, BoostingTrainer, LoopOptions
from trireme._checkpoint import Checkpoint
from trireme._trainer import backend_config
from trireme.lightgbm._config import LightGBMConfig


class LightGBMOptions(LoopOptions, total=False):
    feval: Callable[..., Any] | None


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
    evaluate_train: report the metrics of "train" too, as Ray Train does; each worker computes them of its own rows.
    categorical_columns: columns of strings or integers that are categories, besides those with Arrow dictionaries.
    params, feval, callbacks: as for lightgbm.train().
    early_stopping_rounds: stop if no metric has improved in this number of rounds.
    All other options are those of DataParallelTrainer.
    """

    _library = "lightgbm"
    _options = LightGBMOptions
    _refused: ClassVar = {
        "valid_sets": EVALS,
        "valid_names": EVALS,
        "train_set": 'pass datasets={"train": ...}',
        "init_model": "pass resume_from_checkpoint",
    }

    _function_params = ("objective", "objective_type", "app", "application", "loss")
    _function_arguments = "feval=... for a metric"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None = None,
        *,
        lightgbm_config: LightGBMConfig | None = None,
        **options: Unpack[LightGBMOptions],
    ) -> None:
        config = backend_config("lightgbm_config", lightgbm_config, LightGBMConfig)
        super().__init__(train_loop_per_worker, config, options)

    @staticmethod
    def get_model(checkpoint: Checkpoint) -> Any:
        """The Booster in a checkpoint."""
        from trireme.lightgbm._report import ReportCallback

        return ReportCallback.get_model(checkpoint)
