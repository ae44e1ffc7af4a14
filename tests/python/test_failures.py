"""Failed workers are replaced and healthy ones are kept: restarts of real processes, and their event logs."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import trireme
from runs import events, fit, pids
from trireme import Checkpoint, DataParallelTrainer, TrainContext, WorkerGroupError, collective
from trireme.backend import Backend, BackendConfig


def attempt() -> int:
    return trireme.get_context()._attempt


def steps(last: int, break_at: Callable[[int, int], None]) -> int:
    """Counts in checkpoints of rank 0; returns the start of this attempt."""
    rank = trireme.get_context().get_world_rank()
    checkpoint = trireme.get_checkpoint()
    first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    for step in range(first, last + 1):
        break_at(rank, step)
        mine = Checkpoint.from_dict({"step": step}) if rank == 0 else None
        trireme.report({"step": step, "pid": os.getpid()}, checkpoint=mine)
        collective.barrier()
    return first


def test_survivors_keep_their_process_and_the_dead_one_is_replaced(results: Path) -> None:
    def train() -> tuple[int, list[int]]:
        # Module state is still there when the function is called again in the same process.
        seen = sys.__dict__.setdefault("attempts_seen", [])
        seen.append(attempt())
        print(f"here is attempt {attempt()}")

        def break_at(rank: int, step: int) -> None:
            if (rank, step, attempt()) == (1, 3, 0):
                os.kill(os.getpid(), signal.SIGKILL)

        return steps(5, break_at), seen

    result = fit(train, 3, max_failures=1, warm_restart=True)
    assert result.return_value == (3, [0, 1])
    before, after = pids(result.path, 0), pids(result.path, 1)
    assert {rank: before[rank] == after[rank] for rank in range(3)} == {0: True, 1: False, 2: True}
    assert [event["kept"] for event in events(result.path, "attempt_started")] == [0, 2]
    assert sorted(event["rank"] for event in events(result.path, "worker_kept")) == [0, 2]
    for number in (0, 1):
        for rank in range(3):
            log = Path(result.path, f"logs/attempt_{number}/rank_{rank}.log")
            assert log.read_text().splitlines() == [f"here is attempt {number}"]

    (told,) = events(result.path, "restarted")
    assert (told["kind"], told["kept"], told["replaced"]) == ("warm", 2, 1)
    assert (told["attempt"], told["checkpoint"]) == (1, "checkpoint_000002")
    phases = [told[f"{name}_s"] for name in ("detect", "decide", "stop", "start", "rendezvous", "restore")]
    assert min(phases) >= 0
    assert sum(phases) == pytest.approx(told["seconds"])


def test_a_worker_whose_function_raised_is_replaced() -> None:
    def train() -> int:
        def break_at(rank: int, step: int) -> None:
            if (rank, step, attempt()) == (1, 2, 0):
                raise ValueError("a broken batch")

        return steps(3, break_at)

    result = fit(train, max_failures=1, warm_restart=True)
    before, after = pids(result.path, 0), pids(result.path, 1)
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)
    assert result.return_value == 2


def in_pure_python() -> None:
    while True:
        pass


def swallows_the_first() -> None:
    try:
        in_pure_python()
    except:  # noqa: E722
        print("swallowed")
    in_pure_python()


WAITS: dict[str, Callable[[], Any]] = {
    "pure Python": in_pure_python,
    "time.sleep": lambda: time.sleep(600),
    "a lock": lambda: threading.Event().wait(),
    "a barrier": lambda: collective.barrier(),
    "a bare except": swallows_the_first,
    "finally": lambda: cleans_up(),
}


def cleans_up() -> None:
    try:
        in_pure_python()
    finally:
        print("cleaned up")


@pytest.mark.parametrize("place", WAITS)
def test_survivors_leave_whatever_they_are_doing(place: str) -> None:
    def train(config: dict[str, Any]) -> None:
        rank = trireme.get_context().get_world_rank()
        collective.barrier()
        if attempt() == 0:
            if rank == 1:
                os._exit(3)
            WAITS[config["place"]]()
        trireme.report({"rank": rank})

    result = fit(train, config={"place": place}, max_failures=1, cancel_timeout_s=30.0, warm_restart=True)
    assert pids(result.path, 0)[0] == pids(result.path, 1)[0]
    assert [told["kind"] for told in events(result.path, "restarted")] == ["warm"]
    said = Path(result.path or "", "logs/attempt_0/rank_0.log").read_text().split("\n")
    assert ("swallowed" in said, "cleaned up" in said) == (place == "a bare except", place == "finally")
    assert not any("Traceback" in line for line in said), "a cancelled worker has no error"


def test_a_survivor_that_does_not_come_is_replaced_too() -> None:
    def train() -> None:
        collective.barrier()
        if attempt() == 0:
            if trireme.get_context().get_world_rank() == 1:
                os._exit(3)
            hashlib.pbkdf2_hmac("sha256", b"native", b"code", 2**31 - 1)  # ignores signals for minutes
        trireme.report({})

    result = fit(train, max_failures=1, cancel_timeout_s=0.3, warm_restart=True)
    assert pids(result.path, 0)[0] != pids(result.path, 1)[0]
    (told,) = events(result.path, "restarted")
    assert (told["kind"], told["kept"], told["replaced"]) == ("cold", 0, 2)
    assert "checkpoint" not in told


def loses_rank_one() -> list[int]:
    """Returns the attempts that a module of this process has recorded."""
    seen = sys.__dict__.setdefault("attempts_seen", [])
    seen.append(attempt())
    collective.barrier()
    if attempt() == 0 and trireme.get_context().get_world_rank() == 1:
        os._exit(3)
    collective.barrier()
    trireme.report({})
    return list(seen)


@pytest.mark.parametrize("options", [{"warm_restart": False}, {"warm_restart": "auto"}, {}])
def test_processes_that_hold_nothing_expensive_are_replaced(options: dict[str, Any]) -> None:
    result = fit(loses_rank_one, max_failures=1, **options)
    assert result.return_value == [1]
    assert not set(pids(result.path, 0).values()) & set(pids(result.path, 1).values())
    assert [told["kind"] for told in events(result.path, "restarted")] == ["cold"]


class Expensive(Backend):
    def holds(self, context: TrainContext) -> str:
        return "a CUDA context"


class Objecting(Expensive):
    def objection(self) -> str:
        return "globals of this attempt"


@dataclass
class BackendOf(BackendConfig):
    kind: str = "Expensive"

    @property
    def backend_cls(self) -> type[Backend]:
        return {"Expensive": Expensive, "Objecting": Objecting}[self.kind]


@pytest.mark.parametrize(
    ("kind", "warm_restart", "kept"),
    [("Expensive", "auto", True), ("Objecting", "auto", False), ("Objecting", True, True), ("Expensive", False, False)],
)
def test_auto_keeps_what_is_expensive_unless_the_framework_objects(kind: str, warm_restart: Any, kept: bool) -> None:
    trainer = partial(DataParallelTrainer, backend_config=BackendOf(kind))
    result = fit(loses_rank_one, max_failures=1, warm_restart=warm_restart, trainer_class=trainer)
    assert result.return_value == ([0, 1] if kept else [1])
    assert (pids(result.path, 0)[0] == pids(result.path, 1)[0]) == kept
    log = Path(result.path or "", "logs/attempt_0/rank_0.log").read_text()
    said = "this process is replaced for the next attempt: globals of this attempt" in log
    assert said == ((kind, warm_restart) == ("Objecting", "auto"))
    assert len(events(result.path, "attempt_failed")) == 1, "a process that is not kept is not a failure"


def test_crash_loops_pause_longer_and_longer() -> None:
    def train() -> None:
        if attempt() < 3:
            raise ValueError(f"error {'abc'[attempt()]}")  # numbers would not make it another error
        trireme.report({})

    result = fit(train, 1, max_failures=3, restart_backoff_s=0.05)
    pauses = events(result.path, "pausing")
    assert [(pause["seconds"], pause["failures"]) for pause in pauses] == [(0.05, 2), (0.1, 3)]


def test_progress_ends_a_crash_loop() -> None:
    def train() -> None:
        for _ in range(attempt() + 1):
            trireme.report({})
        if attempt() < 2:
            raise ValueError(f"error {attempt()}")

    result = fit(train, 1, max_failures=3, restart_backoff_s=600.0)
    assert events(result.path, "pausing") == []


def test_an_error_that_repeats_itself_ends_the_run(results: Path) -> None:
    def train() -> None:
        trireme.report({})
        raise ValueError("no such column")

    with pytest.raises(WorkerGroupError) as caught:
        fit(train, 1, max_failures=20, restart_backoff_s=0.01)
    assert "the same error 3 times in a row at report 1: another restart would not help" in str(caught.value)
    assert "FailureConfig.repeated_error_limit" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    verdicts = events(results / "run", "attempt_failed")
    assert [verdict["next"] for verdict in verdicts] == ["restart", "restart", "fail"]
    assert {verdict["budget"] for verdict in verdicts} == {"max_failures"}


def test_errors_at_different_reports_do_not_count_as_one() -> None:
    def train() -> None:
        for _ in range(attempt()):
            trireme.report({})
        if attempt() < 3:
            raise ValueError("no such column")
        trireme.report({})

    result = fit(train, 1, max_failures=3, repeated_error_limit=2, restart_backoff_s=0.01)
    assert len(events(result.path, "attempt_failed")) == 3


def test_the_budget_is_named_when_it_is_used_up(results: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def train() -> None:
        os._exit(attempt() + 1)

    with pytest.raises(WorkerGroupError, match="exit code 2"):
        fit(train, 1, max_failures=1)
    assert "attempt 1 failed; max_failures = 1 is used up" in capfd.readouterr().out


def test_a_stopped_worker_is_found_and_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    def train() -> int:
        def break_at(rank: int, step: int) -> None:
            if (rank, step, attempt()) == (1, 2, 0):
                os.kill(os.getpid(), signal.SIGSTOP)

        return steps(3, break_at)

    result = fit(train, max_failures=1, warm_restart=True)
    (failure,) = events(result.path, "worker_failed")
    assert (failure["rank"], failure["cause"]) == (1, "lost")
    assert "heartbeat" in failure["message"]
    assert pids(result.path, 0)[0] == pids(result.path, 1)[0]
    (told,) = events(result.path, "restarted")
    assert told["detect_s"] > 0
    assert "restarted warm in " in capfd.readouterr().out
