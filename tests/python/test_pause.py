"""All processes are paused for longer than any limit, as in a frozen container or on a suspended laptop."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import processes
from runs import events

DRIVER = """
import os, sys, time
import trireme

def train():
    folder = trireme.get_context().get_trial_dir()
    trireme.report({"pid": os.getpid()})
    trireme.collective.barrier()
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.01)
    trireme.report({"pid": os.getpid()})
    trireme.collective.barrier()

if __name__ == "__main__":
    trireme.DataParallelTrainer(
        train,
        scaling_config=trireme.ScalingConfig(num_workers=2, trainer_resources={}),
        run_config=trireme.RunConfig(
            name="paused", failure_config=trireme.FailureConfig(hang_timeout_s=PAUSE, on_hang="fail")
        ),
    ).fit()
"""

LEASE_S = 1.5
PAUSE_S = 4.0  # longer than the lease, the heartbeat limit and hang_timeout_s


def family(driver: subprocess.Popen[str]) -> list[int]:
    """The driver and all its descendants."""
    return [driver.pid, *(process.pid for process in processes.marked() if process.pid != driver.pid)]


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # a short-lived process that started the others
        os.kill(pid, number)


@pytest.mark.parametrize("first", ["driver", "workers"])
def test_a_pause_of_all_processes_loses_nobody(script: Any, results: Path, first: str) -> None:
    """The first process that wakes up sees the others silent."""
    environment = os.environ | {"TRIREME_LEASE_S": str(LEASE_S)}
    driver = script.start(DRIVER.replace("PAUSE", str(PAUSE_S)), env=environment)
    run = results / "paused"

    def both_inside() -> bool:
        return driver.poll() is not None or ((run / "events.jsonl").exists() and len(events(run, "report")) == 2)

    assert processes.wait_until(both_inside)
    assert driver.poll() is None, driver.communicate()
    paused = family(driver)
    for pid in paused:
        send(pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)  # the pause is under test
    for pid in paused if first == "driver" else reversed(paused):
        send(pid, signal.SIGCONT)
        time.sleep(0.05)
    # Several heartbeats later all processes are still alive.
    time.sleep(1.0)
    (run / "go").touch()
    _, err = driver.communicate(timeout=120)
    assert driver.returncode == 0, err
    assert events(run, "worker_failed", "hang_detected", "attempt_failed") == []
    assert len({event["metrics"]["pid"] for event in events(run, "report")}) == 2
