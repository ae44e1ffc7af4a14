from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import boosting
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xgboost

import trireme
from trireme import CheckpointConfig, ConfigError, ScalingConfig
from trireme.xgboost import (
    RayTrainReportCallback,
    ReportCallback,
    XGBoostCheckpoint,
    XGBoostTrainer,
    predict,
    quantile_dmatrix,
)

PARAMS = {"objective": "binary:logistic", "max_depth": 3, "eval_metric": ["logloss", "auc"]}

OWN = """
import json, os, sys, time
import numpy as np, xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker
rank, folder = int(sys.argv[1]), sys.argv[2]
shared = folder + "/tracker.json"
if rank == 0:
    tracker = RabitTracker(host_ip="127.0.0.1", n_workers=2, sortby="task")
    tracker.start()
    with open(shared + "~", "w") as file:
        json.dump(tracker.worker_args(), file)
    os.rename(shared + "~", shared)
while not os.path.exists(shared):
    time.sleep(0.02)
rows = np.load(f"{folder}/{rank}.npy")
with collective.CommunicatorContext(**json.load(open(shared)), dmlc_task_id=str(rank)):
    names = [f"x{index}" for index in range(6)]
    data = xgboost.QuantileDMatrix(rows[:, :-1], rows[:, -1], feature_names=names, feature_types=["float"] * 6)
    params = {"objective": "binary:logistic", "max_depth": 3, "eval_metric": ["logloss", "auc"], "nthread": 1}
    xgboost.train(params, data, 6).save_model(f"{folder}/own{rank}.ubj")
os.rename(f"{folder}/own{rank}.ubj", f"{folder}/model{rank}")
if rank == 0:
    tracker.wait_for()
"""


class Until(xgboost.callback.TrainingCallback):
    """Trains until the gang has been resized."""

    def __init__(self, resized: boosting.Resized) -> None:
        super().__init__()
        self.resized = resized

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        return self.resized.is_done(epoch)


class Peak(boosting.Growth, xgboost.callback.TrainingCallback):
    def after_training(self, model: Any) -> Any:
        self.save()
        return model


def raw(result: trireme.Result) -> bytes:
    return bytes(XGBoostTrainer.get_model(result.checkpoint).save_raw("ubj"))


def trainer(results: Path, **options: Any) -> XGBoostTrainer:
    return boosting.trainer(XGBoostTrainer, PARAMS, results, **options)


def own_function(config: dict[str, Any]) -> bytes:
    rank = trireme.get_context().get_world_rank()
    assert xgboost.collective.get_rank() == rank and xgboost.collective.get_world_size() == 2
    rows = boosting.table(500, seed=rank).to_pandas()
    estimator = xgboost.XGBClassifier(
        n_estimators=4, n_jobs=1, callbacks=[ReportCallback("validation_0-auc", frequency=3)], eval_metric="auc"
    )
    estimator.fit(
        rows[boosting.FEATURES], rows["label"], eval_set=[(rows[boosting.FEATURES], rows["label"])], verbose=False
    )
    model = bytes(estimator.get_booster().save_raw("ubj"))
    if config["folder"]:
        Path(config["folder"], f"model{rank}").write_bytes(model)
    return model


def test_a_function_with_an_estimator(results: Path, tmp_path: Path) -> None:
    config = {"folder": str(tmp_path)}
    made = XGBoostTrainer(
        own_function, train_loop_config=config, scaling_config=boosting.TWO, run_config=boosting.run_config(results)
    )
    result = made.fit()
    assert (tmp_path / "model0").read_bytes() == (tmp_path / "model1").read_bytes() == result.return_value
    assert list(result.metrics) == ["validation_0-auc"]
    assert len(result.best_checkpoints) == 2  # after round 3 and at the end
    assert raw(result) == result.return_value


def test_equals_the_librarys_own_training(results: Path, tmp_path: Path) -> None:
    config = {"folder": str(tmp_path)}
    data = boosting.datasets()
    XGBoostTrainer(boosting.save_partition, train_loop_config=config, datasets=data, scaling_config=boosting.TWO).fit()
    own = boosting.run_own(OWN, tmp_path)
    assert own[0] == own[1]
    result = trainer(results).fit()
    assert raw(result) == own[0]
    assert set(result.metrics) == {"valid-logloss", "valid-auc"}


def test_constraints_by_place_and_by_name(results: Path) -> None:
    by_name = trainer(results, params={**PARAMS, "monotone_constraints": {"x0": -1}}).fit()
    by_place = trainer(results, params={**PARAMS, "monotone_constraints": (-1, 0, 0, 0, 0, 0)}).fit()
    assert raw(by_name) == raw(by_place) != raw(trainer(results).fit())


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
    model = XGBoostTrainer.get_model(result.checkpoint)
    assert "weight" not in model.feature_names
    # In another order: a category is its value, not its code in one of the tables.
    other = rows.slice(1000).set_column(7, "color", pa.array(colors[1000:][::-1]).dictionary_encode())
    predicted = predict(result.checkpoint, trireme.data.from_arrow(other)).to_pandas()
    assert ((predicted["predictions"] > 0.5) == (predicted["color"] == "green")).mean() > 0.99


def test_groups_stay_on_one_worker(results: Path) -> None:
    random = np.random.default_rng(5)
    rows = boosting.table(1200).append_column("query", pa.array(random.integers(0, 60, 1200)))
    data = {"train": trireme.data.from_arrow(rows), "valid": trireme.data.from_arrow(rows)}
    params = {"objective": "rank:ndcg", "eval_metric": "ndcg@5", "max_depth": 3}
    result = trainer(results, params=params, datasets=data, group_column="query", num_boost_round=5).fit()
    ordered = rows.to_pandas().sort_values("query", kind="stable")
    matrix = xgboost.DMatrix(ordered[boosting.FEATURES], ordered["label"], qid=ordered["query"])
    model = XGBoostTrainer.get_model(result.checkpoint)
    model.set_param({"eval_metric": "ndcg@5"})
    text = model.eval_set([(matrix, "valid")])
    # XGBoost averages the metric of the ranks by their groups, so it equals that of all rows.
    assert float(text.rpartition(":")[2]) == pytest.approx(result.metrics["valid-ndcg@5"], abs=1e-4)


def test_another_number_of_workers_continues(results: Path) -> None:
    first = trainer(results, num_boost_round=3).fit()
    more = trainer(results, scaling_config=ScalingConfig(num_workers=1), resume_from_checkpoint=first.checkpoint).fit()
    assert XGBoostTrainer.get_model(more.checkpoint).num_boosted_rounds() == 6
    assert more.metrics["valid-logloss"] < first.metrics["valid-logloss"]


def test_a_resized_gang_divides_the_rows_again(results: Path, tmp_path: Path, declared: Any) -> None:
    declared(num_cpus=1)
    result = boosting.resized_run(trainer, results, tmp_path, Until)
    model = XGBoostTrainer.get_model(result.checkpoint)
    losses = result.metrics_dataframe["valid-logloss"]
    assert len(losses) == model.num_boosted_rounds()
    # In every round, with every size, all rows were evaluated once.
    rows = boosting.table(800, seed=1).to_pandas()
    matrix = xgboost.DMatrix(rows[boosting.FEATURES], rows["label"])
    for index in range(0, len(losses), 3):
        margin = model.predict(matrix, iteration_range=(0, index + 1))
        own = -np.log(np.where(rows["label"] == 1, margin, 1 - margin)).mean()
        # The quantiles of another gang differ a little.
        assert losses.iloc[index] == pytest.approx(own, abs=2e-3)


def streaming_function(config: dict[str, Any]) -> None:
    train = quantile_dmatrix(label_column="label", external_memory=config["files"])
    valid = quantile_dmatrix("valid", reference=train, external_memory=config["files"])
    report = ReportCallback()
    xgboost.train(
        {**PARAMS, "nthread": 1},
        train,
        6,
        evals=[(valid, "valid")],
        verbose_eval=False,
        callbacks=[report, *config["callbacks"]],
    )


def in_a_function(results: Path, files: bool = False, **options: Any) -> trireme.Result:
    given = {
        "datasets": boosting.datasets(),
        "scaling_config": boosting.TWO,
        "run_config": boosting.run_config(results),
    }
    callbacks = options.pop("callbacks", [])
    config = {"files": files, "callbacks": callbacks}
    return XGBoostTrainer(streaming_function, train_loop_config=config, **{**given, **options}).fit()


def test_a_function_streams_the_rows(results: Path) -> None:
    whole = trainer(results).fit()
    streamed = in_a_function(results)
    assert raw(streamed) == raw(whole) and streamed.metrics == whole.metrics
    assert raw(in_a_function(results, files=True)) == raw(trainer(results, external_memory=True).fit())
    with pytest.raises(trireme.TrainingFailedError, match=r'datasets\["valid"\] has no column "x5"'):
        narrow = trireme.data.from_arrow(boosting.table(90).drop_columns("x5"))
        in_a_function(results, datasets={"train": boosting.datasets()["train"], "valid": narrow})


def categorical_function(config: dict[str, Any]) -> bytes:
    train = quantile_dmatrix(
        label_column="label", categorical_columns=["color", *config["more"]], external_memory=config["files"]
    )
    valid = quantile_dmatrix("valid", reference=train)
    params = {**PARAMS, "nthread": 1}
    model = xgboost.train(params, train, 6, evals=[(valid, "valid")], verbose_eval=False, callbacks=[ReportCallback()])
    return bytes(model.save_raw("ubj"))


@pytest.mark.parametrize(("more", "files"), [([], False), ([], True), (["kind"], False)])
def test_a_function_with_categories(more: list[str], files: bool, results: Path) -> None:
    random = np.random.default_rng(3)
    color = np.array(["red", "green", "blue"])[random.integers(0, 3, 2000)]
    kind = random.integers(-3, 5, 2000)
    label = (color == "green") ^ ((kind % 2 == 1) if more else False)
    columns = {"color": color.tolist(), "x": random.standard_normal(2000), "kind": kind, "label": label.astype(int)}
    rows = trireme.data.from_arrow(pa.table(columns))
    result = XGBoostTrainer(
        categorical_function,
        train_loop_config={"more": more, "files": files},
        datasets={"train": rows.repartition(4), "valid": rows},
        scaling_config=boosting.TWO,
        run_config=boosting.run_config(results),
    ).fit()
    assert result.metrics["valid-auc"] > 0.999
    assert raw(result) == result.return_value
    # A category is its value: for predict() and for XGBoost itself, with a DataFrame that has others in another order.
    predicted = predict(result.checkpoint, rows).to_pandas()
    assert ((predicted["predictions"] > 0.5) == label).all()
    frame = predicted[["color", "x", "kind"]].iloc[::-1]
    for name in ["color", *more]:
        frame[name] = pd.Categorical(frame[name], categories=frame[name].unique())
    model = ReportCallback.get_model(result.checkpoint)
    own = model.predict(xgboost.DMatrix(frame, enable_categorical=True))[::-1]
    np.testing.assert_array_equal(own, predicted["predictions"])


def test_a_function_holds_rows_once(results: Path, tmp_path: Path) -> None:
    def train(data: Any) -> None:
        in_a_function(
            results,
            datasets={"train": data, "valid": data.limit(100)},
            scaling_config=ScalingConfig(num_workers=1),
            callbacks=[Peak(tmp_path / "growth")],
        )

    assert boosting.growth_of_rows(tmp_path, train) < 1.8


def test_approx_reads_the_rows_from_files(results: Path) -> None:
    params = {**PARAMS, "tree_method": "approx"}
    one = ScalingConfig(num_workers=1)
    result = trainer(results, params=params, scaling_config=one).fit()
    rows = boosting.table()
    matrix = xgboost.DMatrix(rows.select(boosting.FEATURES), rows["label"].to_numpy(), nthread=1)
    assert raw(result) == bytes(xgboost.train({**params, "nthread": 1}, matrix, 6).save_raw("ubj"))


def test_a_killed_rank_leaves_no_files(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    config = boosting.run_config(results, checkpoint_config=CheckpointConfig(checkpoint_frequency=2))
    options = {"external_memory": True, "run_config": config}
    killed = trainer(results, **options, callbacks=[boosting.Kill(tmp_path)]).fit()
    assert raw(killed) == raw(trainer(results, external_memory=True).fit())
    assert [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()] == []


def test_predictions_of_a_model_trained_on_a_frame() -> None:
    random = np.random.default_rng(0)
    color = np.array(["red", "green", "blue"])[random.integers(0, 3, 500)]
    frame = pd.DataFrame({"x": random.standard_normal(500), "color": pd.Categorical(color)})
    label = (color == "green") ^ (frame["x"] > 0)
    model = xgboost.train({"nthread": 1}, xgboost.DMatrix(frame, label, enable_categorical=True), 5)
    expected = model.predict(xgboost.DMatrix(frame, enable_categorical=True))
    texts = pa.table({"x": frame["x"].to_numpy(), "color": color.tolist()})
    for rows in (trireme.data.from_pandas(frame), trireme.data.from_arrow(texts)):
        np.testing.assert_array_equal(predict(model, rows, batch_size=100).to_pandas()["predictions"], expected)


def test_rows_are_held_once(results: Path, tmp_path: Path) -> None:
    def train(data: Any) -> None:
        trainer(
            results,
            params={"max_depth": 2},
            num_boost_round=1,
            datasets={"train": data},
            scaling_config=ScalingConfig(num_workers=1),
            callbacks=[Peak(tmp_path / "growth")],
        ).fit()

    # The rows, and their quantized form of a byte per value. With a copy it would be 2.1.
    assert boosting.growth_of_rows(tmp_path, train) < 1.8


def test_refused_before_anything_starts(results: Path) -> None:
    with pytest.raises(ConfigError, match='label_column = "y"'):
        trainer(results, label_column="y").fit()
    with pytest.raises(ConfigError, match=r"params\['objective'\] is a function: pass obj"):
        trainer(results, params={"objective": print})
    with pytest.raises(ConfigError, match="evals: pass the datasets"):
        trainer(results, evals=[()])
    with pytest.raises(TypeError, match="unexpected argument 'rounds'; those of its own loop are params"):
        trainer(results, rounds=3)
    with pytest.raises(TypeError, match="xgboost_config must be of type XGBoostConfig"):
        trainer(results, xgboost_config={})
    with pytest.raises(ConfigError, match=r'datasets\["valid"\] has 1 query group for 2 workers'):
        few = trireme.data.from_arrow(boosting.table(90).append_column("query", pa.array([7] * 90)))
        many = trireme.data.from_arrow(boosting.table(90).append_column("query", pa.array([3, 4, 4] * 30)))
        trainer(results, group_column="query", datasets={"train": many, "valid": few}).fit()
    with pytest.raises(TypeError, match="exclude each other: pass a"):
        trainer(results, train_loop_per_worker=own_function)
    with pytest.raises(TypeError, match="needs a training function"):
        XGBoostTrainer()
    assert not results.exists() or not os.listdir(results)


def test_checkpoint_of_a_model(tmp_path: Path) -> None:
    rows = boosting.table(200).to_pandas()
    model = xgboost.train({"nthread": 1}, xgboost.DMatrix(rows[boosting.FEATURES], rows["label"]), 2)
    stored = XGBoostCheckpoint.from_model(model, preprocessor={"a": 1}, path=tmp_path)
    assert stored.get_model().save_raw("ubj") == model.save_raw("ubj")
    assert stored.get_preprocessor() == {"a": 1}
    with pytest.raises(ValueError, match="not a directory"):
        XGBoostCheckpoint.from_model(model, path=tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"has no model\.ubj"):
        ReportCallback.get_model(stored)
    assert RayTrainReportCallback is ReportCallback


PROGRAM = Path(__file__).resolve().parents[2] / "build/release/examples/cpp/example_boosting_xgboost"


def run_cpp(folder: Path, rounds: int) -> bytes:
    library = Path(xgboost.__file__).parent / "lib/libxgboost.so"
    environment = {**os.environ, "TRIREME_XGBOOST_LIBRARY": str(library)}
    subprocess.run([PROGRAM, str(folder), str(rounds)], env=environment, check=True, timeout=300)
    return (folder / f"boosting_xgboost/checkpoint_{rounds - 1:06}/model.ubj").read_bytes()


@pytest.mark.skipif(not PROGRAM.exists(), reason="`make build` builds the C++ examples")
def test_cpp_models_equal_pythons(results: Path, tmp_path: Path) -> None:
    whole = run_cpp(tmp_path / "whole", 20)
    run_cpp(tmp_path / "resumed", 10)
    assert run_cpp(tmp_path / "resumed", 20) == whole

    def points(rows: int, first: int) -> trireme.data.Dataset:
        index = np.arange(first, first + rows)
        x, y = (index * 7919 % 1000) / 1000, (index * 104729 % 997) / 997
        return trireme.data.from_arrow(pa.table({"x": x, "y": y, "label": (x + y > 1).astype(float)}))

    params = {"objective": "binary:logistic", "eval_metric": "logloss", "max_depth": 3}
    data = {"train": points(4000, 0), "valid": points(1000, 4000)}
    assert raw(trainer(results, params=params, datasets=data, num_boost_round=20).fit()) == whole
