from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import boosting
import lightgbm
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import trireme
from trireme import CheckpointConfig, ConfigError, ScalingConfig
from trireme.lightgbm import (
    LightGBMCheckpoint,
    LightGBMTrainer,
    ReportCallback,
    dataset,
    get_network_params,
    normalize_pandas_for_lightgbm,
    predict,
)

PARAMS = {"objective": "binary", "num_leaves": 7, "metric": ["binary_logloss", "auc"]}

OWN = """
import os, socket, sys, time
import lightgbm, numpy as np
rank, folder = int(sys.argv[1]), sys.argv[2]
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
with open(f"{folder}/port{rank}~", "w") as file:
    file.write(str(port))
os.rename(f"{folder}/port{rank}~", f"{folder}/port{rank}")
while not all(os.path.exists(f"{folder}/port{each}") for each in range(2)):
    time.sleep(0.02)
machines = ",".join(f"127.0.0.1:{open(f'{folder}/port{each}').read()}" for each in range(2))
rows = np.load(f"{folder}/{rank}.npy")
params = {"objective": "binary", "num_leaves": 7, "metric": ["binary_logloss", "auc"], "num_threads": 1,
          "verbosity": -1, "tree_learner": "data", "pre_partition": True, "num_machines": 2,
          "machines": machines, "local_listen_port": port}
data = lightgbm.Dataset(rows[:, :-1], rows[:, -1], feature_name=[f"x{index}" for index in range(6)])
text = lightgbm.train(params, data, 6).model_to_string()
with open(f"{folder}/model{rank}", "w") as file:
    file.write(text.split("parameters:")[0])
"""


class Until:
    """Trains until the gang has been resized."""

    before_iteration = False

    def __init__(self, resized: boosting.Resized) -> None:
        self.resized = resized

    def __call__(self, env: Any) -> None:
        if self.resized.is_done(env.iteration):
            raise lightgbm.callback.EarlyStopException(env.iteration, [])


class Peak(boosting.Growth):
    def __call__(self, env: Any) -> None:
        self.save()


def text(result: trireme.Result) -> str:
    with result.checkpoint.as_directory() as folder:
        return Path(folder, "model.txt").read_text()


def trainer(results: Path, **options: Any) -> LightGBMTrainer:
    return boosting.trainer(LightGBMTrainer, PARAMS, results, **options)


def own_function(config: dict[str, Any]) -> str:
    rank = trireme.get_context().get_world_rank()
    network = get_network_params()
    assert network["num_machines"] == 2 and len(set(network["machines"].split(","))) == 2
    rows = boosting.table(500, seed=rank).to_pandas()
    estimator = lightgbm.LGBMClassifier(n_estimators=4, n_jobs=1, tree_learner="data", verbosity=-1, **network)
    estimator.fit(
        rows[boosting.FEATURES],
        rows["label"],
        eval_set=[(rows[boosting.FEATURES], rows["label"])],
        callbacks=[ReportCallback({"loss": "valid_0-binary_logloss"}, frequency=3)],
    )
    trees = estimator.booster_.model_to_string().split("parameters:")[0]
    Path(config["folder"], f"model{rank}").write_text(trees)
    return trees


def test_a_function_with_an_estimator(results: Path, tmp_path: Path) -> None:
    config = {"folder": str(tmp_path)}
    made = LightGBMTrainer(
        own_function, train_loop_config=config, scaling_config=boosting.TWO, run_config=boosting.run_config(results)
    )
    result = made.fit()
    assert (tmp_path / "model0").read_text() == (tmp_path / "model1").read_text() == result.return_value
    assert list(result.metrics) == ["loss"]
    assert ReportCallback.get_model(result.checkpoint).current_iteration() == 4


def test_equals_the_librarys_own_training(results: Path, tmp_path: Path) -> None:
    config = {"folder": str(tmp_path)}
    data = boosting.datasets()
    LightGBMTrainer(boosting.save_partition, train_loop_config=config, datasets=data, scaling_config=boosting.TWO).fit()
    own = boosting.run_own(OWN, tmp_path)
    assert own[0] == own[1]
    result = trainer(results).fit()
    assert text(result).split("parameters:")[0].encode() == own[0]
    assert set(result.metrics) == {"valid-binary_logloss", "valid-auc"}


def test_early_stopping_by_the_first_metric(results: Path) -> None:
    # The AUC of this dataset is perfect in all rounds; the loss improves.
    x = np.arange(1000.0)
    data = trireme.data.from_arrow(pa.table({"x": x, "label": (x > 500).astype(int)}))
    metrics = {"objective": "binary", "metric": ["binary_logloss", "auc"]}
    options: dict[str, Any] = {
        "num_boost_round": 12, "early_stopping_rounds": 3, "datasets": {"train": data.repartition(2), "valid": data}
    }  # fmt: skip
    every = trainer(results, params=metrics, **options).fit()
    first = trainer(results, params={**metrics, "first_metric_only": True}, **options).fit()
    assert LightGBMTrainer.get_model(every.checkpoint).current_iteration() == 4
    assert LightGBMTrainer.get_model(first.checkpoint).current_iteration() == 12
    demanding = {**metrics, "first_metric_only": True, "early_stopping_min_delta": 1.0}
    last = trainer(results, params=demanding, **options).fit()
    assert LightGBMTrainer.get_model(last.checkpoint).current_iteration() == 4


def logistic(scores: np.ndarray, data: lightgbm.Dataset) -> tuple[np.ndarray, np.ndarray]:
    chance = 1 / (1 + np.exp(-scores))
    return chance - data.get_label(), chance * (1 - chance)


def test_an_objective_that_is_a_function(results: Path, tmp_path: Path) -> None:
    params = {**PARAMS, "objective": logistic, "metric": "auc"}
    config = boosting.run_config(results, checkpoint_config=CheckpointConfig(checkpoint_frequency=2))
    own = trainer(results, params=params).fit()
    builtin = trainer(results, params={**PARAMS, "boost_from_average": False}).fit()
    assert own.metrics["valid-auc"] == pytest.approx(builtin.metrics["valid-auc"], abs=1e-3)
    killed = trainer(results, params=params, run_config=config, callbacks=[boosting.Kill(tmp_path)]).fit()
    assert (tmp_path / "killed").exists() and text(killed) == text(own)
    with pytest.raises(ConfigError, match=r"params\['metric'\] is a function: pass feval"):
        trainer(results, params={"metric": logistic})


def stopping_function(config: dict[str, Any]) -> int:
    rows = boosting.table(500).to_pandas()
    data = lightgbm.Dataset(rows[boosting.FEATURES], rows["label"])
    params = {**PARAMS, "eta": 0.8, "num_threads": 1, "tree_learner": "data", "pre_partition": True}
    valid = boosting.table(300, seed=1).to_pandas()
    model = lightgbm.train(
        {**params, **get_network_params()},
        data,
        200,
        valid_sets=[data.create_valid(valid[boosting.FEATURES], valid["label"])],
        callbacks=[ReportCallback(frequency=3), lightgbm.early_stopping(2, verbose=False)],
    )
    return model.current_iteration()


def test_a_function_that_stops_early_has_a_checkpoint(results: Path) -> None:
    result = LightGBMTrainer(
        stopping_function, scaling_config=boosting.TWO, run_config=boosting.run_config(results)
    ).fit()
    assert 0 < result.return_value < 200
    assert ReportCallback.get_model(result.checkpoint).current_iteration() == result.return_value


def streaming_function(config: dict[str, Any]) -> None:
    train = dataset(label_column="label", categorical_columns=config["categorical"])
    valid = dataset("valid", reference=train, complete=True)
    params = {**PARAMS, "num_threads": 1, "verbosity": -1, "tree_learner": "data", "pre_partition": True}
    lightgbm.train(
        {**params, **get_network_params()},
        train,
        6,
        valid_sets=[valid],
        valid_names=["valid"],
        callbacks=[ReportCallback(), *config["callbacks"]],
    )


def in_a_function(results: Path, **options: Any) -> trireme.Result:
    given = {
        "datasets": boosting.datasets(),
        "scaling_config": boosting.TWO,
        "run_config": boosting.run_config(results),
    }
    config = {"categorical": options.pop("categorical", []), "callbacks": options.pop("callbacks", [])}
    return LightGBMTrainer(streaming_function, train_loop_config=config, **{**given, **options}).fit()


def test_a_function_streams_the_rows(results: Path) -> None:
    whole = trainer(results).fit()
    streamed = in_a_function(results)
    assert text(streamed).split("parameters:")[0] == text(whole).split("parameters:")[0]
    assert streamed.metrics == whole.metrics


def test_a_function_with_categories(results: Path) -> None:
    color = np.array(["red", "green", "blue"])[np.arange(900) % 3]
    rows = boosting.table(900).append_column("color", pa.array(color.tolist()))
    rows = rows.set_column(6, "label", pa.array((color == "green").astype(int)))
    data = trireme.data.from_arrow(rows)
    result = in_a_function(results, datasets={"train": data.repartition(4), "valid": data}, categorical=["color"])
    assert result.metrics["valid-auc"] > 0.999
    predicted = predict(result.checkpoint, trireme.data.from_arrow(rows.slice(1))).to_pandas()
    assert ((predicted["predictions"] > 0.4) == (predicted["color"] == "green")).all()


def test_a_function_holds_rows_once(results: Path, tmp_path: Path) -> None:
    def train(data: Any) -> None:
        in_a_function(
            results,
            datasets={"train": data, "valid": data.limit(100)},
            scaling_config=ScalingConfig(num_workers=1),
            callbacks=[Peak(tmp_path / "growth")],
        )

    assert boosting.growth_of_rows(tmp_path, train) < 1.9


def test_categories_weights_and_predictions(results: Path) -> None:
    rows = boosting.table(2000)
    random = np.random.default_rng(3)
    colors = np.array(["red", "green", "blue"])[random.integers(0, 3, 2000)]
    label = (colors == "green").astype(int)
    rows = rows.set_column(6, "label", pa.array(label)).append_column("color", pa.array(colors).dictionary_encode())
    rows = rows.append_column("weight", pa.array(random.random(2000)))
    train = trireme.data.from_arrow(rows).repartition(4)
    result = trainer(results, datasets={"train": train, "valid": train}, weight_column="weight").fit()
    assert result.metrics["valid-auc"] > 0.999
    other = rows.slice(1000).set_column(7, "color", pa.array(colors[1000:][::-1]).dictionary_encode())
    predicted = predict(result.checkpoint, trireme.data.from_arrow(other)).to_pandas()
    assert ((predicted["predictions"] > 0.5) == (predicted["color"] == "green")).mean() > 0.99
    # LightGBM itself maps the categories of a DataFrame in the same way.
    frame = other.to_pandas()[[*boosting.FEATURES, "color"]]
    frame["color"] = frame["color"].astype("category")
    model = LightGBMTrainer.get_model(result.checkpoint)
    np.testing.assert_array_equal(model.predict(frame), predicted["predictions"])


def test_groups_stay_on_one_worker(results: Path) -> None:
    random = np.random.default_rng(5)
    rows = boosting.table(1200).append_column("query", pa.array(random.integers(0, 60, 1200)))
    data = {"train": trireme.data.from_arrow(rows), "valid": trireme.data.from_arrow(rows)}
    params = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [5], "num_leaves": 7}
    result = trainer(results, params=params, datasets=data, group_column="query", num_boost_round=5).fit()
    ordered = rows.to_pandas().sort_values("query", kind="stable")
    whole = lightgbm.Dataset(ordered[boosting.FEATURES], ordered["label"], group=ordered.groupby("query").size())
    alone = lightgbm.train(
        {**params, "verbosity": -1, "num_threads": 1}, whole, 5, valid_sets=[whole], valid_names=["v"]
    )
    assert alone.best_score["v"]["ndcg@5"] == pytest.approx(result.metrics["valid-ndcg@5"], abs=0.05)


def test_several_classes_and_another_number_of_workers(results: Path) -> None:
    rows = boosting.table(1500)
    label = np.digitize(np.nan_to_num(rows.column("x0").to_numpy()), [-0.5, 0.5])
    data = trireme.data.from_arrow(rows.set_column(6, "label", pa.array(label)))
    params = {"objective": "multiclass", "num_class": 3, "num_leaves": 7}
    options = {"params": params, "datasets": {"train": data, "valid": data}}
    first = trainer(results, **options, num_boost_round=3).fit()
    more = trainer(
        results, **options, scaling_config=ScalingConfig(num_workers=1), resume_from_checkpoint=first.checkpoint
    ).fit()
    model = LightGBMTrainer.get_model(more.checkpoint)
    assert model.current_iteration() == 6 and model.num_trees() == 18
    assert more.metrics["valid-multi_logloss"] < first.metrics["valid-multi_logloss"]


def test_rows_are_held_once(results: Path, tmp_path: Path) -> None:
    def train(data: Any) -> None:
        trainer(
            results,
            params={"num_leaves": 4},
            num_boost_round=1,
            datasets={"train": data},
            scaling_config=ScalingConfig(num_workers=1),
            callbacks=[Peak(tmp_path / "growth")],
        ).fit()

    # The rows, and their binned form of a byte per value. With a copy it would be more than 2.1.
    assert boosting.growth_of_rows(tmp_path, train) < 1.9


def test_a_resized_gang_continues(results: Path, tmp_path: Path, declared: Any) -> None:
    declared(num_cpus=1)
    result = boosting.resized_run(trainer, results, tmp_path, Until)
    model = LightGBMTrainer.get_model(result.checkpoint)
    losses = result.metrics_dataframe["valid-binary_logloss"]
    assert len(losses) == model.current_iteration()
    assert losses.iloc[-1] < losses.iloc[0]


def test_refused_before_anything_starts(results: Path) -> None:
    with pytest.raises(ConfigError, match='label_column = "y"'):
        trainer(results, label_column="y").fit()
    with pytest.raises(ConfigError, match="valid_sets: pass the datasets"):
        trainer(results, valid_sets=[()])
    assert not results.exists() or not os.listdir(results)


def test_missing_weights_are_refused(results: Path) -> None:
    rows = boosting.table(300).append_column("weight", pa.array([None, *[1.0] * 299]))
    with pytest.raises(trireme.TrainingFailedError, match="the weight column 'weight' has missing values"):
        trainer(results, datasets={"train": trireme.data.from_arrow(rows)}, weight_column="weight").fit()


def test_outside_of_a_worker() -> None:
    with pytest.warns(UserWarning, match="outside of the workers"):
        assert get_network_params() == {}


def test_checkpoint_of_a_model_and_frames(tmp_path: Path) -> None:
    frame = boosting.table(200).to_pandas()
    model = lightgbm.train(
        {"num_threads": 1, "verbosity": -1}, lightgbm.Dataset(frame[boosting.FEATURES], frame["label"]), 2
    )
    stored = LightGBMCheckpoint.from_model(model, path=tmp_path)
    np.testing.assert_array_equal(
        stored.get_model().predict(frame[boosting.FEATURES]), model.predict(frame[boosting.FEATURES])
    )
    arrow = pd.DataFrame({"a": pd.array([1, None], "int64[pyarrow]"), "b": pd.array([True, None], "bool[pyarrow]")})
    assert [str(kind) for kind in normalize_pandas_for_lightgbm(arrow).dtypes] == ["Int64", "boolean"]
