"""trireme::boosting: models of C++ programs are those of Python, byte by byte."""

from __future__ import annotations

import json
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import xgboost

import trireme
from trireme import CheckpointConfig, RunConfig, ScalingConfig
from trireme.lightgbm import LightGBMTrainer
from trireme.xgboost import XGBoostTrainer

PROGRAM = Path(__file__).resolve().parents[2] / "build/release/tests/boosting_program"
LIBRARIES = {
    "xgboost": Path(xgboost.__file__).parent / "lib/libxgboost.so",
    "lightgbm": Path(lightgbm.__file__).parent / "lib/lib_lightgbm.so",
}
TRAINERS = {"xgboost": XGBoostTrainer, "lightgbm": LightGBMTrainer}
FILES = {"xgboost": "model.ubj", "lightgbm": "model.txt"}
# With sampling, early stopping, categories, weights and missing values.
MANY = {
    "xgboost": {
        "objective": "binary:logistic", "eval_metric": ["logloss", "auc"], "eta": 1.0, "max_depth": 3,
        "subsample": 0.7, "colsample_bytree": 0.7,
    },
    "lightgbm": {
        "objective": "binary", "metric": ["binary_logloss", "auc"], "learning_rate": 0.8, "num_leaves": 7,
        "bagging_freq": 2, "bagging_fraction": 0.7, "feature_fraction": 0.7,
    },
}  # fmt: skip
RANKING = {
    "xgboost": {"objective": "rank:ndcg", "eval_metric": "ndcg@5", "max_depth": 3},
    "lightgbm": {"objective": "lambdarank", "metric": "ndcg", "eval_at": [5], "num_leaves": 7},
}

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="`make build` builds the C++ test programs")


def columns(rows: int, seed: int) -> dict[str, list[Any]]:
    random = np.random.default_rng(seed)
    x, y = random.standard_normal(rows), random.standard_normal(rows)
    color = np.array(["red", "grün", "blue", "𝄞"])[random.integers(0, 4, rows)]
    label = (x + y * (color == "grün") + random.standard_normal(rows) > 0).astype(int)
    missing = random.random(rows) < 0.1
    return {
        "x": [None if gone else value for value, gone in zip(x.tolist(), missing, strict=True)],
        "y": y.tolist(),
        "kind": random.integers(-3, 9, rows).tolist(),
        "color": color.tolist(),
        "weight": (random.random(rows) + 0.5).tolist(),
        "label": label.tolist(),
    }


def many(library: str) -> dict[str, Any]:
    return {
        "params": MANY[library],
        "label_column": "label",
        "weight_column": "weight",
        "categorical_columns": ["color", "kind"],
        "early_stopping_rounds": 5,
        "num_boost_round": 60,
        "datasets": {"train": columns(3000, 0), "valid": columns(800, 1)},
    }


def ranking(library: str) -> dict[str, Any]:
    rows = columns(1500, 2)
    random = np.random.default_rng(3)
    rows["query"] = [f"q{each}" for each in random.integers(0, 70, 1500)]
    del rows["color"], rows["weight"]
    return {
        "params": RANKING[library],
        "label_column": "label",
        "group_column": "query",
        "num_boost_round": 8,
        "datasets": {"train": rows, "valid": rows},
    }


def run_program(library: str, folder: Path, name: str, **job: Any) -> str:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.json"
    defaults = {"min_workers": 2, "max_workers": 2, "checkpoint_frequency": 4, "path": str(LIBRARIES[library])}
    file.write_text(json.dumps({**defaults, "library": library, "folder": str(folder), "name": name, **job}))
    done = subprocess.run([PROGRAM, str(file)], text=True, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(line for line in done.stdout.splitlines() if line.startswith(("RESULT ", "REFUSED ")))


def cpp(library: str, folder: Path, name: str, **job: Any) -> tuple[bytes, dict[str, float]]:
    answer = run_program(library, folder, name, **job)
    assert answer.startswith("RESULT "), answer
    result = json.loads(answer.removeprefix("RESULT "))
    return (Path(result["checkpoint"]) / FILES[library]).read_bytes(), result["metrics"]


def dataset_of(rows: Any) -> trireme.data.Dataset:
    return trireme.data.read_parquet(rows) if isinstance(rows, str) else trireme.data.from_arrow(pa.table(rows))


def python(library: str, results: Path, workers: int = 2, **job: Any) -> trireme.Result:
    tables = {name: dataset_of(rows) for name, rows in job["datasets"].items()}
    run = RunConfig(storage_path=str(results), checkpoint_config=CheckpointConfig(checkpoint_frequency=4))
    return TRAINERS[library](
        **{**job, "datasets": tables}, scaling_config=ScalingConfig(num_workers=workers), run_config=run
    ).fit()


def model_of(result: trireme.Result, library: str) -> bytes:
    with result.checkpoint.as_directory() as folder:
        return Path(folder, FILES[library]).read_bytes()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_equal_models_with_everything(library: str, results: Path, tmp_path: Path) -> None:
    job = many(library)
    made, metrics = cpp(library, tmp_path / "cpp", "whole", **job)
    result = python(library, results, **job)
    assert made == model_of(result, library)
    assert metrics == pytest.approx(result.metrics)
    rounds = TRAINERS[library].get_model(result.checkpoint)
    count = rounds.num_boosted_rounds() if library == "xgboost" else rounds.current_iteration()
    assert 6 < count < 60  # stopped early

    # Interrupted and resumed, also with a checkpoint of the other language.
    cpp(library, tmp_path / "cpp", "resumed", **{**job, "num_boost_round": 4})
    assert cpp(library, tmp_path / "cpp", "resumed", **job)[0] == made
    first = python(library, results / "first", **{**job, "num_boost_round": 4})
    (checkpoint,) = (each for each, _ in first.best_checkpoints)
    again = {**job, "resume_from_checkpoint": checkpoint}
    assert model_of(python(library, results / "second", **again), library) == made


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_equal_models_of_ranking(library: str, results: Path, tmp_path: Path) -> None:
    job = ranking(library)
    made, metrics = cpp(library, tmp_path, "ranking", **job)
    result = python(library, results, **job)
    assert made == model_of(result, library)
    assert metrics == pytest.approx(result.metrics)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_equal_models_of_other_numbers_of_workers(library: str, workers: int, results: Path, tmp_path: Path) -> None:
    job = {**many(library), "evaluate_train": True}
    made, metrics = cpp(library, tmp_path, "several", **job, min_workers=workers, max_workers=workers)
    result = python(library, results, workers, **job)
    assert made == model_of(result, library)
    assert metrics == result.metrics
    assert [name.partition("-")[0] for name in metrics] == ["train", "train", "valid", "valid"]


def all_types(rows: int, seed: int) -> pa.Table:
    """Every type of a feature, with and without nulls."""
    random = np.random.default_rng(seed)
    number = random.standard_normal(rows)
    whole = random.integers(0, 100, rows)
    made: dict[str, pa.Array] = {}
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        made[str(kind)] = pa.array((number + random.standard_normal(rows)).astype(kind.to_pandas_dtype()))
    for signed in ("int", "uint"):
        for bits in (8, 16, 32, 64):
            made[f"{signed}{bits}"] = pa.array(whole + random.integers(0, 20, rows), f"{signed}{bits}")
    made["bool"] = pa.array(number + random.standard_normal(rows) > 0)
    exact = random.integers(-(10**17), 10**17, rows)
    for kind in (pa.decimal128(38, 10), pa.decimal256(60, 20), pa.decimal128(30, 15)):
        made[f"decimal{kind.bit_width}_{kind.scale}"] = pa.array(
            [Decimal(int(x)).scaleb(-kind.scale) for x in exact], kind
        )
    missing = pa.array(random.random(rows) < 0.15)
    for name in list(made):
        made[f"{name}_nulls"] = pc.if_else(missing, pa.scalar(None, made[name].type), made[name])
    score = number + whole / 50 + exact / 1e17 + random.standard_normal(rows)
    return pa.table({**made, "label": pa.array(score > 1), "weight": pa.array(random.random(rows).astype(np.float16))})


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_equal_models_of_all_types(library: str, results: Path, tmp_path: Path) -> None:
    files = {}
    for seed, (name, rows) in enumerate({"train": 3000, "valid": 803}.items()):
        # Batches begin in the middle of a byte of bits.
        pq.write_table(all_types(rows, seed), tmp_path / f"{name}.parquet", row_group_size=333)
        files[name] = str(tmp_path / f"{name}.parquet")
    params = {**MANY[library], "eta": 0.3, "max_depth": 6}
    job = {"params": params, "label_column": "label", "weight_column": "weight", "num_boost_round": 12}
    made, metrics = cpp(library, tmp_path / "cpp", "types", **job, datasets=files)
    result = python(library, results, **job, datasets=files)
    assert made == model_of(result, library)
    assert metrics == pytest.approx(result.metrics)
    model = TRAINERS[library].get_model(result.checkpoint)
    used = set(model.get_score()) if library == "xgboost" else {
        name for name, count in zip(model.feature_name(), model.feature_importance(), strict=True) if count
    }  # fmt: skip
    assert {"halffloat", "decimal128_10"} <= used


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_every_worker_has_a_query_group(library: str, results: Path, tmp_path: Path) -> None:
    job = ranking(library)
    names = ["a", "b", "c"]  # by their values alone, rank 1 of 3 would have none
    for rows in job["datasets"].values():
        rows["query"] = [names[index * 3 // 1500] for index in range(1500)]
    job["datasets"]["train"]["query"] = [names[index % 3] for index in range(1500)]
    workers = {"min_workers": 3, "max_workers": 3}
    made, _ = cpp(library, tmp_path, "few", **job, **workers)
    assert made == model_of(python(library, results, 3, **job), library)
    refused = run_program(library, tmp_path, "fewer", **job, min_workers=4, max_workers=4)
    assert 'datasets["train"] has 3 query groups for 4 workers: a worker would have none' in refused


@pytest.mark.parametrize(
    "change", [{"external_memory": True}, {"params": {**MANY["xgboost"], "tree_method": "approx"}}]
)
def test_equal_models_of_rows_in_files(change: dict[str, Any], results: Path, tmp_path: Path) -> None:
    job = {**many("xgboost"), "num_boost_round": 6, **change}
    made, _ = cpp("xgboost", tmp_path, "files", **job)
    assert made == model_of(python("xgboost", results, **job), "xgboost")


def test_equal_early_stopping_by_the_first_metric(results: Path, tmp_path: Path) -> None:
    job = many("lightgbm")
    params = {**job["params"], "first_metric_only": True, "early_stopping_min_delta": 0.001}
    made, _ = cpp("lightgbm", tmp_path, "first", **{**job, "params": params})
    assert made == model_of(python("lightgbm", results, **{**job, "params": params}), "lightgbm")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_column": "z"}, 'label_column = "z": datasets["train"] has no such column'),
        ({"categorical_columns": ["kind"]}, 'column "color" of datasets["train"] contains strings'),
        ({"num_boost_round": 0}, "num_boost_round = 0"),
        ({"datasets": {"valid": {"label": [1]}}}, 'datasets has no "train"'),
        ({"datasets": {"train": columns(1, 0), "valid": columns(9, 0)}}, "has 1 row for 2 workers"),
        ({"params": {"device": "cuda"}}, "the workers have no GPU"),
        ({"path": "/absent.so"}, "library cannot be loaded"),
    ],
)
def test_refused_before_anything_starts(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    answer = run_program("xgboost", tmp_path, "refused", **{**many("xgboost"), **changes})
    assert answer.startswith("REFUSED ") and message in answer
    assert not (tmp_path / "refused").exists()


def test_lightgbm_refuses_what_contradicts_the_workers(tmp_path: Path) -> None:
    job = {**many("lightgbm"), "params": {"num_machines": 3}}
    assert "the trainer has 2 workers" in run_program("lightgbm", tmp_path, "refused", **job)
    job = {**many("lightgbm"), "external_memory": True}
    assert "only XGBoost can train on rows in files" in run_program("lightgbm", tmp_path, "refused", **job)
