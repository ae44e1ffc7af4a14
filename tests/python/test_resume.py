"""Continued runs: by name, and from a checkpoint."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import processes
import trireme
from trireme import (
    Checkpoint,
    CheckpointConfig,
    CheckpointUploadMode,
    ConfigError,
    DataParallelTrainer,
    FailureConfig,
    Result,
    RunConfig,
    ScalingConfig,
    UserCallback,
)


def count_to(last: int) -> Any:
    def train() -> list[int]:
        checkpoint = trireme.get_checkpoint()
        first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(first, last):
            trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step}))
        return list(range(first, last))

    return train


def fit(function: Any, workers: int = 1, **run: Any) -> Result:
    scaling = ScalingConfig(num_workers=workers)
    return DataParallelTrainer(function, scaling_config=scaling, run_config=RunConfig(name="run", **run)).fit()


def test_continues_where_it_was(results: Path) -> None:
    assert fit(count_to(3), 2).return_value == [0, 1, 2]
    result = fit(count_to(5), 2)
    assert result.return_value == [3, 4]
    assert [row["index"] for row in result.metrics_history(0)] == list(range(5)), "numbering continues"
    assert [metrics["step"] for _, metrics in result.best_checkpoints or []] == list(range(5))
    assert sorted(path.name for path in (results / "run").glob("checkpoint_*"))[-1] == "checkpoint_000004"
    assert fit(count_to(5)).return_value == [], "a finished run can be continued"


def test_without_new_reports_the_result_has_the_last_metrics(results: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fit(count_to(3), 2)
    result = fit(count_to(3), 2)
    assert result.metrics == {"step": 2}
    assert result.metrics == Result.from_path(results / "run").metrics
    shown = capfd.readouterr().out.splitlines()
    assert shown[-1].split()[0] == "folder"
    assert ["reports", "3"] in [line.split() for line in shown[-6:]], "reports of the complete run"
    assert ["step", "2"] in [line.split() for line in shown[-6:]]


def test_never_and_must() -> None:
    with pytest.raises(ConfigError, match=r"RunConfig\.resume = 'must': there is no run 'run'"):
        fit(count_to(1), resume="must")
    fit(count_to(1), resume="never")
    with pytest.raises(ConfigError, match=r"RunConfig\.resume = 'never': there is a run 'run'"):
        fit(count_to(2), resume="never")
    assert fit(count_to(2), resume="must").return_value == [1]
    with pytest.raises(ConfigError, match="resume"):
        RunConfig(resume="perhaps")


def damage(path: Path, how: str) -> None:
    (file,) = [file for file in path.iterdir() if file.name == "state.json"]
    if how == "removed":
        file.unlink()
    elif how == "truncated":
        os.truncate(file, file.stat().st_size - 1)
    elif how == "empty":
        os.truncate(file, 0)
    else:
        content = bytearray(file.read_bytes())
        content[-2] ^= 1
        file.write_bytes(content)


@pytest.mark.parametrize("how", ["changed", "truncated", "empty", "removed"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    how: str, results: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fit(count_to(3))
    damage(results / "run/checkpoint_000002", how)
    with pytest.raises(Exception, match=r"state\.json"):
        Checkpoint(results / "run/checkpoint_000002").to_directory()
    capfd.readouterr()
    result = fit(count_to(4))
    assert result.return_value == [2, 3]
    told = "".join(capfd.readouterr())
    assert "checkpoint_000002" in told
    assert "state.json" in told


def test_a_folder_without_a_manifest_is_not_a_checkpoint(results: Path) -> None:
    fit(count_to(2))
    (results / "run/checkpoint_000001/.trireme_manifest.json").unlink()
    assert len(Result.from_path(results / "run").best_checkpoints or []) == 1
    assert fit(count_to(3)).return_value == [1, 2]


def test_folders_of_the_user_stay(results: Path) -> None:
    fit(count_to(1))
    mine = results / "run" / "checkpoint_best"
    mine.mkdir()
    (mine / "weights").write_text("mine")
    assert fit(count_to(2)).return_value == [1]
    assert (mine / "weights").read_text() == "mine"


def test_sizes_only(results: Path) -> None:
    fit(count_to(2))
    config = CheckpointConfig(verify_on_resume=False)
    damage(results / "run/checkpoint_000001", "truncated")
    assert fit(count_to(2), checkpoint_config=config).return_value == [1], "sizes are always compared"


def test_resume_from_checkpoint_begins_a_new_run(tmp_path: Path) -> None:
    trireme.save_state(tmp_path / "given", {"step": 6})
    options: dict[str, Any] = {"run_config": RunConfig(name="run")}
    given = Checkpoint(tmp_path / "given")
    trainer = DataParallelTrainer(count_to(8), resume_from_checkpoint=given, **options)
    assert trainer.fit().return_value == [7]
    assert DataParallelTrainer(count_to(9), resume_from_checkpoint=given, **options).fit().return_value == [8]


def test_resume_from_a_dict() -> None:
    given = Checkpoint.from_dict({"step": 6})
    trainer = DataParallelTrainer(count_to(8), resume_from_checkpoint=given, run_config=RunConfig(name="run"))
    assert trainer.fit().return_value == [7]


def test_the_result_of_a_run_that_stored_no_checkpoint(tmp_path: Path) -> None:
    given = Checkpoint.from_dict({"step": 6})
    config = RunConfig(name="run")
    result = DataParallelTrainer(lambda: None, resume_from_checkpoint=given, run_config=config).fit()
    assert result.best_checkpoints == []


def test_a_restarted_worker_loads_from_memory_where_asked(capfd: pytest.CaptureFixture[str]) -> None:
    def train() -> int:
        checkpoint = trireme.get_checkpoint()
        first: int = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
        for step in range(first, 4):
            rank = trireme.get_context().get_world_rank()
            state = Checkpoint.from_dict({"step": step, "rank": rank})
            trireme.report({"step": step}, checkpoint=state, checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
            if step == 2 and checkpoint is None:
                trireme.get_all_reported_checkpoints()
                os.kill(os.getpid(), 9)
        assert checkpoint is None or checkpoint.to_dict()["rank"] == rank, "its own part"
        return first

    result = fit(
        train, 2, checkpoint_config=CheckpointConfig(keep_in_memory=True), failure_config=FailureConfig(max_failures=1)
    )
    assert result.return_value == 3
    assert "rank 1 loads checkpoint_000002 from memory" in "".join(capfd.readouterr())


@pytest.mark.slow
def test_sigkill_of_the_driver_at_any_moment_loses_nothing_that_was_committed(script: Any, results: Path) -> None:
    source = """
        import os, sys, trireme
        from trireme import *

        def train():
            checkpoint = trireme.get_checkpoint()
            step = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
            while True:
                state = Checkpoint.from_dict({"step": step, "data": os.urandom(10_000)})
                trireme.report({"step": step}, checkpoint=state, checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
                step += 1

        if __name__ == "__main__":
            config = RunConfig(name="run", checkpoint_config=CheckpointConfig(num_to_keep=3))
            DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2), run_config=config).fit()
    """
    newest = -1
    for round_number in range(8):
        process = script.start(source)

        def committed() -> list[int]:
            log = results / "run/events.jsonl"
            lines = log.read_text().splitlines(keepends=True) if log.exists() else []
            events = [json.loads(line) for line in lines if line.endswith("}\n")]
            return [event["metrics"]["step"] for event in events if event["event"] == "checkpoint_committed"]

        goal = newest + 1 + round_number * 3
        assert processes.wait_until(lambda goal=goal: (committed() or [-1])[-1] >= goal), process.communicate()
        process.kill()
        process.wait()
        assert processes.wait_until(lambda: not processes.left_over())
        told = max(committed())
        result = Result.from_path(results / "run")
        assert result.checkpoint is not None
        newest = result.checkpoint.to_dict()["step"]
        assert newest >= told, "committed and reported, but missing"
        for checkpoint, metrics in result.best_checkpoints or []:
            assert checkpoint.to_dict()["step"] == metrics["step"]
            checkpoint.to_directory()


def test_a_second_driver_is_refused(script: Any, results: Path) -> None:
    process = script.start(
        """
        import time, trireme
        from trireme import *

        def train():
            trireme.report({"a": 1})
            time.sleep(600)

        if __name__ == "__main__":
            DataParallelTrainer(train, run_config=RunConfig(name="run")).fit()
        """
    )
    log = results / "run/events.jsonl"
    assert processes.wait_until(lambda: log.exists() and '"report"' in log.read_text())
    with pytest.raises(ConfigError, match="run"):
        fit(count_to(1))
    process.kill()
    process.wait()
    assert processes.wait_until(lambda: not processes.left_over())
    assert fit(count_to(1)).return_value == [0], "a crash leaves no lock behind"


class Forks(UserCallback):
    """Forks a process that outlives the run, such as a driver's data loader or web server."""

    def __init__(self) -> None:
        self.pid = 0

    def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
        if self.pid == 0:
            self.pid = os.fork()
            if self.pid == 0:
                signal.pause()
                os._exit(0)


@pytest.fixture
def forks() -> Iterator[Forks]:
    callback = Forks()
    yield callback
    if callback.pid:
        os.kill(callback.pid, signal.SIGKILL)
        os.waitpid(callback.pid, 0)


def test_a_child_of_the_driver_does_not_keep_the_run(results: Path, forks: Forks) -> None:
    fit(count_to(1), callbacks=[forks])
    os.kill(forks.pid, 0)
    assert fit(count_to(2)).return_value == [1]
    assert stat.S_IMODE((results / "run/.lock").stat().st_mode) == 0o600
