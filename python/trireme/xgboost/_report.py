"""ReportCallback: metrics and models of xgboost.train() become reports of the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import xgboost

from trireme._boosting._report import Metrics, RoundReporter, stored_model
from trireme._checkpoint import Checkpoint

FILENAME = "model.ubj"


class ReportCallback(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    """Reports the metrics of every round, and checkpoints with the model; see RoundReporter for the arguments."""

    CHECKPOINT_NAME = FILENAME

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = FILENAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self._reporter = RoundReporter(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)
        self._rounds = 0
        self._log: Any = None

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        self._rounds, self._log = model.num_boosted_rounds(), evals_log
        flat = {
            f"{dataset}-{metric}": values[-1][0] if isinstance(values[-1], tuple) else values[-1]
            for dataset, metrics in evals_log.items()
            for metric, values in metrics.items()
        }
        self._reporter.after_round(self._rounds, flat, model.save_model)
        return False

    def after_training(self, model: Any) -> Any:
        # XGBoost skips the remaining callbacks of a round when one of them ends the training.
        if self._log is not None and model.num_boosted_rounds() > self._rounds:
            self.after_iteration(model, -1, self._log)
        self._reporter.after_training(model.num_boosted_rounds(), model.save_model)
        return model

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = FILENAME) -> xgboost.Booster:
        """The model in a checkpoint of this callback or of XGBoostTrainer."""
        return stored_model(checkpoint, filename, "trireme.xgboost.ReportCallback", loaded)


def loaded(path: str) -> xgboost.Booster:
    return xgboost.Booster(model_file=path)
