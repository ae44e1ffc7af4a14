"""XGBoostTrainer and LightGBMTrainer lose a worker: the model is that of an undisturbed run, byte by byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boosting
import pytest

import trireme
from trireme import CheckpointConfig
from trireme.lightgbm import LightGBMTrainer
from trireme.xgboost import XGBoostTrainer

TRAINERS = {"xgboost": XGBoostTrainer, "lightgbm": LightGBMTrainer}
PARAMS = {
    "xgboost": {"objective": "binary:logistic", "max_depth": 3, "eval_metric": ["logloss", "auc"]},
    "lightgbm": {"objective": "binary", "num_leaves": 7, "metric": ["binary_logloss", "auc"]},
}
# Some rounds find no split, and later ones do.
SPARSE = {"bagging_freq": 1, "bagging_fraction": 0.02, "min_data_in_leaf": 5, "min_gain_to_split": 12}
FILES = {"xgboost": "model.ubj", "lightgbm": "model.txt"}


def run(library: str, results: Path, frequency: int, params: dict[str, Any], **options: Any) -> trireme.Result:
    config = boosting.run_config(results, checkpoint_config=CheckpointConfig(checkpoint_frequency=frequency))
    given = {**PARAMS[library], **params}
    return boosting.trainer(TRAINERS[library], given, results, run_config=config, **options).fit()


def stored(result: trireme.Result, library: str) -> bytes:
    with result.checkpoint.as_directory() as folder:
        return Path(folder, FILES[library]).read_bytes()


@pytest.mark.parametrize(
    ("library", "frequency", "params", "options"),
    [
        ("xgboost", 2, {}, {}),
        ("lightgbm", 2, {}, {}),
        ("xgboost", 1, {"eta": 1.0}, {"num_boost_round": 200, "early_stopping_rounds": 3}),
        ("lightgbm", 1, {"eta": 0.8}, {"num_boost_round": 200, "early_stopping_rounds": 3}),
        ("xgboost", 2, {"subsample": 0.5, "colsample_bytree": 0.5}, {}),
        ("xgboost", 2, {"booster": "dart", "rate_drop": 0.3}, {}),
        ("xgboost", 2, {"tree_method": "approx"}, {}),
        ("lightgbm", 2, {"bagging_freq": 3, "bagging_fraction": 0.5}, {}),
        ("lightgbm", 2, {"feature_fraction": 0.5, "extra_trees": True}, {}),
        ("lightgbm", 1, SPARSE, {"num_boost_round": 14}),
        ("lightgbm", 2, {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, {}),
    ],
)
def test_a_killed_rank_changes_nothing(
    library: str, frequency: int, params: dict[str, Any], options: dict[str, Any], results: Path, tmp_path: Path
) -> None:
    # With sampling, the rows that are drawn depend on the rounds of checkpoints.
    whole = run(library, results, frequency, params, **options)
    killed = run(library, results, frequency, params, **options, callbacks=[boosting.Kill(tmp_path)])
    assert (tmp_path / "killed").exists()
    assert stored(killed, library) == stored(whole, library)  # LightGBM's with the parameters: they have no addresses
    assert killed.metrics == pytest.approx(whole.metrics)
    model = TRAINERS[library].get_model(whole.checkpoint)
    rounds = model.num_boosted_rounds() if library == "xgboost" else model.current_iteration()
    if "early_stopping_rounds" in options:
        assert 4 < rounds < 200
        assert library == "lightgbm" or model.best_iteration == rounds - 4
    elif params is SPARSE:
        assert 2 < rounds < 14
    else:
        assert rounds == 6


def test_every_round_draws_anew(results: Path) -> None:
    plain = stored(run("xgboost", results, 2, {}), "xgboost")
    assert stored(run("xgboost", results, 2, {"subsample": 0.5}), "xgboost") != plain
    text = stored(run("lightgbm", results, 2, {"bagging_freq": 1, "bagging_fraction": 0.5}), "lightgbm").decode()
    trees = [tree.split("\n", 1)[1] for tree in text.split("Tree=")[1:]]
    assert len(set(trees)) == len(trees) == 6
