from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from typing import Any

DRIVER = """
import time, trireme

def train():
    for step in range(4):
        trireme.report({"loss": 1 / (step + 1)})
        time.sleep(0.2)
    print("[not markup] from a worker")

trireme.DataParallelTrainer(train, run_config=trireme.RunConfig(name="shown")).fit()
"""


def run_in_terminal(path: Any, timeout: float = 120) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen([sys.executable, str(path)], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    return process.wait(60), seen.decode(errors="replace")


def test_live_line_in_a_terminal(script: Any) -> None:
    code, seen = run_in_terminal(script.write(DRIVER))
    assert code == 0, seen
    assert "loss" in seen
    assert "reports" in seen
    assert "\x1b[" in seen, "a live line is drawn over"
    assert "[rank 0] [not markup] from a worker" in seen
    assert "finished" in seen


def test_plain_lines_elsewhere(script: Any) -> None:
    done = script.run(DRIVER)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "[rank 0] [not markup] from a worker" in done.stdout
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "shown" in lines[0]
    assert any(line.split()[:1] == ["loss"] for line in lines), "the last metrics are in the table"
