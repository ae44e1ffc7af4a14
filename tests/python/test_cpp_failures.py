"""C++ trainers whose workers and drivers are killed: they behave like Python trainers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import processes
from cpp_programs import BUILD
from runs import events, pids, trireme_command

PROGRAM = BUILD / "tests/failure_program"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: run `make build` first")


class Entry(NamedTuple):
    """A call of the training function, as recorded by its process."""

    pid: int
    calls: int  # number of calls in this process
    thread: int  # whether a thread of an earlier call is still running
    step: int
    world_size: int


def entry(folder: Path, attempt: int, rank: int) -> Entry:
    return Entry(*map(int, (folder / f"entered_{attempt}_{rank}").read_text().split()))


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    made: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        made.append(subprocess.Popen([PROGRAM, *arguments], text=True, **output))  # type: ignore[call-overload]
        return made[-1]

    yield begin
    for process in made:
        if process.poll() is None:
            process.kill()
            process.wait()


def output_of(process: subprocess.Popen[str], code: int = 0) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, out + err
    return out


def wait_for(process: subprocess.Popen[str], condition: Callable[[], object]) -> None:
    assert processes.wait_until(lambda: process.poll() is not None or condition(), 60)
    assert process.poll() is None, process.communicate()


def recorded(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    return events(folder, *kinds) if (folder / "events.jsonl").exists() else []


@pytest.mark.parametrize(
    ("fault", "place", "cause"),
    [
        ("kill", "barrier", "signal"),
        ("exception", "poll", "exception"),
        ("kill", "handler", "signal"),
        ("stop", "barrier", "lost"),
        ("hang", "barrier", "hang"),
        ("exit", "barrier", "exit"),
        ("nested", "barrier", "exception"),
    ],
)
def test_the_others_keep_their_process(start: Any, results: Path, fault: str, place: str, cause: str) -> None:
    out = output_of(start("survives", fault, place))
    assert "RETURNED 2" in out, "from the checkpoint of the previous step"
    folder = results / "run"
    failures = events(folder, "worker_failed")
    assert [(each["rank"], each["cause"]) for each in failures] == [(1, cause)]
    (restarted,) = events(folder, "restarted")
    assert (restarted["kind"], restarted["kept"], restarted["replaced"]) == ("warm", 1, 1)
    before, after = entry(folder, 0, 0), entry(folder, 1, 0)
    assert after == (before.pid, 2, 1, 2, 2), "static variables and threads are those of the first call"
    assert (before.calls, before.step) == (1, 0)
    replaced = entry(folder, 1, 1)
    assert replaced.pid != entry(folder, 0, 1).pid
    assert (replaced.calls, replaced.step) == (1, 2)
    assert pids(folder, 1) == {0: after.pid, 1: replaced.pid}
    assert "caught" not in out, "Interrupted is not a std::exception"
    if fault == "hang":
        (hang,) = events(folder, "hang_detected")
        assert hang["rank"] == 1
        assert "stuck_in_here" in hang["summary"] + Path(hang["path"]).read_text()
    said = (folder / "logs/attempt_0/rank_1.log").read_text()
    assert "main() ended" not in said
    if fault == "exit":
        assert "exit() was called in the training function" in said
        assert failures[0]["message"] == "the process ended with exit code 0 before the training function returned"
    if fault == "nested":
        assert failures[0]["error_type"] == "std::runtime_error"
        inner = "caused by std::invalid_argument: the file is empty"
        assert failures[0]["message"] == f"batch 2 could not be read; {inner}"
        assert inner in said


def test_one_that_only_computes_is_replaced(start: Any, results: Path) -> None:
    assert "RETURNED 2" in output_of(start("survives", "kill", "computation"))
    (restarted,) = events(results / "run", "restarted")
    assert (restarted["kind"], restarted["kept"], restarted["replaced"]) == ("cold", 0, 2)
    assert entry(results / "run", 1, 0).pid != entry(results / "run", 0, 0).pid
    assert entry(results / "run", 1, 0).calls == 1


@pytest.mark.parametrize(("how", "status"), [("returns", 0), ("throws", 1), ("exits", 7), ("reports", 1)])
def test_a_forked_child_cannot_act_for_the_worker(start: Any, results: Path, how: str, status: int) -> None:
    assert "RETURNED of the worker" in output_of(start("forks", how))
    told = [event["metrics"] for event in events(results / "run", "report")]
    assert told == [{"status": status}] * 2
    log = (results / "run/logs/attempt_0/rank_0.log").read_text()
    said = {"throws": "std::runtime_error: of the child", "reports": "report() in a process that was forked from the"}
    assert said.get(how, "") in log
    assert "fit() calls" not in log
    assert events(results / "run", "attempt_failed") == []


def test_elastic(start: Any, results: Path) -> None:
    process = start("elastic")
    folder = results / "run"
    wait_for(process, lambda: recorded(folder, "checkpoint_committed"))
    (folder / "grow").touch()
    wait_for(process, lambda: (folder / "entered_1_1").exists())
    shrunk = trireme_command("capacity", "run", "--num-cpus", "1")
    assert shrunk.returncode == 0, shrunk.stderr
    wait_for(process, lambda: (folder / "entered_2_0").exists())
    (folder / "finish").touch()
    out = output_of(process)
    assert "REFUSED " in out
    sizes = [entry(folder, attempt, 0) for attempt in range(3)]
    assert [each.world_size for each in sizes] == [1, 2, 1]
    assert [each.calls for each in sizes] == [1, 2, 3]
    assert len({each.pid for each in sizes}) == 1
    assert [(each["from"], each["to"]) for each in events(folder, "resizing")] == [(1, 2), (2, 1)]
    assert not events(folder, "attempt_failed")
    steps = [event["metrics"]["step"] for event in events(folder, "report") if event["rank"] == 0]
    assert steps == list(range(len(steps))), "every step was done exactly once"


def worker_pid(process: subprocess.Popen[str], folder: Path, rank: int) -> int:
    path = folder / f"pid_{rank}"
    wait_for(process, lambda: path.exists() and path.read_text().endswith("\n") and recorded(folder, "report"))
    return int(path.read_text())


def test_sigterm_to_a_worker(start: Any, results: Path) -> None:
    process = start("last_checkpoint")
    doomed = worker_pid(process, results / "run", 1)
    os.kill(doomed, signal.SIGTERM)
    assert f"RETURNED SIGTERM from pid {os.getpid()}, ranks 1" in output_of(process)
    (announced,) = events(results / "run", "preemption_announced")
    assert announced["ranks"] == [1]
    (failed,) = events(results / "run", "attempt_failed")
    assert failed["budget"] == "max_preemption_failures"
    after = pids(results / "run", 1)
    assert after[0] == pids(results / "run", 0)[0]
    assert after[1] != doomed


def test_sigterm_to_the_driver(start: Any, results: Path) -> None:
    process = start("last_checkpoint")
    worker_pid(process, results / "run", 0)
    process.send_signal(signal.SIGTERM)
    out = output_of(process, 3)
    assert "FAILED training stopped: SIGTERM to the driver" in out
    assert "continues it" in out
    last = events(results / "run")[-1]
    assert (last["event"], last["outcome"]) == ("run_finished", "stopped")
    assert "RETURNED SIGTERM to the driver, ranks 0 1" in output_of(start("last_checkpoint"))


def test_children_of_workers_end_with_a_killed_driver(start: Any, results: Path) -> None:
    process = start("with_children")
    folder = results / "run"
    wait_for(process, lambda: recorded(folder, "checkpoint_committed"))
    wait_for(process, lambda: sum(p.command == "sleep 600" for p in processes.marked()) == 4)
    process.kill()
    process.wait()
    assert processes.wait_until(lambda: not processes.left_over()), processes.left_over()
    committed = len(events(folder, "checkpoint_committed"))
    out = output_of(start("with_children"))
    assert int(out.rpartition("RETURNED ")[2]) >= committed
    assert events(folder, "run_started")[-1]["resumed"]
