"""The training loop of XGBoostTrainer on a worker."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import dataclass
from typing import Any

import xgboost
from xgboost.callback import CallbackContainer, EarlyStopping, EvaluationMonitor, TrainingCallback

from trireme import _core
from trireme._boosting._kept import Kept
from trireme._boosting._random_numbers import warn_of_random_numbers
from trireme._boosting._rows import Categories, WorkerRows, agreed_columns
from trireme._checkpoint import Checkpoint
from trireme._session import get_checkpoint, get_context
from trireme.xgboost._matrix import is_approximate, quantized, restored
from trireme.xgboost._report import ReportCallback

# Of the model: the values of its categorical features, by name.
CATEGORIES = "trireme_categories"
# Of a checkpoint: what early stopping has seen.
_STOPPING = "xgboost_early_stopping"


def train(config: dict[str, Any]) -> None:
    params = {"nthread": 1, **config["params"]}
    columns = agreed_columns(config)
    # Its files are read until the end.
    folder = _core.TemporaryFolder() if config["external_memory"] or is_approximate(params) else None
    names = ["train", *(name for name in config["datasets"] if name != "train")]
    caches = [None if folder is None else os.path.join(folder.path, str(index)) for index in range(len(names))]
    kept = Kept.of(config)
    matrices = restored(kept, names, columns, params) if kept is not None else None
    if matrices is None:
        matrices = []
        for name, cache in zip(names, caches, strict=True):
            reference = matrices[0] if matrices else None
            matrices.append(quantized(WorkerRows(name, columns), params, reference, cache, kept=kept))
    evals = list(zip(matrices[1:], names[1:], strict=True))
    checkpoint = get_checkpoint()
    model = ReportCallback.get_model(checkpoint).save_raw("ubj") if checkpoint is not None else None
    if model is not None:
        warn_of_random_numbers("XGBoost", config)
    start = _Start(params, matrices, columns.categories)
    if config["evaluate_train"]:
        evals.insert(0, (matrices[0], "train"))
    _Loop(config, start, model, evals, checkpoint).run()


@dataclass(frozen=True)
class _Start:
    """Creates the booster at the start of an attempt."""

    params: dict[str, Any]
    matrices: list[Any]
    categories: Categories

    def booster(self, model: bytearray | None) -> xgboost.Booster:
        made = xgboost.Booster(self.params, self.matrices, model_file=model)
        if self.categories:
            text = json.dumps(self.categories, separators=(",", ":"), ensure_ascii=False)
            made.set_attr(**{CATEGORIES: text})
        return made


class _InOrder(TrainingCallback):  # type: ignore[misc]
    """Calls all callbacks: XGBoost's own container skips those behind one that ends the training."""

    def __init__(self, callbacks: list[TrainingCallback]) -> None:
        super().__init__()
        self._callbacks = callbacks

    def before_training(self, model: Any) -> Any:
        for each in self._callbacks:
            model = each.before_training(model)
        return model

    def after_training(self, model: Any) -> Any:
        for each in self._callbacks:
            model = each.after_training(model)
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        ends = [each.before_iteration(model, epoch, evals_log) for each in self._callbacks]
        return any(ends)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        ends = [each.after_iteration(model, epoch, evals_log) for each in self._callbacks]
        return any(ends)


class _Loop:
    """xgboost.train(), but the rounds are numbered from the first one of the run and not of the attempt: schedules
    depend on them."""

    def __init__(
        self,
        config: dict[str, Any],
        start: _Start,
        model: bytearray | None,
        evals: list[Any],
        checkpoint: Checkpoint | None,
    ) -> None:
        self._rounds = config["num_boost_round"]
        self._start, self._model, self._evals = start, model, evals
        self._draws = bool(config["params"].get("seed_per_iteration"))
        self._objective = config["obj"]
        self._report = ReportCallback(
            frequency=config["checkpoint_frequency"], checkpoint_at_end=config["checkpoint_at_end"]
        )
        self._stopping = self._early_stopping(config, checkpoint)
        callbacks = [copy.copy(each) for each in config["callbacks"] or ()]
        if verbose := config["verbose_eval"]:
            callbacks.append(EvaluationMonitor(period=1 if verbose is True else verbose))
        if self._stopping is not None:
            callbacks.append(self._stopping)
            self._report._reporter.metadata = self._metadata
        self._callbacks = CallbackContainer(
            [_InOrder([*callbacks, self._report])],
            metric=config["custom_metric"],
            output_margin=callable(self._objective),
        )

    def run(self) -> None:
        matrix = self._start.matrices[0]
        booster = self._callbacks.before_training(self._start.booster(self._model))
        if self._stopping is not None:
            self._stopping.starting_round = 0  # rounds are not counted from the checkpoint
        done = booster.num_boosted_rounds()
        if done >= self._rounds or self._has_stopped():
            return
        for index in range(done, self._rounds):
            if self._callbacks.before_iteration(booster, index, matrix, self._evals):
                break
            booster.update(matrix, iteration=index, fobj=self._objective)
            if self._callbacks.after_iteration(booster, index, matrix, self._evals):
                break
            if self._draws and self._report._reporter.saved_rounds == index + 1:
                # XGBoost neither stores the state of its random numbers nor can restore it: this run continues as a
                # resumed one would.
                model = booster.save_raw("ubj")
                del booster  # with its predictions for all rows
                booster = self._start.booster(model)
        self._callbacks.after_training(booster)

    def _has_stopped(self) -> bool:
        stopping = self._stopping
        return stopping is not None and stopping.current_rounds >= stopping.rounds

    def _early_stopping(self, config: dict[str, Any], checkpoint: Checkpoint | None) -> Any:
        rounds = config["early_stopping_rounds"]
        if rounds is None:
            return None
        made = EarlyStopping(rounds=rounds, maximize=config["maximize"])
        state = checkpoint.get_metadata().get(_STOPPING) if checkpoint is not None else None
        if state is not None:
            made.stopping_history, made.best_scores = state["history"], state["best"]
            made.current_rounds, made.maximize = state["rounds"], state["maximize"]
        return made

    def _metadata(self) -> dict[str, Any]:
        stopping = self._stopping
        state = {
            "history": stopping.stopping_history,
            "best": stopping.best_scores,
            "rounds": stopping.current_rounds,
            "maximize": stopping.maximize,
        }
        return {**get_context().get_metadata(), _STOPPING: state}
