"""A worker that fails: fit() reports the rank, the place and the reason, and nothing remains."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import trireme
from trireme import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, WorkerGroupError, collective


class OddError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code


def fails(function: Any, workers: int = 3, **run: Any) -> WorkerGroupError:
    with pytest.raises(WorkerGroupError) as caught:
        scaling = ScalingConfig(num_workers=workers)
        DataParallelTrainer(function, scaling_config=scaling, run_config=RunConfig(name="broken", **run)).fit()
    assert str(caught.value).startswith("Training failed due to worker errors:")
    assert isinstance(caught.value, trireme.TrainingFailedError)
    assert isinstance(caught.value, RuntimeError)
    return caught.value


def on_rank_one(action: Any) -> Any:
    """The other ranks wait for it: their failures are collateral."""

    def train() -> None:
        if trireme.get_context().get_world_rank() == 1:
            print("last words")
            action()
        collective.barrier()
        time.sleep(600)

    return train


def test_exception() -> None:
    def action() -> None:
        raise ValueError("no such batch")

    error = fails(on_rank_one(action))
    text = str(error)
    assert "rank 1" in text
    assert socket.gethostname() in text
    assert "ValueError: no such batch" in text
    assert "in action" in text, "the original traceback"
    assert "last words" in text, "the last lines of the log"
    assert "_worker.py" not in text, "frames of Trireme"
    assert isinstance(error.__cause__, ValueError)
    assert str(error.__cause__) == "no such batch"
    assert isinstance(error.worker_failures[1], ValueError)


def test_pid_is_named() -> None:
    def action() -> None:
        raise ValueError(f"pid {os.getpid()}")

    error = fails(on_rank_one(action))
    assert f"pid {str(error.__cause__).split()[-1]} " in str(error)


def test_chained_exceptions_keep_their_chain() -> None:
    def action() -> None:
        try:
            {}["missing"]
        except KeyError as error:
            raise RuntimeError("outer") from error

    text = str(fails(on_rank_one(action)))
    assert "KeyError: 'missing'" in text
    assert "direct cause" in text


def test_exception_that_cannot_travel_comes_as_text() -> None:
    def action() -> None:
        raise OddError(7, "odd")

    error = fails(on_rank_one(action))
    assert "OddError: odd (7)" in str(error)
    assert "odd (7)" in str(error.__cause__)


@pytest.mark.parametrize("code", [0, 3])
def test_system_exit(code: int) -> None:
    error = fails(on_rank_one(lambda: sys.exit(code)))
    assert f"SystemExit: {code}" in str(error)
    assert "rank 1" in str(error)


@pytest.mark.parametrize("code", [0, 3])
def test_hard_exit(code: int) -> None:
    """A worker succeeds only if it reports success, never by exit code 0."""
    error = fails(on_rank_one(lambda: os._exit(code)))
    assert f"exit code {code}" in str(error)
    assert "rank 1" in str(error)
    assert "last words" in str(error)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP])
def test_signal(number: signal.Signals) -> None:
    error = fails(on_rank_one(lambda: os.kill(os.getpid(), number)))
    assert number.name in str(error)
    assert "rank 1" in str(error)
    assert number.name in str(error.__cause__)


def test_a_crash_shows_the_python_lines_that_led_to_it() -> None:
    def calls_native_code() -> None:
        import ctypes

        ctypes.string_at(1)

    text = str(fails(on_rank_one(calls_native_code)))
    assert "SIGSEGV" in text
    assert "Fatal Python error: Segmentation fault" in text
    assert "in calls_native_code" in text


def test_an_exception_without_text_is_named_by_its_class() -> None:
    def action() -> None:
        raise AssertionError

    error = fails(on_rank_one(action))
    assert "failed: AssertionError\n" in str(error)
    assert "AssertionError: exception" not in str(error)


def test_module_that_the_workers_cannot_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "vanishing_module.py"
    module.write_text("def train():\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import vanishing_module

    module.unlink()
    for cached in tmp_path.glob("__pycache__/*"):
        cached.unlink()
    error = fails(vanishing_module.train)
    assert "ModuleNotFoundError" in str(error)
    assert "vanishing_module" in str(error)


def test_equal_exceptions_of_all_ranks_are_shown_once() -> None:
    def train() -> None:
        raise ValueError("everywhere")

    error = fails(train)
    assert str(error).count("Traceback") == 1
    assert isinstance(error.__cause__, ValueError)


def test_own_children_of_a_worker_die_with_it(tmp_path: Path) -> None:
    """The orphan check of every test finds them by their environment variables."""

    def action() -> None:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        raise ValueError("after starting a child")

    fails(on_rank_one(action))


def test_max_failures_counts_attempts() -> None:
    def train() -> None:
        with open(f"{trireme.get_context().get_trial_dir()}/attempts", "a") as file:
            file.write("x")
        raise ValueError("always")

    fails(train, 1, failure_config=FailureConfig(max_failures=2))
    assert Path(os.environ["TRIREME_RESULTS"], "broken/attempts").read_text() == "xxx"


def test_result_of_a_failed_run_can_be_read() -> None:
    def train() -> None:
        trireme.report({"loss": 2.5})
        raise ValueError("after a report")

    fails(train, 1)
    result = trireme.Result.from_path(Path(os.environ["TRIREME_RESULTS"], "broken"))
    assert result.metrics == {"loss": 2.5}
    assert "after a report" in str(result.error)


def test_from_path_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="not a run folder"):
        trireme.Result.from_path(tmp_path)


def test_the_next_fit_works_after_a_failure() -> None:
    fails(on_rank_one(lambda: os.kill(os.getpid(), signal.SIGKILL)))
    assert DataParallelTrainer(lambda: "fine").fit().return_value == "fine"
