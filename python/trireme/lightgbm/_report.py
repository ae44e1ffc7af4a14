"""ReportCallback: metrics and models of lightgbm.train() become reports of the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightgbm

from trireme._boosting._report import Metrics, RoundReporter, stored_model
from trireme._checkpoint import Checkpoint

FILENAME = "model.txt"

# Those whose training has not reached its last round. If it stops early, LightGBM calls them no more.
_unfinished: list[Any] = []


class ReportCallback:
    """Reports the metrics of every round, and checkpoints with the model; see RoundReporter for the arguments."""

    CHECKPOINT_NAME = FILENAME
    order = 20  # after evaluation is recorded, before early stopping raises
    before_iteration = False

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = FILENAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._reporter = RoundReporter(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)
        self._model: Any = None

    def __call__(self, env: Any) -> None:
        flat = {f"{each[0]}-{each[1]}": each[2] for each in env.evaluation_result_list or ()}
        self._model = env.model
        self._reporter.after_round(env.model.current_iteration(), flat, self._save)
        if self not in _unfinished:
            _unfinished.append(self)
        if env.iteration == env.end_iteration - 1:
            self._finish()

    def _save(self, path: str) -> None:
        self._model.save_model(path, num_iteration=-1)

    def _finish(self) -> None:
        _unfinished.remove(self)
        self._reporter.after_training(self._model.current_iteration(), self._save)
        self._model = None

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = FILENAME) -> lightgbm.Booster:
        """The model in a checkpoint of this callback or of LightGBMTrainer."""
        return stored_model(checkpoint, filename, "trireme.lightgbm.ReportCallback", loaded)


def loaded(path: str) -> lightgbm.Booster:
    return lightgbm.Booster(model_file=path)


def finish_reports() -> None:
    """After the training function: saves the checkpoints of trainings that have stopped early."""
    for each in list(_unfinished):
        each._finish()
