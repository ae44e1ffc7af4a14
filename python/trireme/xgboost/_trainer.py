from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Unpack

from trireme._boosting._trainer import EVALS, BoostingTrainer, LoopOptions
from trireme._checkpoint import Checkpoint
from trireme._trainer import backend_config
from trireme.xgboost._config import XGBoostConfig


class XGBoostOptions(LoopOptions, total=False):
    obj: Callable[..., Any] | None
    custom_metric: Callable[..., Any] | None
    maximize: bool | None
    verbose_eval: bool | int | None
    external_memory: bool | None


class XGBoostTrainer(BoostingTrainer):
    """Trains XGBoost models on many workers.

    With train_loop_per_worker, every worker runs that function, which calls xgboost.train() or a scikit-learn
    estimator of XGBoost on its own rows; the communicator is set up.

    With params, label_column and datasets={"train": ..., ...}, the trainer has its own loop. It reports the metrics of
    all datasets but "train" after every round, saves checkpoints as CheckpointConfig(checkpoint_frequency,
    checkpoint_at_end) say, and resumes from them.

    num_boost_round: number of rounds; default 10.
    weight_column: weights of the rows. group_column: the query of each row, for ranking: a query's rows stay together.
    evaluate_train: report the metrics of "train" too, as Ray Train does.
    categorical_columns: columns of strings or integers that are categories, besides those with Arrow dictionaries.
    external_memory: keep the quantized rows in temporary files instead of memory.
    early_stopping_rounds, obj, custom_metric, maximize, verbose_eval, callbacks: as for xgboost.train().
    All other options are those of DataParallelTrainer.
    """

    _library = "xgboost"
    _options = XGBoostOptions
    _refused: ClassVar = {
        "evals": EVALS,
        "dtrain": 'pass datasets={"train": ...}',
        "evals_result": "the metrics are in result.metrics_dataframe",
        "xgb_model": "pass resume_from_checkpoint",
    }

    _function_arguments = "obj=... for an objective, custom_metric=... for a metric,"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None = None,
        *,
        xgboost_config: XGBoostConfig | None = None,
        **options: Unpack[XGBoostOptions],
    ) -> None:
        super().__init__(
            train_loop_per_worker, backend_config("xgboost_config", xgboost_config, XGBoostConfig), options
        )

    @staticmethod
    def get_model(checkpoint: Checkpoint) -> Any:
        """The Booster in a checkpoint."""
        from trireme.xgboost._report import ReportCallback

        return ReportCallback.get_model(checkpoint)
