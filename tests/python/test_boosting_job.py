"""The checks of XGBoost and LightGBM jobs before anything starts. Neither library is needed."""

from __future__ import annotations

from typing import Any

import pytest

from trireme import ConfigError, _core

COLUMNS = {"x": "number", "kind": "category", "y": "number", "w": "number", "q": "number"}


def checked(library: str = "xgboost", **changes: Any) -> dict[str, Any]:
    job = {
        "library": library,
        "params": {},
        "num_boost_round": 10,
        "label_column": "y",
        "weight_column": "",
        "group_column": "q",
        "categorical_columns": [],
        "early_stopping_rounds": None,
        "external_memory": False,
        "min_workers": 2,
        "max_workers": 2,
        "cpus_per_worker": 1.0,
        "use_gpu": False,
        "datasets": {"train": {"rows": 100, "columns": COLUMNS}},
    }
    return _core.check_boosting_job(job | changes)


def train(columns: dict[str, str], rows: int = 100) -> dict[str, Any]:
    return {"train": {"rows": rows, "columns": columns}}


def test_features_are_the_other_columns_in_order() -> None:
    made = checked(weight_column="w", group_column="")
    assert made["features"] == ["x", "kind", "q"] and made["categorical"] == ["kind"]


def test_named_columns_are_categorical() -> None:
    columns = COLUMNS | {"name": "string"}
    made = checked("lightgbm", datasets=train(columns), categorical_columns=["name", "x"], weight_column="w")
    assert made["features"] == ["x", "kind", "name"] and made["categorical"] == ["x", "kind", "name"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_column": "z"}, 'label_column = "z": datasets["train"] has no such column; it has "x", "kind"'),
        ({"label_column": ""}, "label_column is missing"),
        ({"label_column": "kind"}, "must be numeric and is category"),
        ({"weight_column": "z"}, 'weight_column = "z"'),
        ({"group_column": "z"}, 'group_column = "z"'),
        ({"num_boost_round": 0}, "num_boost_round = 0: expected an int, 1 or more"),
        ({"num_boost_round": True}, "num_boost_round = true"),
        ({"datasets": {}}, 'datasets has no "train": pass'),
        ({"datasets": {"test": {"rows": 9, "columns": COLUMNS}}}, 'datasets has no "train", only "test"'),
        ({"datasets": train(COLUMNS | {"name": "string"})}, 'column "name" of datasets["train"] contains strings'),
        ({"datasets": train(COLUMNS | {"when": "timestamp[us]"})}, 'column "when" .* has the type timestamp'),
        ({"datasets": train(COLUMNS, rows=1)}, "has 1 row for 2 workers: a worker would have none"),
        ({"datasets": train(COLUMNS, rows=0)}, r'datasets\["train"\] has no rows'),
        ({"datasets": train({"y": "number", "q": "number"})}, "has no features"),
        (
            {"datasets": train(COLUMNS) | {"v": {"rows": 9, "columns": {"y": "number", "w": "number", "q": "number"}}}},
            "has no column",
        ),
        (
            {"datasets": train(COLUMNS) | {"v": {"rows": 9, "columns": COLUMNS | {"x": "string"}}}},
            'column "x" is number in',
        ),
        ({"datasets": train(COLUMNS) | {"a-b": {"rows": 9, "columns": COLUMNS}}}, "must not contain '-'"),
        ({"categorical_columns": ["z"]}, 'categorical_columns = "z": datasets["train"] has no such column'),
        ({"categorical_columns": ["y"]}, 'categorical_columns: "y" is no feature'),
        (
            {"datasets": train(COLUMNS | {"when": "date32[day]"}), "categorical_columns": ["when"]},
            "must contain strings or integers and is date32",
        ),
        ({"datasets": train(COLUMNS | {"q": "list<string>"})}, "group_column .* must contain strings or integers"),
        ({"weight_column": "w"}, "XGBoost's ranking has no weights of rows"),
        ({"early_stopping_rounds": 0}, "early_stopping_rounds = 0: expected an int, 1 or more"),
        ({"early_stopping_rounds": 5}, 'early_stopping_rounds needs a dataset besides "train"'),
        ({"library": "lightgbm", "external_memory": True}, "external_memory: only XGBoost"),
        ({"params": {"device": "cuda"}}, r'params\["device"\] = "cuda": the workers have no GPU'),
        ({"params": {"tree_method": "exact"}}, "cannot train on rows that are read in batches"),
        ({"params": {"tree_method": "gpu_hist"}}, "use tree_method"),
        ({"params": {"n_estimators": 5}}, "pass num_boost_round"),
        ({"params": {"early_stopping_rounds": 3}}, "pass early_stopping_rounds to the trainer"),
        ({"library": "lightgbm", "params": {"n_iter_no_change": 3}}, "pass early_stopping_rounds to the trainer"),
        (
            {
                "library": "lightgbm",
                "params": {"boosting": "dart"},
                "early_stopping_rounds": 3,
                "datasets": train(COLUMNS) | {"valid": {"rows": 9, "columns": COLUMNS}},
            },
            "LightGBM cannot stop early with boosting",
        ),
        ({"params": {"objective": "multi:softmax"}}, r'needs params\["num_class"\]'),
        ({"params": {"objective": "rank:ndcg"}, "group_column": ""}, "ranking needs group_column"),
        ({"params": {"n_jobs": "all"}}, r'params\["n_jobs"\] = "all": expected an int'),
        ({"library": "lightgbm", "params": {"device_type": "gpu"}}, "the workers have no GPU"),
        ({"library": "lightgbm", "params": {"num_machines": 3}}, "the trainer has 2 workers"),
        ({"library": "lightgbm", "params": {"machines": "a:1"}}, "the trainer sets the addresses"),
        ({"library": "lightgbm", "params": {"tree_learner": "serial"}}, "would train a model of its own"),
        ({"library": "lightgbm", "params": {"tree_learner": "feature"}}, "needs all rows on every worker"),
        ({"library": "lightgbm", "params": {"num_iterations": 5}}, "pass num_boost_round"),
        ({"library": "lightgbm", "params": {"objective": "lambdarank"}, "group_column": ""}, "needs group_column"),
        ({"library": "lightgbm", "params": {"objective": "multiclass"}}, "the number of classes"),
        (
            {"library": "lightgbm", "params": {"app": "lambdarank"}, "group_column": ""},
            r'params\["app"\] .* group_column',
        ),
        ({"train": "rows"}, 'datasets has no "rows", only "train"'),
    ],
)
def test_refused(changes: dict[str, Any], message: str) -> None:
    escaped = message if "\\" in message or ".*" in message else message.replace("[", r"\[").replace("]", r"\]")
    with pytest.raises(ConfigError, match=escaped):
        checked(**changes)


def test_threads_are_the_cpus_of_a_worker() -> None:
    assert checked()["params"]["nthread"] == 1
    assert checked(cpus_per_worker=3.0)["params"]["nthread"] == 3
    corrected = checked(params={"n_jobs": 8})
    assert corrected["params"] == {"nthread": 1}
    (line,) = corrected["corrections"]
    assert 'params["n_jobs"] = 8 does not match the workers, which have 1 CPU each: using 1' in line
    kept = checked(params={"nthread": 2}, cpus_per_worker=4.0)
    assert kept["params"]["nthread"] == 2 and kept["corrections"] == []


def test_lightgbm_gets_what_the_workers_imply() -> None:
    params = checked("lightgbm", params={"num_machines": 2, "pre_partition": False})
    assert params["params"] == {"tree_learner": "data", "pre_partition": True, "num_threads": 1}
    assert ["pre_partition" in line for line in params["corrections"]] == [True]
    assert checked("lightgbm", params={"tree_learner": "voting"})["params"]["tree_learner"] == "voting"


def test_a_gpu_is_accepted_if_the_workers_have_one() -> None:
    assert checked(params={"device": "cuda"}, use_gpu=True)["params"]["device"] == "cuda"


def test_rounds_with_sampling_have_seeds() -> None:
    sampled = checked(params={"subsample": 0.5})
    assert sampled["params"]["seed_per_iteration"] is True and sampled["unrepeatable"] == []
    assert "seed_per_iteration" not in checked(params={"subsample": 1})["params"]
    kept = checked(params={"colsample_bytree": 0.5, "seed_per_iteration": False})
    assert kept["params"]["seed_per_iteration"] is False and kept["unrepeatable"] == ["colsample_bytree"]
    assert checked("lightgbm", params={"boosting": "dart", "bagging_freq": 1})["unrepeatable"] == ["boosting"]


def test_seeds_of_lightgbms_rounds() -> None:
    assert _core.lightgbm_round_params({"bagging_freq": 2, "bagging_fraction": 1.0}, 3) == []
    bags = {"subsample_freq": 2, "subsample": 0.5}
    first, seeds = _core.lightgbm_round_params(bags, 4)
    assert first == {"bagging_freq": 3} and seeds["bagging_freq"] == 2
    assert _core.lightgbm_round_params(bags, 5)[1] == seeds  # the same bag until the next multiple
    assert _core.lightgbm_round_params(bags, 6)[1] != seeds
    assert _core.lightgbm_round_params(bags | {"seed": 1}, 4)[1] != seeds
    (columns,) = _core.lightgbm_round_params({"colsample_bytree": 0.5, "extra_trees": True}, 4)
    assert set(columns) == {"feature_fraction_seed", "extra_seed"}
    assert not _core.lightgbm_continues({"boosting": "rf"}) and _core.lightgbm_continues({})


def test_every_worker_needs_a_query_group() -> None:
    rows = {"rows": 100, "columns": COLUMNS}
    both = {"train": {**rows, "groups": 2}, "valid": {**rows, "groups": 1}}
    with pytest.raises(ConfigError, match=r'datasets\["valid"\] has 1 query group for 2 workers: a worker would have'):
        checked(datasets=both)
    checked("lightgbm", datasets=both)  # evaluates complete datasets
    checked(datasets=both, min_workers=1, max_workers=1)
