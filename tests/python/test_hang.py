"""No progress: the stacks of all ranks are written, and the configured action is taken."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

import processes
import trireme
from runs import events, fit, trireme_command
from trireme import UserCallback, WorkerGroupError, collective

# Much longer than the time between two reports, even under load: only the expected hang is detected.
HANG_TIMEOUT_S = 2.0


def waits_for_something(folder: Path) -> None:
    """Waits until the stacks are written."""
    if folder.exists():
        (folder / "here").touch()
    while not list(folder.glob("stacks/*.txt")):
        time.sleep(0.02)


def train(config: dict[str, Any]) -> int:
    context = trireme.get_context()
    for step in range(3):
        if step == 2 and context.get_world_rank() == 1 and context._attempt == 0:
            waits_for_something(Path(context.get_trial_dir() if config["ends"] else "/nowhere"))
        trireme.report({"step": step})
        collective.barrier()
    return context._attempt


def check(folder: Path, then: str) -> None:
    (hang,) = events(folder, "hang_detected")
    assert (hang["rank"], hang["next"]) == (1, then)
    assert re.search(r"rank 0 waits in \S*test_hang\.py:\d+ in train \(in .*barrier\)", hang["summary"])
    assert re.search(r"rank 1 is behind by 1 report: in \S*test_hang\.py:\d+ in waits_for_something", hang["summary"])
    text = Path(hang["path"]).read_text()
    assert hang["path"].startswith(str(folder / "stacks"))
    assert "==== rank 0: 3 reports" in text
    assert "==== rank 1: 2 reports" in text
    assert "in waits_for_something" in text
    assert "in train" in text


def test_warn(results: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = fit(train, config={"ends": True}, hang_timeout_s=HANG_TIMEOUT_S)
    assert result.return_value == 0
    check(results / "run", "warn")
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("warning: no report for")]
    assert "all stacks: " in line


def test_restart(results: Path) -> None:
    result = fit(train, config={"ends": False}, hang_timeout_s=HANG_TIMEOUT_S, on_hang="restart", max_failures=1)
    assert result.return_value == 1
    check(results / "run", "restart")
    assert [failure["cause"] for failure in events(results / "run", "worker_failed")] == ["hang"]


def test_fail(results: Path) -> None:
    with pytest.raises(WorkerGroupError, match=r"Hang: no report for .*rank 1 is behind by 1 report") as caught:
        fit(train, config={"ends": False}, hang_timeout_s=HANG_TIMEOUT_S, on_hang="fail", max_failures=5)
    check(results / "run", "fail")
    assert str(results / "run/stacks") in str(caught.value)
    assert len(events(results / "run", "attempt_started")) == 1


class AsksForStacks(UserCallback):
    def __init__(self) -> None:
        self.said: Any = None

    def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
        if metrics[0]["step"] == 1:
            assert processes.wait_until(Path(run_context.path, "here").exists)
            self.said = trireme_command("stack", "run")


def test_stack_command(results: Path) -> None:
    asks = AsksForStacks()
    result = fit(train, config={"ends": True}, callbacks=[asks])
    assert result.return_value == 0
    assert asks.said.returncode == 0, asks.said.stderr
    assert "==== rank 0: " in asks.said.stdout
    assert "in waits_for_something" in asks.said.stdout
    path = asks.said.stdout.splitlines()[-1].removeprefix("written to ")
    assert "in waits_for_something" in Path(path).read_text()
    assert events(results / "run", "hang_detected") == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"hang_timeout_s": 0.0}, "hang_timeout_s"), ({"on_hang": "panic"}, "must be one of warn, restart, fail")],
)
def test_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(trireme.ConfigError, match=said):
        trireme.FailureConfig(**fields)
