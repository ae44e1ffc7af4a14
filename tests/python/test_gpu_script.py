"""`make test-gpu` itself: there is no GPU here, so it runs with --cpu."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TESTS = Path(__file__).resolve().parents[1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpu", *arguments]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.skipif(torch.cuda.device_count() >= 2, reason="has GPUs")
def test_it_refuses_a_machine_without_gpus() -> None:
    done = run()
    assert done.returncode == 2
    assert done.stdout.startswith("make test-gpu needs 2 GPUs: torch ")
    assert "--cpu" in done.stdout


def test_it_names_its_cases() -> None:
    done = run("--cpu", "--case", "nonsense")
    assert done.returncode == 2
    assert "unknown: nonsense; cases: local_rank, kill, exception, device_assert, oom" in done.stdout


@pytest.mark.slow
def test_every_case_that_needs_no_gpu_passes() -> None:
    done = run("--cpu")
    report = done.stdout.partition("=== report\n")[2].splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line.split(":")[0] for line in report[:-1]]
    passing = ("local_rank", "kill", "exception", "oom", "hang", "resize", "async_stall", "memory", "mesh")
    assert sorted(names) == sorted([*(f"ok {name}" for name in passing), "skipped device_assert"])
    assert all(" | " in line for line in report[:-1])
