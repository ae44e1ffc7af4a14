"""What a run of Ray Train's first version leaves in its folder, as readers of these files see it."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from test_ray_compat import COMPAT, output_of

SCRIPT = """
import json, os
import ray.train
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

def train_func(config):
    for step in range(3):
        metrics = {"loss": config["lr"] * (3 - step), "nested": {"step": step}, "name": "a,b", "nan": float("nan")}
        ray.train.report(metrics)
    if config["fails"]:
        raise ValueError("on purpose")

if __name__ == "__main__":
    storage = os.environ["TRIREME_RESULTS"]
    trainer = DataParallelTrainer(
        train_func,
        train_loop_config={"lr": 0.5, "fails": False},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(name="files", storage_path=storage),
    )
    result = trainer.fit()
    grid = tune.Tuner(
        trainer,
        param_space={"train_loop_config": {"lr": tune.grid_search([1.0]), "fails": True}},
        run_config=RunConfig(name="tuned", storage_path=storage),
    ).fit()
    print("OUT " + json.dumps([result.path, grid[0].path]))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("files")
    (place / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "TRIREME_RESULTS": str(place / "results")}
    done = subprocess.run([*COMPAT, str(place / "script.py")], capture_output=True, text=True, env=environment)
    return [Path(path) for path in output_of(done)]


def events_of(folder: Path) -> Iterator[Any]:
    """As TensorBoard reads them: length, checksum, record, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.glob("events.out.tfevents.*")
    content, at = path.read_bytes(), 0
    while at < len(content):
        (size,) = struct.unpack_from("<Q", content, at)
        yield Event.FromString(content[at + 12 : at + 12 + size])
        at += size + 16


def test_parameters_metrics_and_events(folders: list[Path]) -> None:
    pandas = pytest.importorskip("pandas")
    folder, tuned = folders
    assert folder.parent.name == "files" and folder.name.startswith("DataParallelTrainer_")
    parameters = {"train_loop_config": {"lr": 0.5, "fails": False}}
    assert json.loads((folder / "params.json").read_text()) == parameters
    assert pickle.loads((folder / "params.pkl").read_bytes()) == parameters
    rows = pandas.read_csv(folder / "progress.csv")
    assert list(rows["loss"]) == [1.5, 1.0, 0.5] and list(rows["nested/step"]) == [0, 1, 2]
    assert list(rows["name"]) == ["a,b"] * 3 and rows["nan"].isna().all()
    assert "config" not in rows and list(rows["training_iteration"]) == [1, 2, 3]
    lines = pandas.read_json(folder / "result.json", lines=True)
    assert list(lines["loss"]) == [1.5, 1.0, 0.5] and lines["config"][0] == parameters
    assert not list(folder.glob("error.*"))
    assert "ValueError: on purpose" in (tuned / "error.txt").read_text()
    with pytest.raises(ValueError, match="on purpose"):
        raise pickle.loads((tuned / "error.pkl").read_bytes())


def test_events_for_tensorboard(folders: list[Path]) -> None:
    pytest.importorskip("tensorboardX")
    scalars = {
        (value.tag, event.step): value.simple_value
        for event in events_of(folders[0])
        for value in event.summary.value
        if value.HasField("simple_value")
    }
    assert scalars["ray/tune/loss", 1] == 1.5 and scalars["ray/tune/nested/step", 3] == 2
    assert not any("nan" in tag or "config" in tag or tag.endswith("pid") for tag, _ in scalars)
    tags = {value.tag for event in events_of(folders[1]) for value in event.summary.value}
    assert "_hparams_/experiment" in tags, "what the Tuner has chosen"


REMOTE = """
import json, os, sys
import pyarrow.fs
import ray.train
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

def train_func(config):
    ray.train.report({"fails": config["fails"]})
    if config["fails"]:
        raise ValueError("on purpose")

if __name__ == "__main__":
    storage = os.environ["TRIREME_RESULTS"]
    os.makedirs(storage, exist_ok=True)
    local = pyarrow.fs.SubTreeFileSystem(storage, pyarrow.fs.LocalFileSystem())
    files = local if sys.argv[1] == "local" else DirFileSystem(storage, LocalFileSystem())
    run = RunConfig(name="remote", storage_path="inside", storage_filesystem=files)
    before = DataParallelTrainer.can_restore("inside/remote", storage_filesystem=files)
    try:
        DataParallelTrainer(
            train_func, train_loop_config={"fails": True}, scaling_config=ScalingConfig(num_workers=1), run_config=run
        ).fit()
    except ray.train.base_trainer.TrainingFailedError:
        pass
    after = DataParallelTrainer.can_restore("inside/remote", storage_filesystem=files)
    result = DataParallelTrainer.restore(
        "inside/remote", storage_filesystem=files, train_loop_config={"fails": False}
    ).fit()
    names = [each.base_name for each in result.filesystem.get_file_info(pyarrow.fs.FileSelector(result.path))]
    print("OUT " + json.dumps([before, after, result.metrics["training_iteration"], sorted(names)]))
"""


@pytest.mark.parametrize("storage", ["local", "remote"])
def test_restore_from_the_folder_of_an_experiment(script: Any, storage: str) -> None:
    pytest.importorskip("fsspec")
    before, after, reports, names = output_of(script.run(REMOTE, storage, command=COMPAT))
    assert [before, after, reports] == [False, True, 2]
    assert {"params.json", "params.pkl", "progress.csv", "result.json", "trainer.pkl"} <= set(names)
    if find_spec("tensorboardX"):
        assert any(name.startswith("events.out.tfevents.") for name in names)
