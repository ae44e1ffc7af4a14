"""ray.tune.Tuner in compatibility mode, where tests/compat/scripts do not compare it with Ray."""

from __future__ import annotations

import os
from typing import Any

from test_ray_compat import COMPAT, output_of

FUNCTIONS = """
import json, os, tempfile
import pyarrow.fs
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from ray import tune
from ray.train import Checkpoint

storage = os.environ["TRIREME_RESULTS"]

def scored(config):
    kept = tune.get_checkpoint()
    for score in [3, 1, 2, 0]:
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, "score"), "w").write(str(score))
            tune.report({"score": score, "resumed": kept is not None}, checkpoint=Checkpoint.from_directory(folder))
        if config["fails"] and score == 1 and kept is None:
            raise ValueError("once")

def run(name, failure=None, space=None, samples=1, function=scored, **storage_of):
    return tune.Tuner(
        function,
        param_space=space or {"fails": False},
        tune_config=tune.TuneConfig(num_samples=samples),
        run_config=tune.RunConfig(
            name=name,
            failure_config=failure,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score"),
            **(storage_of or {"storage_path": storage}),
        ),
    ).fit()

def problem(ask):
    try:
        return ask()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def text_of(checkpoint):
    with checkpoint.as_directory() as folder:
        return open(os.path.join(folder, "score")).read()

def broken():
    raise KeyError("broken")

if __name__ == "__main__":
    plain = run("plain")[0]
    folders = sorted(name for name in os.listdir(plain.path) if name.startswith("checkpoint_"))
    again = run("again", tune.FailureConfig(max_failures=1), {"fails": True})[0]
    files = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(DirFileSystem(storage, LocalFileSystem())))
    remote = run("remote", storage_path="inside", storage_filesystem=files)[0]
    names = [each.base_name for each in files.get_file_info(pyarrow.fs.FileSelector(remote.path))]
    print("OUT " + json.dumps({
        "best": [[text_of(checkpoint), row["score"]] for checkpoint, row in plain.best_checkpoints],
        "folders": folders,
        "last": text_of(plain.checkpoint),
        "again": [again.metrics["resumed"], again.metrics["training_iteration"], str(again.error)],
        "remote": sorted(name for name in names if not name.startswith("checkpoint_")),
        "remote last": text_of(remote.checkpoint),
        "all": run("all", samples=3, function=broken).num_errors,
        "fast": len(run("fast", tune.FailureConfig(fail_fast=True), samples=3, function=broken)),
        "raised": problem(lambda: run("raised", tune.FailureConfig(fail_fast="raise"), function=broken)),
        "nested": problem(lambda: run("n", None, {"fails": tune.grid_search([tune.grid_search([1])])})),
        "drawn": sorted(result.config["fails"] for result in run("d", None, {
            "fails": tune.grid_search([False, tune.choice([0])])})),
        "outside": problem(lambda: tune.report({"a": 1})),
    }))
"""


def test_trials_of_functions(script: Any) -> None:
    out = output_of(script.run(FUNCTIONS, command=COMPAT))
    # The best two, and the newest.
    assert out["best"] == [["0", 0], ["2", 2], ["3", 3]] and out["last"] == "0"
    assert out["folders"] == ["checkpoint_000000", "checkpoint_000002", "checkpoint_000003"]
    assert out["again"] == [True, 6, "None"], "max_failures calls the function again, with the newest checkpoint"
    assert {"params.json", "progress.csv", "result.json"} <= set(out["remote"]) and out["remote last"] == "0"
    assert [out["all"], out["fast"]] == [3, 1] and out["raised"] == "KeyError: 'broken'"
    assert "ValueError: fails: a grid_search() inside another" in out["nested"] and out["drawn"] == [False, 0]
    assert "RuntimeError: `report` cannot be used outside" in out["outside"]


TRAINERS = """
import json
from ray import tune
from ray.train import ScalingConfig
from ray.train.data_parallel_trainer import DataParallelTrainer
from ray.train import get_context, report

def train_func(config):
    report({"workers": get_context().get_world_size(), **config})

if __name__ == "__main__":
    trainer = DataParallelTrainer(
        train_func, train_loop_config={"a": 1, "b": {"c": 2}}, scaling_config=ScalingConfig(num_workers=1)
    )
    try:
        grid = tune.Tuner(
            trainer,
            param_space={
                "scaling_config": {"num_workers": tune.grid_search([1, 2])}, "train_loop_config": {"b": {"d": 3}}
            },
        ).fit()
        out = [[result.metrics[name] for name in ("workers", "a", "b")] for result in grid]
        out.append(type(trainer).__name__ in grid.experiment_path)
    except tune.TuneError as error:
        out = str(error)
    print("OUT " + json.dumps(out))
"""


def test_parameters_are_merged_into_those_of_the_trainer(script: Any) -> None:
    merged = {"c": 2, "d": 3}
    assert output_of(script.run(TRAINERS, command=COMPAT)) == [[1, 1, merged], [2, 1, merged], True]


def test_the_second_version_has_no_tuner_for_trainers(script: Any) -> None:
    done = script.run(TRAINERS, command=COMPAT, env={**os.environ, "RAY_TRAIN_V2_ENABLED": "1"})
    assert "pass a function that creates the trainer" in output_of(done)
