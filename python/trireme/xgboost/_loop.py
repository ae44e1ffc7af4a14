"""The training loop of XGBoostTrainer on a worker."""

from __future__ import annotations

import copy
import json
from typing import Any

import xgboost
from xgboost.callback import CallbackContainer, EarlyStopping, EvaluationMonitor

from trireme._boosting._random_numbers import warn_of_random_numbers
from trireme._boosting._rows import Columns, WorkerRows, agreed_categories
from trireme._checkpoint import Checkpoint
from trireme._session import get_checkpoint, get_context, get_dataset_shard
from trireme.xgboost._matrix import quantized
from trireme.xgboost._report import ReportCallback

# Of the model: the values of its categorical features, by name.
CATEGORIES = "trireme_categories"
# Of a checkpoint: what early stopping has seen.
_STOPPING = "xgboost_early_stopping"
_SAMPLING = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")


def train(config: dict[str, Any]) -> None:
    params = _with_threads(config["params"])
    columns = _columns(config)
    matrix = quantized(WorkerRows("train", columns), params, None)
    evals = [
        (quantized(WorkerRows(name, columns), params, matrix), name) for name in config["datasets"] if name != "train"
    ]
    checkpoint = get_checkpoint()
    earlier = ReportCallback.get_model(checkpoint).save_raw("ubj") if checkpoint is not None else None
    booster = xgboost.Booster(params, [matrix, *(each for each, _ in evals)], model_file=earlier)
    if earlier is not None:
        warn_of_random_numbers("XGBoost", [name for name in _SAMPLING if params.get(name, 1) != 1])
    if columns.categories:
        booster.set_attr(**{CATEGORIES: json.dumps(columns.categories)})
    _Loop(config, booster, matrix, evals, checkpoint).run()


def _columns(config: dict[str, Any]) -> Columns:
    columns = Columns(
        tuple(config["features"]), config["label_column"], config["weight_column"] or "", config["group_column"] or ""
    )
    categories = agreed_categories("train", columns, get_dataset_shard("train").schema())
    return Columns(columns.features, columns.label, columns.weight, columns.group, categories)


def _with_threads(params: dict[str, Any]) -> dict[str, Any]:
    return {"nthread": 1, **params}


class _Loop:
    """xgboost.train(), but the rounds are numbered from the first one of the run and not of the attempt: schedules
    depend on them."""

    def __init__(
        self, config: dict[str, Any], booster: Any, matrix: Any, evals: list[Any], checkpoint: Checkpoint | None
    ) -> None:
        given = config["train_kwargs"]
        self._rounds = config["num_boost_round"]
        self._booster, self._matrix, self._evals = booster, matrix, evals
        self._objective = given.get("obj")
        self._report = ReportCallback(
            frequency=config["checkpoint_frequency"], checkpoint_at_end=config["checkpoint_at_end"]
        )
        self._stopping = self._early_stopping(given, checkpoint)
        callbacks = [copy.copy(each) for each in given.get("callbacks") or ()]
        if verbose := given.get("verbose_eval"):
            callbacks.append(EvaluationMonitor(period=1 if verbose is True else verbose))
        if self._stopping is not None:
            callbacks.append(self._stopping)
            self._report._reporter.metadata = self._metadata
        self._callbacks = CallbackContainer(
            [*callbacks, self._report], metric=given.get("custom_metric"), output_margin=callable(self._objective)
        )

    def run(self) -> None:
        booster = self._callbacks.before_training(self._booster)
        if self._stopping is not None:
            self._stopping.starting_round = 0  # rounds are not counted from the checkpoint
        done = booster.num_boosted_rounds()
        if done >= self._rounds or self._has_stopped():
            return
        for index in range(done, self._rounds):
            if self._callbacks.before_iteration(booster, index, self._matrix, self._evals):
                break
            booster.update(self._matrix, iteration=index, fobj=self._objective)
            if self._callbacks.after_iteration(booster, index, self._matrix, self._evals):
                break
        self._callbacks.after_training(booster)

    def _has_stopped(self) -> bool:
        stopping = self._stopping
        return stopping is not None and stopping.current_rounds >= stopping.rounds

    def _early_stopping(self, given: dict[str, Any], checkpoint: Checkpoint | None) -> Any:
        rounds = given.get("early_stopping_rounds")
        if rounds is None:
            return None
        if not self._evals:
            raise ValueError("early_stopping_rounds needs a dataset besides 'train' to evaluate")
        made = EarlyStopping(rounds=rounds, maximize=given.get("maximize"))
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
