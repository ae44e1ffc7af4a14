"""The training loop of LightGBMTrainer on a worker."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm
from lightgbm.callback import CallbackEnv, EarlyStopException

from trireme import _core
from trireme._boosting._kept import Kept
from trireme._boosting._random_numbers import warn_of_random_numbers
from trireme._boosting._report import stored_model
from trireme._boosting._rows import Columns, WorkerRows, agreed_columns
from trireme._session import get_checkpoint, get_context
from trireme.lightgbm._dataset import binned
from trireme.lightgbm._kept import KeptDatasets
from trireme.lightgbm._native import init_network, put_first
from trireme.lightgbm._network import get_network_params
from trireme.lightgbm._report import FILENAME, ReportCallback

# Of a checkpoint: the metrics of all rounds, from which early stopping finds its state again.
_HISTORY = "lightgbm_history"
# A tuple before LightGBM 4.7.
_RESULT: Any = getattr(lightgbm.basic, "EvalResult", lambda *fields: fields)


def train(config: dict[str, Any]) -> None:
    world = get_context().get_world_size()
    params = {"num_threads": 1, "verbosity": -1, **config["params"], "num_machines": world}
    if world == 1:
        params["tree_learner"] = "serial"
    else:
        init_network(get_network_params())  # before the datasets: the workers agree on the bins
    checkpoint = get_checkpoint() if _core.lightgbm_continues(params) else None
    model = None
    if checkpoint is not None:
        model = stored_model(checkpoint, FILENAME, "trireme.lightgbm.ReportCallback", _text_of)
    earlier = lightgbm.Booster(model_str=model) if model is not None else None
    history = checkpoint.get_metadata().get(_HISTORY, []) if checkpoint is not None else []
    # A round in which LightGBM finds no split has no tree; the next one may have one.
    done = 0 if earlier is None else max(len(history), earlier.current_iteration())
    if done >= config["num_boost_round"]:
        return
    names = ["train", *(name for name in config["datasets"] if name != "train")]
    files = Kept.of(config)
    kept = KeptDatasets(files, names, params) if files is not None else None
    datasets = kept.restored(model) if kept is not None else None
    if datasets is None:
        datasets = _binned(names, agreed_columns(config), params, earlier, kept)
    booster = lightgbm.Booster(params, datasets[0])
    booster.set_train_data_name("train")
    for dataset, name in zip(datasets[1:], names[1:], strict=True):
        booster.add_valid(dataset, name)
    if earlier is not None:
        put_first(booster, earlier)
        warn_of_random_numbers("LightGBM", config)
    _Loop(config, booster, history, kept).run(done)


def _text_of(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _binned(
    names: list[str],
    columns: Columns,
    params: dict[str, Any],
    earlier: lightgbm.Booster | None,
    kept: KeptDatasets | None,
) -> list[lightgbm.Dataset]:
    made: list[lightgbm.Dataset] = []
    for name in names:
        rows = WorkerRows(name, columns, everything=bool(made))
        made.append(binned(rows, params, made[0] if made else None, earlier))
        if kept is not None:
            kept.keep(name, made[-1], rows.sample)
    return made


class _Loop:
    """lightgbm.train() on a booster that may have the trees of a checkpoint."""

    def __init__(
        self, config: dict[str, Any], booster: lightgbm.Booster, history: list[Any], kept: KeptDatasets | None
    ) -> None:
        self._params = config["params"]
        self._rounds = config["num_boost_round"]
        self._booster = booster
        self._objective = config["objective"]
        self._feval = config["feval"]
        self._evaluates = len(config["datasets"]) > 1
        self._evaluates_train = bool(config["evaluate_train"])
        self._history = history
        callbacks = [copy.copy(each) for each in config["callbacks"] or ()]
        if (patience := config["early_stopping_rounds"]) is not None:
            first_only = bool(self._params.get("first_metric_only"))
            delta = self._params.get("early_stopping_min_delta", 0.0)
            callbacks.append(lightgbm.early_stopping(patience, first_only, verbose=False, min_delta=delta))
        self._before = [each for each in callbacks if getattr(each, "before_iteration", False)]
        self._after = [each for each in callbacks if each not in self._before]
        self._report = ReportCallback(
            frequency=config["checkpoint_frequency"], checkpoint_at_end=config["checkpoint_at_end"]
        )
        self._report._reporter.metadata = self._metadata
        if kept is not None:
            self._report._reporter.before_checkpoint = partial(kept.keep_scores, booster)

    def run(self, done: int) -> None:
        stopping = [each for each in self._after if hasattr(each, "stopping_rounds")]
        for index, results in enumerate(self._history):
            if self._stops(index, [_RESULT(*each) for each in results], stopping):
                return
        for index in range(done, self._rounds):
            for each in self._before:
                each(self._env(index, None))
            for change in _core.lightgbm_round_params(self._params, index):
                self._booster.reset_parameter(change)
            self._booster.update(fobj=self._objective)
            results = list(self._booster.eval_train(self._feval)) if self._evaluates_train else []
            if self._evaluates:
                results += self._booster.eval_valid(self._feval)
            self._history.append(results)
            self._report(self._env(index, results))
            if self._stops(index, results, self._after):
                break

    def _stops(self, index: int, results: list[Any], callbacks: list[Any]) -> bool:
        try:
            for each in sorted(callbacks, key=lambda each: getattr(each, "order", 0)):
                each(self._env(index, results))
        except EarlyStopException as stop:
            self._booster.best_iteration = stop.best_iteration + 1
            return True
        return False

    def _env(self, index: int, results: Any) -> CallbackEnv:
        return CallbackEnv(
            model=self._booster,
            params=self._params,
            iteration=index,
            begin_iteration=0,
            end_iteration=self._rounds,
            evaluation_result_list=results,
        )

    def _metadata(self) -> dict[str, Any]:
        return {**get_context().get_metadata(), _HISTORY: self._history}
