from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from typing import Any

import pytest

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


COUNTS = """
import os, sys, time, trireme

WORKERS = int(sys.argv[1])


class Seen:
    \"\"\"Stdout that lets the workers end once the progress line has all reports.\"\"\"

    def write(self, text):
        if f"{2 * WORKERS - 1} report" in text:
            open("all_seen", "w").close()
        return sys.__stdout__.write(text)

    def flush(self):
        sys.__stdout__.flush()


def train():
    rank = trireme.get_context().get_world_rank()
    for step in range(1 + 2 * rank):
        trireme.report({"step": step})
    while not os.path.exists("all_seen"):
        time.sleep(0.02)


sys.stdout = Seen()
scaling = trireme.ScalingConfig(num_workers=WORKERS)
trireme.DataParallelTrainer(train, scaling_config=scaling).fit()
"""


@pytest.mark.parametrize(("workers", "progress"), [(1, "1 worker  1 report"), (2, "2 workers  3 reports")])
def test_the_counts_of_progress_and_result_agree(script: Any, workers: int, progress: str) -> None:
    done = script.run(COUNTS, str(workers), cwd=script.folder)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"{progress}(  |\n)", done.stdout)
    assert ["reports", progress.split()[2]] in [line.split() for line in done.stdout.splitlines()]


def test_plain_lines_elsewhere(script: Any) -> None:
    done = script.run(DRIVER)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "[rank 0] [not markup] from a worker" in done.stdout
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert "shown" in lines[0]
    assert any(line.split()[:1] == ["loss"] for line in lines), "the last metrics are in the table"
