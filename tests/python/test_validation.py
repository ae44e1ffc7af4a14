"""Validation of checkpoints in parallel with training."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import processes
import trireme
from trireme import (
    Checkpoint,
    CheckpointConfig,
    CheckpointConsistencyMode,
    DataParallelTrainer,
    ReportedCheckpointStatus,
    Result,
    RunConfig,
    ScalingConfig,
    ValidationConfig,
    ValidationTaskConfig,
    WorkerGroupError,
)
from trireme._runtime_env import worker_start
from trireme._storage import Location
from trireme._validation import ValidationRunner


def make_checkpoint(value: float) -> Checkpoint:
    folder = tempfile.mkdtemp()
    Path(folder, "value").write_text(str(value))
    return Checkpoint(folder)


def value_of(checkpoint: Checkpoint) -> float:
    with checkpoint.as_directory() as folder:
        return float(Path(folder, "value").read_text())


# --- The runner by itself ---


class Runner:
    def __init__(self, folder: Path, fn: Callable[..., Any], **config: Any) -> None:
        self.answers: list[tuple[str, str, dict[str, Any], str]] = []
        self.folder = folder
        self.runner = ValidationRunner(
            ValidationConfig(fn, **config),
            str(folder),
            Location(str(folder)),
            worker_start({}),
            lambda *answer: self.answers.append(answer),
        )

    def ask(self, name: str, timeout_s: float | None = None, **kwargs: Any) -> None:
        (self.folder / name).mkdir()
        path = str(self.folder / name)
        self.runner.request({"name": name, "path": path, "fn_kwargs": kwargs, "timeout_s": timeout_s})

    def wait(self, count: int = 1) -> list[tuple[str, str, dict[str, Any], str]]:
        def done() -> bool:
            self.runner.poll()
            return len(self.answers) >= count

        assert processes.wait_until(done)
        return self.answers

    def log(self, name: str) -> str:
        return (self.folder / "logs/validation" / f"{name}.log").read_text()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Callable[..., Runner]]:
    made: list[Runner] = []

    def make(fn: Callable[..., Any], **config: Any) -> Runner:
        made.append(Runner(tmp_path, fn, **config))
        return made[-1]

    yield make
    for each in made:
        each.runner.close()


def test_validations_run_one_at_a_time_in_a_separate_process(runner: Any) -> None:
    def fn(checkpoint: Checkpoint, scale: int) -> dict[str, Any]:
        print("looking at", checkpoint.path)
        return {"pid": os.getpid(), "path": checkpoint.path, "scale": scale}

    made = runner(fn)
    made.ask("a", scale=2)
    made.ask("b", scale=3)
    first, second = made.wait(2)
    assert first[:2] == ("a", "VALIDATED")
    assert first[2]["path"] == str(made.folder / "a")
    assert first[2]["scale"], second[2]["scale"] == (2, 3)
    assert len({os.getpid(), first[2]["pid"], second[2]["pid"]}) == 3
    assert made.log("a") == f"looking at {made.folder / 'a'}\n"


def test_a_child_that_the_function_forks_does_not_answer(runner: Any) -> None:
    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        child = os.fork()
        if child == 0:
            return {"child": True}
        return {"status": os.waitpid(child, 0)[1]}

    made = runner(fn)
    made.ask("a")
    (answer,) = made.wait()
    assert answer[1:3] == ("VALIDATED", {"status": 0})


def test_a_crash_shows_the_python_lines_that_led_to_it(runner: Any) -> None:
    def calls_native_code(checkpoint: Checkpoint) -> dict[str, Any]:
        import ctypes

        return {"text": ctypes.string_at(1)}

    made = runner(calls_native_code)
    made.ask("a")
    (answer,) = made.wait()
    assert answer[1] == "VALIDATION_FAILED"
    assert "in calls_native_code" in made.log("a")


def test_an_exception_fails_that_validation_only(runner: Any) -> None:
    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        if checkpoint.path.endswith("a"):
            raise ValueError("no such file\nand more")
        return {}

    made = runner(fn)
    made.ask("a")
    made.ask("b")
    first, second = made.wait(2)
    assert first[:3] == ("a", "VALIDATION_FAILED", {})
    assert first[3].startswith("ValueError: no such file; see ")
    assert "in fn" in made.log("a"), "the traceback"
    assert second[1] == "VALIDATED"


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda checkpoint: 3, "must return a dict of metrics, got int"),
        (lambda checkpoint: {"bad": object()}, "bad"),
        (lambda checkpoint, missing: {}, "missing"),
        (lambda checkpoint: os._exit(3), "ended with exit code 3"),
        (lambda checkpoint: os.kill(os.getpid(), signal.SIGKILL), "killed with signal SIGKILL"),
    ],
)
def test_other_failures_of_a_validation(runner: Any, fn: Any, words: str) -> None:
    made = runner(fn)
    made.ask("a")
    ((_, status, metrics, message),) = made.wait()
    assert (status, metrics) == ("VALIDATION_FAILED", {})
    assert words in message
    assert "\n" not in message


def tries(checkpoint: Checkpoint) -> int:
    """The number of calls of this function for the checkpoint, including this one."""
    place = Path(checkpoint.path, "tries")
    number = int(place.read_text()) + 1 if place.exists() else 1
    place.write_text(str(number))
    return number


def test_a_validation_whose_process_died_is_tried_again(runner: Any) -> None:
    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        number = tries(checkpoint)
        if number < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"tries": number}

    made = runner(fn)
    made.ask("a")
    assert made.wait() == [("a", "VALIDATED", {"tries": 3}, "")]
    assert "trireme: retry 2 of 3: its process was killed with signal SIGKILL" in made.log("a")


@pytest.mark.parametrize(
    ("kwargs", "calls"),
    [
        ({}, 1),
        ({"retry_exceptions": True}, 4),
        ({"retry_exceptions": True, "max_retries": 1}, 2),
        ({"retry_exceptions": [OSError], "max_retries": 2}, 1),
        ({"retry_exceptions": [OSError, ValueError], "max_retries": 2}, 3),
        ({"retry_exceptions": True, "max_retries": 0}, 1),
    ],
)
def test_exceptions_are_retried_on_request(runner: Any, kwargs: dict[str, Any], calls: int) -> None:
    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        raise ValueError(f"call {tries(checkpoint)}")

    made = runner(fn, ray_remote_kwargs=kwargs)
    made.ask("a")
    ((_, status, _, message),) = made.wait()
    assert status == "VALIDATION_FAILED"
    assert message.startswith(f"ValueError: call {calls}; see ")


def test_all_tries_share_one_timeout(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        if tries(checkpoint) == 1:
            os._exit(3)
        time.sleep(600)
        return {}

    made = runner(fn, ray_remote_kwargs={"max_retries": -1})
    file, real, begin, second = made.folder / "a/tries", time.monotonic, time.monotonic(), list[float]()

    def slow_until_the_second_try() -> float:
        """However long a busy machine takes to start two processes, the timeout ends the second try."""
        if not second and file.exists() and file.read_text() == "2":
            second.append(real())
        slow_until = second[0] if second else real()
        return begin + (slow_until - begin) / 20 + (real() - slow_until)

    monkeypatch.setattr(time, "monotonic", slow_until_the_second_try)
    made.ask("a", timeout_s=5.0)
    ((_, status, _, _),) = made.wait()
    assert status == "VALIDATION_TIMEOUT"
    assert file.read_text() == "2"


def test_a_pause_of_this_process_is_not_the_validations_time(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = runner(lambda checkpoint: {"done": True})
    made.ask("a", timeout_s=600.0)
    real, paused = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + paused[0])
    made.runner.poll()
    paused[0] = 3600.0
    assert made.wait() == [("a", "VALIDATED", {"done": True}, "")]


def test_a_timeout_ends_the_validation_and_its_children(runner: Any) -> None:
    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        import subprocess

        with subprocess.Popen(["sleep", "600"]):
            time.sleep(600)
        return {}

    made = runner(fn)
    made.ask("a", timeout_s=1.5)
    ((_, status, _, message),) = made.wait()
    assert status == "VALIDATION_TIMEOUT"
    assert message == "not done within 1.5 s (timeout_s)"
    assert processes.wait_until(lambda: not processes.left_over())


def test_close_ends_what_runs(runner: Any) -> None:
    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        Path(checkpoint.path, "begun").touch()
        time.sleep(600)
        return {}

    made = runner(fn)
    made.ask("a")
    made.ask("b")
    assert processes.wait_until((made.folder / "a/begun").exists)
    made.runner.close()
    assert made.answers == []
    assert not processes.left_over()


def test_environment_variables(runner: Any) -> None:
    kwargs = {"runtime_env": {"env_vars": {"MY_VARIABLE": "x"}}, "num_cpus": 1}
    made = runner(lambda checkpoint: {"seen": os.environ["MY_VARIABLE"]}, ray_remote_kwargs=kwargs)
    made.ask("a")
    assert made.wait()[0][2] == {"seen": "x"}


def test_large_functions_and_results(runner: Any) -> None:
    large = list(range(1_000_000))
    made = runner(lambda checkpoint: {"sum": sum(large), "text": "x" * 1_000_000})
    made.ask("a")
    assert made.wait()[0][2] == {"sum": sum(large), "text": "x" * 1_000_000}


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ValidationTaskConfig(timeout_s=0), ValueError, "timeout_s = 0"),
        (lambda: ValidationTaskConfig(timeout_s=-1), ValueError, "timeout_s = -1"),
        (lambda: ValidationTaskConfig(fn_kwargs={"a": object()}), ValueError, r"fn_kwargs\['a'\] must be JSON"),
        (lambda: ValidationTaskConfig(fn_kwargs=[1]), TypeError, "must be a dict"),  # type: ignore[arg-type]
        (lambda: ValidationTaskConfig(fn_kwargs={1: 1}), TypeError, "be argument names"),  # type: ignore[dict-item]
        (lambda: ValidationConfig(3), TypeError, "must be a function, got int"),  # type: ignore[arg-type]
        (lambda: ValidationConfig(print, ray_remote_kwargs={"max_retries": -2}), ValueError, "max_retries.* = -2"),
        (
            lambda: ValidationConfig(print, ray_remote_kwargs={"max_retries": True}),
            ValueError,
            "= True: must be an int",
        ),
        (lambda: ValidationConfig(print, ray_remote_kwargs={"retry_exceptions": [3]}), TypeError, r"got \[3\]"),
        (lambda: ValidationConfig(print, {}), TypeError, "ValidationTaskConfig, got dict"),  # type: ignore[arg-type]
    ],
)
def test_bad_configurations(make: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


# --- With a run ---


def fit(train: Callable[..., Any], fn: Any, workers: int = 1, **options: Any) -> Result:
    validation = fn if isinstance(fn, ValidationConfig) or fn is None else ValidationConfig(fn)
    run = RunConfig(name="run", **options)
    scaling = ScalingConfig(num_workers=workers)
    return DataParallelTrainer(train, scaling_config=scaling, run_config=run, validation_config=validation).fit()


def test_metrics_are_merged_and_rank_the_checkpoints() -> None:
    def train() -> None:
        for step, value in enumerate((3.0, 9.0, 1.0)):
            trireme.report({"step": step, "same": "reported"}, checkpoint=make_checkpoint(value), validation=True)

    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        return {"score": value_of(checkpoint), "same": "validated"}

    config = CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score")
    result = fit(train, fn, checkpoint_config=config)
    assert result.best_checkpoints is not None
    (kept, metrics) = result.best_checkpoints[-1]
    assert metrics == {"step": 1, "same": "validated", "score": 9.0}
    assert value_of(kept) == 9.0
    again = Result.from_path(result.path or "")
    assert again.best_checkpoints is not None
    assert again.best_checkpoints[-1][1] == metrics


@pytest.mark.parametrize("workers", [0, 1])
def test_the_last_metrics_have_what_the_validation_found(workers: int) -> None:
    def train() -> None:
        for step in range(2):
            trireme.report({"step": step, "same": "reported"}, checkpoint=make_checkpoint(step), validation=True)

    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        return {"score": value_of(checkpoint), "same": "validated"}

    expected = {"step": 1, "same": "validated", "score": 1.0}
    result = fit(train, fn, workers)
    assert result.metrics == expected
    if workers:
        assert Result.from_path(result.path or "").metrics == expected


@pytest.mark.parametrize("workers", [0, 1])
def test_the_last_metrics_are_those_of_the_last_report(workers: int) -> None:
    def train() -> None:
        trireme.report({"step": 0}, checkpoint=make_checkpoint(0), validation=True)
        trireme.get_all_reported_checkpoints()
        trireme.report({"step": 1})

    result = fit(train, lambda checkpoint: {"score": 1.0}, workers)
    assert result.metrics == {"step": 1}
    if workers:
        assert Result.from_path(result.path or "").metrics == {"step": 1}


def test_the_task_of_the_lowest_rank_counts() -> None:
    def train() -> None:
        rank = trireme.get_context().get_world_rank()
        if rank == 0:
            trireme.collective.barrier()
        task = ValidationTaskConfig(fn_kwargs={"asked_by": rank})
        trireme.report({"rank": rank}, checkpoint=Checkpoint.from_dict({"rank": rank}), validation=task)
        if rank > 0:
            trireme.collective.barrier()

    result = fit(train, lambda checkpoint, asked_by: {"asked_by": asked_by}, 2)
    assert result.best_checkpoints is not None
    assert result.best_checkpoints[-1][1] == {"rank": 0, "asked_by": 0}


def test_arguments_of_a_report_over_those_of_the_trainer() -> None:
    def train() -> None:
        trireme.report({}, checkpoint=make_checkpoint(0), validation=True)
        task = ValidationTaskConfig(fn_kwargs={"b": "report"})
        trireme.report({}, checkpoint=make_checkpoint(1), validation=task)

    def fn(checkpoint: Checkpoint, a: str, b: str) -> dict[str, Any]:
        return {"a": a, "b": b}

    config = ValidationConfig(fn, ValidationTaskConfig(fn_kwargs={"a": "trainer", "b": "trainer"}))
    result = fit(train, config)
    assert result.best_checkpoints is not None
    assert [metrics for _, metrics in result.best_checkpoints] == [
        {"a": "trainer", "b": "trainer"},
        {"a": "trainer", "b": "report"},
    ]


def test_failures_and_timeouts_leave_the_metrics_alone_and_the_run_going() -> None:
    def train() -> list[str]:
        for step in range(3):
            task = ValidationTaskConfig(timeout_s=2.0) if step == 1 else True
            trireme.report({"step": step}, checkpoint=make_checkpoint(step), validation=task)
        known = trireme.get_all_reported_checkpoints()
        return [each.status.name for each in known]

    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        value = value_of(checkpoint)
        if value == 0:
            raise ValueError("not this one")
        if value == 1:
            time.sleep(600)
        return {"validated": True}

    result = fit(train, fn)
    assert result.return_value == ["VALIDATION_FAILED", "VALIDATION_TIMEOUT", "VALIDATED"]
    assert result.best_checkpoints is not None
    assert [metrics for _, metrics in result.best_checkpoints] == [
        {"step": 0},
        {"step": 1},
        {"step": 2, "validated": True},
    ]


def test_the_run_ends_when_the_validations_have_also_when_training_failed(results: Path) -> None:
    def train() -> None:
        trireme.report({}, checkpoint=make_checkpoint(5), validation=True)
        trireme.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED)
        raise ValueError("after the report")

    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        return {"value": value_of(checkpoint)}

    with pytest.raises(WorkerGroupError, match="after the report"):
        fit(train, fn)
    result = Result.from_path(results / "run")
    assert result.best_checkpoints is not None
    assert [metrics for _, metrics in result.best_checkpoints] == [{"value": 5.0}]


def test_consistency() -> None:
    def train() -> Any:
        trireme.report({"a": 1}, checkpoint=make_checkpoint(0), validation=True)
        committed = trireme.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED)
        early = trireme.get_all_reported_checkpoints(timeout_s=0.2)
        Path(committed[0].checkpoint.path).parent.joinpath("go").touch()
        late = trireme.get_all_reported_checkpoints()
        return [[(each.status.name, each.metrics) for each in known] for known in (committed, early, late)]

    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        while not Path(checkpoint.path).parent.joinpath("go").exists():
            time.sleep(0.01)
        return {"b": 2}

    pending = [(ReportedCheckpointStatus.PENDING_VALIDATION.name, {"a": 1})]
    assert fit(train, fn).return_value == [pending, pending, [("VALIDATED", {"a": 1, "b": 2})]]


def test_pending_validations_are_repeated_when_the_run_is_continued(script: Any, results: Path) -> None:
    source = """
        import os, sys, tempfile, time
        import trireme
        from trireme import *

        def train():
            if trireme.get_checkpoint() is None:
                task = ValidationTaskConfig(fn_kwargs={"text": "kept"})
                trireme.report({"a": 1}, checkpoint=Checkpoint(tempfile.mkdtemp()), validation=task)

        def fn(checkpoint, text):
            if sys.argv[1] == "first":
                print("begun", flush=True)
                time.sleep(600)
            return {"text": text}

        def main():
            trainer = DataParallelTrainer(
                train, run_config=RunConfig(name="run"), validation_config=ValidationConfig(fn))
            print([metrics for _, metrics in trainer.fit().best_checkpoints])

        if __name__ == "__main__":
            main()
    """
    first = script.start(source, "first")
    log = results / "run/logs/validation/checkpoint_000000.log"
    assert processes.wait_until(lambda: log.exists() and "begun" in log.read_text())
    first.kill()
    first.wait()
    assert processes.wait_until(lambda: not processes.left_over()), "the validation dies with its driver"
    done = script.run(source, "second")
    assert "[{'a': 1, 'text': 'kept'}]" in done.stdout, done.stdout + done.stderr


def test_ctrl_c_ends_the_validation_too(script: Any, results: Path) -> None:
    process = script.start(
        """
        import tempfile, time
        import trireme
        from trireme import *

        def train():
            trireme.report({}, checkpoint=Checkpoint(tempfile.mkdtemp()), validation=True)
            while True:
                time.sleep(0.1)
                trireme.report({})

        def fn(checkpoint):
            print("begun", flush=True)
            time.sleep(600)

        if __name__ == "__main__":
            DataParallelTrainer(train, run_config=RunConfig(name="run"), validation_config=ValidationConfig(fn)).fit()
        """
    )
    log = results / "run/logs/validation/checkpoint_000000.log"
    assert processes.wait_until(lambda: log.exists() and "begun" in log.read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(120) != 0
    assert processes.wait_until(lambda: not processes.left_over())


def test_a_validation_may_train(results: Path) -> None:
    def train() -> None:
        trireme.report({}, checkpoint=make_checkpoint(1), validation=True)

    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        inner = DataParallelTrainer(
            lambda: {"inner": trireme.get_context().get_world_size()},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(name="inner", storage_path=results),
        )
        value: dict[str, Any] = inner.fit().return_value
        return value

    result = fit(train, fn)
    assert result.best_checkpoints is not None
    assert result.best_checkpoints[0][1] == {"inner": 2}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"validation": True}, ValueError, "needs a checkpoint to validate"),
        ({"validation": "yes", "checkpoint": True}, TypeError, "True, False or a ValidationTaskConfig"),
        ({"validation": True, "checkpoint": True}, ValueError, "validation_config=ValidationConfig"),
    ],
)
def test_bad_arguments_of_report(arguments: Any, error: type[Exception], words: str) -> None:
    def train() -> None:
        given = arguments | ({"checkpoint": make_checkpoint(1)} if "checkpoint" in arguments else {})
        trireme.report({}, **given)

    with pytest.raises(WorkerGroupError, match=words) as caught:
        fit(train, None)
    assert isinstance(caught.value.__cause__, error)


def test_a_function_that_cannot_be_sent_is_refused_before_anything_starts(results: Path) -> None:
    import threading

    lock = threading.Lock()

    def fn(checkpoint: Checkpoint) -> dict[str, Any]:
        with lock:
            return {}

    with pytest.raises(TypeError, match=r"closure variable 'lock' of .*fn"):
        fit(lambda: None, fn)
    assert not list(results.glob("*/logs/*"))


def test_local_mode_validates_on_the_spot() -> None:
    def train() -> Any:
        trireme.report({"a": 1}, checkpoint=make_checkpoint(7), validation=ValidationTaskConfig({"scale": 2}))
        return [(each.metrics, each.status.name) for each in trireme.get_all_reported_checkpoints()]

    def fn(checkpoint: Checkpoint, scale: int) -> dict[str, Any]:
        return {"value": value_of(checkpoint) * scale, "pid": os.getpid()}

    result = fit(train, fn, 0)
    assert result.metrics == {"a": 1, "value": 14.0, "pid": os.getpid()}
    assert result.return_value == [(result.metrics, "VALIDATED")]
