"""Death of the driver in every way: no process, socket or temporary file remains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import processes

WAITING_DRIVER = """
import os, signal, sys, time
import trireme

def train():
    trireme.report({"started": 1})
    trireme.collective.barrier()
    open(os.path.join(trireme.get_context().get_trial_dir(), f"inside_{trireme.get_context().get_world_rank()}"), "w")
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)

if __name__ == "__main__":
    run_config = trireme.RunConfig(
        name="waiting",
        stop_grace_s=600 if "stubborn" in sys.argv else 5,
        failure_config=trireme.FailureConfig(preemption_grace_s=0.5),
    )
    trainer = trireme.DataParallelTrainer(
        train, scaling_config=trireme.ScalingConfig(num_workers=3), run_config=run_config
    )
    try:
        trainer.fit()
    except KeyboardInterrupt:
        print("interrupted")
        sys.exit(42)
"""


def start_and_wait(script: Any, results: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    process: subprocess.Popen[str] = script.start(WAITING_DRIVER, *arguments, **options)
    inside = results / "waiting"
    assert processes.wait_until(lambda: len(list(inside.glob("inside_*"))) == 3 or process.poll() is not None, 60)
    assert process.poll() is None, process.communicate()
    return process


def all_gone() -> bool:
    return processes.wait_until(lambda: not processes.left_over())


def sockets_of_the_run(results: Path) -> list[str]:
    """Other runs of this machine have their own: the run's id is part of the name."""
    run_id = json.loads((results / "waiting/run.json").read_text())["id"]
    return [line for line in Path("/proc/net/unix").read_text().splitlines() if f"@trireme-{run_id}" in line]


def last_event(results: Path) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((results / "waiting/events.jsonl").read_text().splitlines()[-1])
    return event


def test_ctrl_c_stops_cleanly_and_the_run_can_be_continued(script: Any, results: Path) -> None:
    process = start_and_wait(script, results)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 42, err
    assert "interrupted" in out
    assert all_gone(), processes.left_over()
    assert (last_event(results)["event"], last_event(results)["outcome"]) == ("run_finished", "stopped")


def test_ctrl_c_of_the_whole_terminal(script: Any, results: Path) -> None:
    """A terminal sends it to the driver's process group, including the warm process."""
    process = start_and_wait(script, results, start_new_session=True)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 42, err
    assert all_gone(), processes.left_over()


def test_second_ctrl_c_does_not_wait_for_the_grace(script: Any, results: Path) -> None:
    process = start_and_wait(script, results, "stubborn")
    process.send_signal(signal.SIGINT)
    events = results / "waiting/events.jsonl"
    assert processes.wait_until(lambda: "stop_requested" in events.read_text())
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 42, err
    assert all_gone(), processes.left_over()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_driver_killed(script: Any, results: Path, number: signal.Signals, code: int) -> None:
    process = start_and_wait(script, results)
    assert sockets_of_the_run(results), "the controller listens"
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == code
    assert all_gone(), processes.left_over()
    assert not sockets_of_the_run(results)


DRIVER_OF_PARENTS = """
import os, subprocess, sys, time
import trireme

def train():
    subprocess.Popen(["sleep", "600"])
    subprocess.Popen(["sleep", "600"], process_group=0)
    time.sleep(600)

if __name__ == "__main__":
    # Read by the loader: such a worker cannot be forked.
    env = {"env_vars": {"MALLOC_ARENA_MAX": "2"}} if "executed" in sys.argv else {}
    trireme.DataParallelTrainer(
        train,
        scaling_config=trireme.ScalingConfig(num_workers=2),
        run_config=trireme.RunConfig(name="waiting", worker_runtime_env=env),
    ).fit()
"""


@pytest.mark.parametrize("manner", ["forked", "executed"])
def test_children_of_workers_end_with_a_killed_driver(script: Any, results: Path, manner: str) -> None:
    process = script.start(DRIVER_OF_PARENTS, manner)
    assert processes.wait_until(
        lambda: sum(p.command == "sleep 600" for p in processes.marked()) == 4 or process.poll() is not None, 60
    )
    assert process.poll() is None, process.communicate()
    lines = (results / "waiting/events.jsonl").read_text().splitlines()
    started = [event for event in map(json.loads, lines) if event["event"] == "worker_started"]
    assert [event["forked"] for event in started] == [manner == "forked"] * 2
    process.kill()
    process.communicate(timeout=120)
    assert all_gone(), processes.left_over()


def test_a_suspended_driver_continues(script: Any, results: Path) -> None:
    process = start_and_wait(script, results)
    process.send_signal(signal.SIGSTOP)
    time.sleep(1)
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 42


def test_script_that_ends_without_fit_leaves_nothing(script: Any) -> None:
    done = script.run("import trireme.torch\ntrireme.torch.TorchTrainer(lambda: None)\n")
    assert done.returncode == 0, done.stderr
    assert all_gone(), processes.left_over()


def test_uncaught_failure_prints_the_workers_error(script: Any) -> None:
    done = script.run(
        """
        import trireme

        def train():
            raise ValueError("seen by the user")

        trireme.DataParallelTrainer(train).fit()
        """
    )
    assert done.returncode == 1
    assert "ValueError: seen by the user" in done.stderr
    assert "Training failed due to worker errors" in done.stderr
    assert all_gone(), processes.left_over()


def test_no_temporary_files_remain(script: Any, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    state = tmp_path / "state"
    done = script.run(
        "import trireme\ntrireme.DataParallelTrainer(lambda: None).fit()\n",
        env={**os.environ, "TMPDIR": str(temporary), "TRIREME_STATE_DIR": str(state)},
    )
    assert done.returncode == 0, done.stderr
    assert not list(temporary.iterdir())
    entries = [json.loads(entry.read_text()) for entry in state.glob("runs/*.json")]
    assert len(entries) == 1
    assert "secret" not in entries[0], "a finished run stores no secret"


def test_fork_of_the_driver_does_not_disturb_it(script: Any) -> None:
    done = script.run(
        """
        import os, trireme
        trireme.DataParallelTrainer(lambda: None).fit()
        if os.fork() == 0:
            raise SystemExit(0)
        os.wait()
        print(trireme.DataParallelTrainer(lambda: "again").fit().return_value)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "again"
