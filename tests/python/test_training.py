"""report(), the context, collectives and the result."""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import socket
from pathlib import Path
from typing import Any

import pytest

import trireme
from runs import ranks_that_printed
from trireme import Checkpoint, DataParallelTrainer, Result, RunConfig, ScalingConfig, collective


def fit(function: Any, workers: int = 2, config: dict[str, Any] | None = None, **options: Any) -> Result:
    scaling = ScalingConfig(num_workers=workers)
    return DataParallelTrainer(function, train_loop_config=config, scaling_config=scaling, **options).fit()


def events_of(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(result.path or "", "events.jsonl").read_text().splitlines()]


def test_metrics_are_rank_zeros_last_and_all_are_recorded() -> None:
    def train() -> None:
        rank = trireme.get_context().get_world_rank()
        for step in range(3 + rank):
            trireme.report({"loss": 1.0 / (step + 1), "rank": rank})

    result = fit(train)
    assert result.metrics == {"loss": 1.0 / 3, "rank": 0}
    assert result.error is None
    reports = [event for event in events_of(result) if event["event"] == "report"]
    assert sorted((event["rank"], event["index"]) for event in reports) == [
        *[(0, index) for index in range(3)],
        *[(1, index) for index in range(4)],
    ]


def test_metrics_dataframe_has_one_row_per_report() -> None:
    pytest.importorskip("pandas")

    def train() -> None:
        for step in range(4):
            trireme.report({"step": step})

    frame = fit(train).metrics_dataframe
    assert list(frame["step"]) == [0, 1, 2, 3]


def test_special_numbers_and_nested_values_survive() -> None:
    def train() -> None:
        trireme.report({"nan": math.nan, "inf": math.inf, "nested": {"list": [1, "two", None, True]}})

    metrics = fit(train, 1).metrics
    assert metrics is not None
    assert math.isnan(metrics["nan"])
    assert metrics["inf"] == math.inf
    assert metrics["nested"] == {"list": [1, "two", None, True]}


def test_numpy_scalars() -> None:
    numpy = pytest.importorskip("numpy")

    def train() -> None:
        trireme.report(
            {"f": numpy.float32(0.5), "i": numpy.int64(3), "b": numpy.bool_(True), "zero_d": numpy.array(2.5)}
        )

    assert fit(train, 1).metrics == {"f": 0.5, "i": 3, "b": True, "zero_d": 2.5}


def test_a_value_that_cannot_be_stored_names_its_key() -> None:
    def train() -> None:
        trireme.report({"good": 1, "outer": {"bad": object()}})

    with pytest.raises(trireme.WorkerGroupError) as caught:
        fit(train, 1)
    assert "['outer']['bad']" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(("metrics", "checkpoint"), [([1], None), ({"a": 1}, "path")])
def test_wrong_arguments_of_report(metrics: Any, checkpoint: Any) -> None:
    with pytest.raises(trireme.WorkerGroupError) as caught:
        fit(lambda: trireme.report(metrics, checkpoint=checkpoint), 1)
    assert isinstance(caught.value.__cause__, TypeError)


def test_context() -> None:
    def train() -> Any:
        context = trireme.get_context()
        storage = context.get_storage()
        numbers = (
            context.get_world_size(),
            context.get_world_rank(),
            context.get_local_world_size(),
            context.get_local_rank(),
            context.get_node_rank(),
        )
        with open(f"{context.get_trial_dir()}/numbers_{context.get_world_rank()}", "w") as file:
            file.write(json.dumps(numbers))
        return {
            "name": context.get_experiment_name(),
            "trial": (context.get_trial_name(), context.get_trial_dir()),
            "id": context.get_trial_id(),
            "metadata": context.get_metadata(),
            "storage": (storage.storage_fs_path, storage.experiment_dir_name, storage.experiment_fs_path),
        }

    result = fit(train, 3, run_config=RunConfig(name="my_run"), metadata={"team": "blue"})
    folder = Path(result.path or "")
    for rank in range(3):
        assert json.loads((folder / f"numbers_{rank}").read_text()) == [3, rank, 3, rank, 0]
    seen = result.return_value
    assert seen["name"] == "my_run"
    assert seen["trial"] == ("my_run", result.path)
    assert len(seen["id"]) >= 8
    assert seen["metadata"] == {"team": "blue"}
    assert seen["storage"] == (str(folder.parent), "my_run", str(folder))


def test_outside_of_a_training_function() -> None:
    for name in ("report", "get_context", "get_checkpoint", "get_all_reported_checkpoints", "get_dataset_shard"):
        arguments = [{}] if name == "report" else []
        with pytest.raises(RuntimeError, match=f"`{name}` cannot be used outside of a training function"):
            getattr(trireme, name)(*arguments)
    with pytest.raises(RuntimeError, match="`barrier` cannot be used outside"):
        collective.barrier()


def test_a_dataset_shard_without_datasets_is_an_error() -> None:
    with pytest.raises(trireme.WorkerGroupError) as caught:
        fit(lambda: trireme.get_dataset_shard("train"), 1)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "'train'" in str(caught.value)


def test_barrier_waits_for_all() -> None:
    def train() -> Any:
        rank, folder = trireme.get_context().get_world_rank(), trireme.get_context().get_trial_dir()
        open(f"{folder}/here_{rank}", "w").close()
        collective.barrier()
        return sorted(name for name in os.listdir(folder) if name.startswith("here"))

    assert fit(train, 3).return_value == ["here_0", "here_1", "here_2"]


def test_broadcast() -> None:
    def train() -> None:
        rank = trireme.get_context().get_world_rank()
        for round_number in range(3):
            got = collective.broadcast_from_rank_zero({"round": round_number, "from": rank})
            assert got == {"round": round_number, "from": 0}

    assert fit(train, 3).error is None


def save(value: int) -> Checkpoint:
    import tempfile

    folder = tempfile.mkdtemp()
    Path(folder, "value").write_text(str(value))
    return Checkpoint.from_directory(folder)


def test_checkpoints_are_committed_and_found_again() -> None:
    def train() -> Any:
        assert trireme.get_checkpoint() is None
        for step in range(3):
            trireme.report({"score": [5, 9, 7][step], "step": step}, checkpoint=save(step))
        newest = trireme.get_checkpoint()
        assert newest is not None
        return Path(newest.path, "value").read_text()

    result = fit(train, 1, run_config=RunConfig(name="kept"))
    assert result.return_value == "2"
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path, "value").read_text() == "2"
    assert result.best_checkpoints is not None
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [0, 1, 2]
    assert Path(result.get_best_checkpoint("score", "max").path, "value").read_text() == "1"
    assert Path(result.get_best_checkpoint("score", "min").path, "value").read_text() == "0"
    with pytest.raises(RuntimeError, match="no_such"):
        result.get_best_checkpoint("no_such", "max")
    with pytest.raises(ValueError, match="best"):
        result.get_best_checkpoint("score", "best")
    again = Result.from_path(result.path or "")
    assert again.metrics == result.metrics
    assert again.checkpoint is not None
    assert again.checkpoint.path == result.checkpoint.path


def test_the_same_name_continues_from_the_last_checkpoint() -> None:
    def train() -> Any:
        start = trireme.get_checkpoint()
        before = int(Path(start.path, "value").read_text()) if start else 0
        trireme.report({"value": before + 1}, checkpoint=save(before + 1))
        return before

    runs = [fit(train, 1, run_config=RunConfig(name="again")) for _ in range(3)]
    assert [result.return_value for result in runs] == [0, 1, 2]
    assert runs[-1].metrics == {"value": 3}


def test_resume_from_a_given_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "value").write_text("41")

    def train() -> Any:
        checkpoint = trireme.get_checkpoint()
        return checkpoint and Path(checkpoint.path, "value").read_text()

    assert fit(train, 1, resume_from_checkpoint=Checkpoint(tmp_path)).return_value == "41"


def test_metadata_is_stored_with_checkpoints_and_the_functions_own_wins() -> None:
    def train() -> None:
        checkpoint = save(1)
        checkpoint.set_metadata({"a": "function"})
        trireme.report({}, checkpoint=checkpoint)

    result = fit(train, 1, metadata={"a": "trainer", "b": "trainer"})
    assert result.checkpoint is not None
    assert result.checkpoint.get_metadata() == {"a": "function", "b": "trainer"}


def test_unsupported_arguments_of_report_are_errors() -> None:
    with pytest.raises(trireme.WorkerGroupError, match="ASYNC"):
        fit(lambda: trireme.report({}, checkpoint_upload_mode="ASYNC"), 1)


def test_worker_output_is_shown_with_ranks_and_kept_in_log_files(capfd: pytest.CaptureFixture[str]) -> None:
    def train() -> None:
        for number in range(20):
            collective.barrier()
            print(f"line {number} from all")
        if trireme.get_context().get_world_rank() == 1:
            print("only one")

    result = fit(train, 3, run_config=RunConfig(name="noisy"))
    out = capfd.readouterr().out
    for number in range(20):
        assert ranks_that_printed(f"line {number} from all", out) == [0, 1, 2]
    assert re.search(r"^\[rank 0-2\] line \d+ from all$", out, re.MULTILINE), "a line of all ranks is shown once"
    assert "[rank 1] only one" in out
    assert "run noisy: 3 workers" in out.splitlines()[0]
    assert "finished" in out
    log = Path(result.path or "", "logs/attempt_0/rank_1.log").read_text()
    assert log.splitlines() == [*(f"line {number} from all" for number in range(20)), "only one"]


def test_log_level_silences_all_but_worker_output(capfd: pytest.CaptureFixture[str]) -> None:
    logging = trireme.LoggingConfig(log_level="ERROR", worker_output=False)
    fit(lambda: print("hello"), 1, run_config=RunConfig(logging_config=logging))
    assert capfd.readouterr().out == ""


def test_failed_attempts_are_started_again_and_resume() -> None:
    def train() -> Any:
        checkpoint = trireme.get_checkpoint()
        if checkpoint is None:
            trireme.report({"step": 0}, checkpoint=save(0))
            collective.barrier()
            raise RuntimeError("first attempt")
        return Path(checkpoint.path, "value").read_text()

    result = fit(train, 1, run_config=RunConfig(failure_config=trireme.FailureConfig(max_failures=1)))
    assert result.return_value == "0"
    kinds = [event["event"] for event in events_of(result)]
    assert kinds.count("attempt_started") == 2
    assert kinds.count("attempt_failed") == 1


def test_two_fits_one_after_the_other_are_independent() -> None:
    first, second = fit(lambda: 1, 2), fit(lambda: 2, 2)
    assert (first.return_value, second.return_value) == (1, 2)
    assert first.path != second.path


def test_workers_are_processes_of_their_own() -> None:
    def train() -> Any:
        pids = Path(trireme.get_context().get_trial_dir() or "", f"pid_{os.getpid()}")
        pids.write_text(socket.gethostname())
        return os.getpid()

    result = fit(train, 3)
    assert len(list(Path(result.path or "").glob("pid_*"))) == 3
    assert result.return_value != os.getpid()


def test_num_workers_of_the_command_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TRIREME_RUN_NUM_WORKERS", "3")
    assert fit(lambda: trireme.get_context().get_world_size(), 1).return_value == 3
    assert "num_workers=3 from the command line, in place of 1" in capfd.readouterr().out


def test_errors_can_be_pickled() -> None:
    error = trireme.WorkerGroupError("it broke", {1: ValueError("x")})
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert str(again).startswith("Training failed due to worker errors:")
    assert isinstance(again.worker_failures[1], ValueError)
    controller = pickle.loads(pickle.dumps(trireme.ControllerError(ValueError("y"))))
    assert isinstance(controller.controller_failure, ValueError)
    assert isinstance(controller, RuntimeError)
