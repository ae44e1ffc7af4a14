"""LightGBM's binned datasets and the scores of their rows, kept for the next attempt of the run."""

from __future__ import annotations

import contextlib
import hashlib
import os
from functools import partial
from typing import Any

import lightgbm
import numpy as np

from trireme import _core
from trireme._boosting._kept import Kept
from trireme.lightgbm._native import raw_scores, returns_raw_scores

# Of so many checkpoints the scores are kept: the newest one may not be committed when a worker fails.
_CHECKPOINTS = 3


class KeptDatasets:
    """The files hold the bins of the rows. LightGBM predicts a model to continue from the values of the rows, which are
    not kept: therefore the scores of the rows are kept with every checkpoint."""

    def __init__(self, kept: Kept, names: list[str], params: dict[str, Any]) -> None:
        """names: of the datasets, the one to train on first."""
        self._kept = kept
        self._names = names
        self._params = params
        self._samples: list[np.ndarray] = []

    def restored(self, model: str | None) -> list[lightgbm.Dataset] | None:
        """The datasets, with the scores of the model to continue; None if a rank has not kept them. Collective."""
        scores = [] if model is None else [_scores_file(model)]
        if not self._kept.have_all([*map(_dataset_file, self._names), *map(_sample_file, self._names), *scores]):
            return None
        made: list[lightgbm.Dataset] = []
        for name in self._names:
            reference = made[0] if made else None
            path = self._kept.path(_dataset_file(name))
            made.append(lightgbm.Dataset(path, params=self._params, reference=reference).construct())
            self._samples.append(np.load(self._kept.path(_sample_file(name))))
        if scores:
            every = np.load(self._kept.path(scores[0]))
            classes = len(every) // sum(dataset.num_data() for dataset in made)
            ends = np.cumsum([dataset.num_data() * classes for dataset in made])
            for dataset, part in zip(made, np.split(every, ends[:-1]), strict=True):
                dataset.set_init_score(part)  # class by class
        return made

    def keep(self, name: str, dataset: lightgbm.Dataset, sample: np.ndarray) -> None:
        """sample: some rows of the dataset, the first ones."""
        self._kept.write(_dataset_file(name), lambda path: _save_dataset(dataset, path))
        self._kept.write(_sample_file(name), lambda path: _save(sample, path))
        self._samples.append(sample)

    def keep_scores(self, booster: lightgbm.Booster) -> None:
        """Those of the model that is about to become a checkpoint. Collective, as LightGBM's setup of an objective."""
        if not (_core.lightgbm_continues(self._params) and returns_raw_scores(self._params)):
            return
        scores = [raw_scores(booster, index, self._params) for index in range(len(self._names))]
        if not all(map(partial(_are_predicted, booster), self._samples, scores)):
            return
        name = _scores_file(booster.model_to_string(num_iteration=-1))
        self._kept.write(name, lambda path: _save(np.concatenate(scores), path))
        self._kept.limit("scores-", _CHECKPOINTS)


def _are_predicted(booster: lightgbm.Booster, sample: np.ndarray, scores: np.ndarray) -> bool:
    """Whether the scores begin with those that the model predicts for these rows, to the last bit."""
    predicted = booster.predict(sample, raw_score=True, num_iteration=-1, num_threads=1)
    by_class = predicted.reshape(len(sample), -1).T
    return bool(np.array_equal(scores.reshape(len(by_class), -1)[:, : len(sample)], by_class))


def _dataset_file(name: str) -> str:
    return f"dataset-{name}.bin"


def _sample_file(name: str) -> str:
    return f"sample-{name}.npy"


def _scores_file(model: str) -> str:
    """Named by the model's text, which is the same on all ranks: a round may be repeated with another number of
    workers, and has another model then."""
    return f"scores-{hashlib.sha256(model.encode()).hexdigest()}.npy"


def _save(array: np.ndarray, path: str) -> None:
    with open(path, "wb") as file:  # given a name, NumPy would add an ending
        np.save(file, array)


def _save_dataset(dataset: lightgbm.Dataset, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # LightGBM does not replace a file
        os.remove(path)
    try:
        dataset.save_binary(path)
    except lightgbm.basic.LightGBMError as error:
        raise OSError(str(error)) from error
