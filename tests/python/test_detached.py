"""`trireme run --detach` on this machine. tests/engines has those of clusters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import processes
from runs import events, trireme_command


def test_a_detached_script_outlives_its_command(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_PYTHON", sys.executable)
    monkeypatch.chdir(tmp_path)
    path = script.write(
        """
        import os
        import time
        from pathlib import Path

        import trireme
        from trireme import DataParallelTrainer, RunConfig

        def train():
            while not Path("go").exists():
                time.sleep(0.05)

        print("session", os.getsid(0) == os.getpid(), flush=True)
        DataParallelTrainer(train, run_config=RunConfig(name="away", storage_path="runs")).fit()
        """
    )
    told = trireme_command("run", "--detach", str(path))
    assert told.returncode == 0, told.stderr
    (log,) = tmp_path.glob("trireme-*.log")
    assert f"output in {log}" in told.stdout
    folder = tmp_path / "runs" / "away"
    assert processes.wait_until(lambda: (folder / "events.jsonl").exists())
    (tmp_path / "go").touch()
    assert processes.wait_until(lambda: events(folder, "run_finished"))
    assert "session True" in log.read_text()
    assert processes.wait_until(lambda: not processes.left_over())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["show", "--job", "1"], "--job 1: it needs --engine"),
        (["logs", "--engine-option", "a=b"], "--engine-option a=b: it needs --engine"),
        (["stop", "--engine", "hosts:a,b"], "the driver of engine hosts:a,b is on the machine that started the script"),
        (["stop"], "run is required"),
    ],
)
def test_commands_for_detached_scripts_that_cannot_work(
    arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIREME_PYTHON", sys.executable)
    done = trireme_command(*arguments)
    assert done.returncode != 0 and why in done.stderr, done
