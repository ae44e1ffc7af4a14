"""TensorBoard, MLflow and Weights & Biases: the real packages, offline."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trireme
from trireme import Checkpoint, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, UserCallback
from trireme._storage import Location
from trireme.backend import BackendConfig
from trireme.callbacks import CallbackCaller, RunContext
from trireme.integrations._tracker import Entry, Tracker


class Driven:
    """A run as callbacks see it, without workers: the test produces the events."""

    def __init__(self, callback: UserCallback, folder: Path, config: dict[str, Any] | None = None) -> None:
        folder.mkdir(exist_ok=True)
        log = folder / "events.jsonl"
        resumed = log.exists()
        start = {"event": "run_started", "time": 0.0, "id": f"id{folder.name}{int(resumed)}", "resumed": resumed}
        if not resumed:
            log.write_text(json.dumps(start) + "\n")
        context = RunContext(
            run_id=start["id"],  # type: ignore[arg-type]
            run_config=RunConfig(name=folder.name),
            scaling_config=ScalingConfig(),
            train_loop_config=config,
            backend_config=BackendConfig(),
            dataset_config=None,
            path=str(folder),
            storage_path=str(folder),
        )
        self._caller = CallbackCaller([callback], context, Location(str(folder)))
        self._caller.handle(start)
        self.attempt()

    def attempt(self) -> None:
        self._caller.handle({"event": "attempt_started", "time": 0.0, "num_workers": 1})

    def report(self, index: int, metrics: dict[str, Any], checkpoint: str | None = None) -> None:
        event = {"event": "report", "time": 100.0 + index, "rank": 0, "index": index, "metrics": metrics}
        self._caller.handle(event | ({"checkpoint": checkpoint} if checkpoint else {}))
        if checkpoint:
            self._caller.handle({"event": "checkpoint_committed", "time": 0.0, "index": index, "name": checkpoint})

    def end(self, error: BaseException | None = None) -> None:
        self._caller.end(error)


@pytest.fixture(params=["tensorboard", "mlflow", "wandb"])
def tracker(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[[], UserCallback], Any]:
    """How to create the callback, and how to read the logged values: {key: {step: value}}."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def tensorboard(tmp_path: Path) -> Any:
    pytest.importorskip("tensorboardX")
    from trireme.integrations.tensorboard import TensorBoardCallback

    return TensorBoardCallback, lambda: read_tensorboard(tmp_path / "run/tensorboard")


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from trireme.integrations.mlflow import MLflowCallback

    uri = f"file://{tmp_path}/mlruns"
    return lambda: MLflowCallback(uri, experiment_name="tests"), lambda: read_mlflow(uri)["metrics"]


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    from trireme.integrations.wandb import WandbCallback

    yield lambda: WandbCallback(project="tests"), lambda: read_wandb(tmp_path / "run/wandb")
    importlib.import_module("wandb").teardown()  # its process would live as long as this one


def read_tensorboard(folder: Path) -> dict[str, dict[int, float]]:
    """Like TensorBoard: a file with a purge step discards earlier values."""
    from tensorboardX.event_file_writer import event_pb2  # type: ignore[attr-defined]
    from tensorboardX.record_writer import masked_crc32c  # noqa: F401

    found: dict[str, dict[int, float]] = {}
    for file in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        data, at = file.read_bytes(), 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
            at += 12 + length + 4
            if event.HasField("session_log") and event.session_log.status == event_pb2.SessionLog.START:
                for steps in found.values():
                    for step in [step for step in steps if step >= event.step]:
                        del steps[step]
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    steps = found.setdefault(value.tag, {})
                    assert event.step not in steps, f"{value.tag} has step {event.step} twice"
                    steps[event.step] = value.simple_value
    return found


def read_mlflow(uri: str) -> dict[str, Any]:
    import mlflow

    client = mlflow.MlflowClient(uri)
    runs = [run for experiment in client.search_experiments() for run in client.search_runs([experiment.experiment_id])]
    (run,) = runs
    metrics: dict[str, dict[int, float]] = {}
    for key in run.data.metrics:
        for point in client.get_metric_history(run.info.run_id, key):
            assert point.step not in metrics.setdefault(key, {}), f"{key} has step {point.step} twice"
            metrics[key][point.step] = point.value
    artifacts = [item.path for item in client.list_artifacts(run.info.run_id, "checkpoints")]
    return {"metrics": metrics, "params": run.data.params, "info": run.info, "tags": run.data.tags, "files": artifacts}


def wandb_records(folder: Path) -> Iterator[Any]:
    """Reads the files of `wandb sync`: LevelDB's log format after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    importlib.import_module("wandb").teardown()  # its process may still be writing when a run is finished
    for run in sorted(folder.glob("offline-run-*/run-*.wandb")):
        data, at, record = run.read_bytes(), 7, b""
        while at + 7 <= len(data):
            left = 32768 - at % 32768
            if left < 7:  # end of a block, too short for a header
                at += left
                continue
            length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
            record += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # a complete record, or its last part
                yield wandb_internal_pb2.Record.FromString(record)
                record = b""


def read_wandb(folder: Path) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") != "history":
            continue
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        step = items.get("_step", record.history.step.num)
        for key, value in items.items():
            if not key.startswith("_"):
                assert step not in found.setdefault(key, {}), f"{key} has step {step} twice"
                found[key][step] = value
    return found


def test_steps_are_report_numbers_and_nested_metrics_are_flat(tracker: Any, tmp_path: Path) -> None:
    make, read = tracker
    run = Driven(make(), tmp_path / "run", {"lr": 0.5, "model": {"layers": 3}})
    for step in range(3):
        run.report(step, {"loss": 1.0 / (step + 1), "eval": {"accuracy": step}, "ok": True})
    run.end()
    logged = read()
    assert logged["loss"] == pytest.approx({0: 1.0, 1: 0.5, 2: 1 / 3})
    assert logged["eval/accuracy"] == {0: 0, 1: 1, 2: 2}
    assert logged["ok"] == {0: 1, 1: 1, 2: 1}


def test_a_restart_leaves_every_step_once(tracker: Any, tmp_path: Path) -> None:
    make, read = tracker
    run = Driven(make(), tmp_path / "run")
    for step in range(4):
        run.report(step, {"loss": step})
    run.attempt()
    for step in range(2, 6):
        run.report(step, {"loss": step})
    run.end()
    assert read()["loss"] == {step: step for step in range(6)}


def test_a_continued_run_keeps_its_steps(tracker: Any, tmp_path: Path) -> None:
    make, read = tracker
    for steps in (range(3), range(2, 5)):
        run = Driven(make(), tmp_path / "run", {"lr": 0.1})
        for step in steps:
            run.report(step, {"loss": step})
        run.end()
    # W&B joins the two when they are synced: offline, the second does not know the first.
    if "wandb" not in repr(make):
        assert read()["loss"] == {step: step for step in range(5)}


def test_mlflow_params_status_and_artifacts(mlflow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trireme.integrations.mlflow import MLflowLoggerCallback

    uri = f"file://{tmp_path}/mlruns"
    callback = MLflowLoggerCallback(uri, experiment_name="tests", tags={"team": "blue"}, save_artifact=True)
    folder = tmp_path / "run"
    run = Driven(callback, folder, {"lr": 0.5, "model": {"layers": 3}, "text": "x" * 10_000})
    (folder / "checkpoint_000000").mkdir()
    (folder / "checkpoint_000000/model").write_text("weights")
    run.report(0, {"odd name!": 1.0}, "checkpoint_000000")
    run.end(ValueError("boom"))
    stored = read_mlflow(uri)
    assert (stored["params"]["lr"], stored["params"]["model/layers"]) == ("0.5", "3")
    assert stored["info"].status == "FAILED"
    assert stored["tags"]["team"] == "blue"
    assert stored["tags"]["trireme.error"] == "boom"
    assert stored["metrics"] == {"odd name_": {0: 1.0}}
    assert stored["files"] == ["checkpoints/checkpoint_000000"]


def test_wandb_config_and_excludes(wandb: Any, tmp_path: Path) -> None:
    from trireme.integrations.wandb import WandbLoggerCallback

    run = Driven(WandbLoggerCallback(project="tests", excludes=["secret"]), tmp_path / "run", {"lr": 0.5})
    run.report(0, {"loss": 1.0, "secret": {"a": 1}, "note": "text"})
    run.end()
    assert read_wandb(tmp_path / "run/wandb") == {"loss": {0: 1.0}, "note": {0: "text"}}
    configs = [r.run.config.update for r in wandb_records(tmp_path / "run/wandb") if r.HasField("run")]
    assert ("lr", "0.5") in [(item.key, item.value_json) for config in configs for item in config]


def test_wandb_key_from_a_file(wandb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trireme.integrations.wandb import WandbCallback

    monkeypatch.setenv("WANDB_API_KEY", "")
    (tmp_path / "key").write_text("k" * 40 + "\n")
    WandbCallback(api_key_file=tmp_path / "key")
    assert os.environ["WANDB_API_KEY"] == "k" * 40
    with pytest.raises(ValueError, match="mutually exclusive"):
        WandbCallback(api_key="a", api_key_file="b")


class Slow(Tracker):
    name = "slow"

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.steps: list[int] = []
        self.fail = False

    def open(self, run_context: RunContext) -> int:
        return 0

    def log(self, entries: list[Entry]) -> None:
        self.gate.wait()
        if self.fail:
            raise OSError("no route to host")
        self.steps += [entry.step for entry in entries]

    def close(self, error: BaseException | None) -> None:
        self.steps.append(-1)


def test_a_slow_server_does_not_hold_the_run_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = Slow()
    run = Driven(slow, tmp_path / "run")
    for step in range(20_000):
        run.report(step, {"loss": step})
    slow.gate.set()
    run.end()
    assert slow.steps[:10] == list(range(10))
    assert slow.steps[-1] == -1
    assert capsys.readouterr().err.count("slower than the reports") == 1


def test_a_failing_server_is_reported_once_and_training_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = Slow()
    slow.fail = True
    slow.gate.set()
    run = Driven(slow, tmp_path / "run")
    for step in range(500):
        run.report(step, {"loss": step})
    run.end()
    assert capsys.readouterr().err.count("no route to host") == 1


@pytest.mark.parametrize(
    ("module", "package"), [("tensorboard", "tensorboardX"), ("mlflow", "mlflow"), ("wandb", "wandb")]
)
def test_without_its_package_the_extra_is_named(module: str, package: str) -> None:
    source = f"""
import inspect, sys
sys.modules[{package!r}] = sys.modules["torch"] = None
from trireme.integrations import {module}
made = [kind for name, kind in inspect.getmembers({module}, inspect.isclass) if kind.__module__.endswith({module!r})]
for kind in made:
    try:
        kind()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert f"pip install trireme[{module}]" in done.stdout


def test_a_whole_run_with_a_restart(tmp_path: Path, results: Path) -> None:
    pytest.importorskip("tensorboardX")
    from trireme.integrations.tensorboard import TensorBoardCallback

    def train() -> None:
        checkpoint = trireme.get_checkpoint()
        first = 0 if checkpoint is None else int(Path(checkpoint.path, "step").read_text()) + 1
        for step in range(first, 4):
            folder = tmp_path / f"mine_{step}"
            folder.mkdir(exist_ok=True)
            (folder / "step").write_text(str(step))
            trireme.report({"step": step}, checkpoint=Checkpoint(folder) if step == 1 else None)
            if step == 2 and trireme.get_context()._attempt == 0:
                trireme.get_all_reported_checkpoints()  # it is committed
                raise ValueError("once")

    config = RunConfig(name="r", callbacks=[TensorBoardCallback()], failure_config=FailureConfig(max_failures=1))
    DataParallelTrainer(train, run_config=config).fit()
    assert read_tensorboard(results / "r/tensorboard")["step"] == {step: step for step in range(4)}


def test_setup_in_the_training_function(mlflow: Any, tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/mlruns"

    def train(config: dict[str, Any]) -> Any:
        from trireme.integrations.mlflow import setup_mlflow

        client = setup_mlflow(config, tracking_uri=uri, experiment_name="mine", create_experiment_if_not_exists=True)
        client.log_metric("loss", 0.5, step=7)
        with client.start_run(nested=True):
            pass
        client.end_run()
        return type(client).__name__

    trainer = DataParallelTrainer(
        train, train_loop_config={"lr": 1}, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(name="r")
    )
    assert trainer.fit().return_value == "module"
    import mlflow as package

    client = package.MlflowClient(uri)
    experiment = client.get_experiment_by_name("mine")
    top = [run for run in client.search_runs([experiment.experiment_id]) if "mlflow.parentRunId" not in run.data.tags]
    assert [run.data.metrics for run in top] == [{"loss": 0.5}], "rank 0 only"
    assert top[0].data.params == {"lr": "1"}


def test_setup_wandb_in_the_training_function(wandb: Any, results: Path) -> None:
    def train() -> None:
        from trireme.integrations.wandb import setup_wandb

        run = setup_wandb({"lr": 1}, project="tests")
        run.log({"loss": 0.5})
        run.finish()

    DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(name="r")).fit()
    assert read_wandb(results / "r/wandb") == {"loss": {0: 0.5}}
