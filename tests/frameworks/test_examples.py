"""The examples of the frameworks, as a user runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "frameworks"


def run(name: str, *arguments: str, cwd: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name), "--name", name, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_lightning_resumes_after_a_kill(tmp_path: Path) -> None:
    text = run("lightning_digits.py", "--kill", "--epochs", "3", cwd=tmp_path)
    assert "SIGKILL" in text and "resuming from checkpoint_000001" in text
    accuracy = re.search(r"accuracy ([\d.]+)% after 78 steps", text)
    assert accuracy and float(accuracy[1]) > 85


def test_transformers_learns_from_shards(tmp_path: Path) -> None:
    text = run("transformers_text.py", cwd=tmp_path)
    loss = re.search(r"evaluation loss ([\d.]+) after 60 steps", text)
    assert loss and float(loss[1]) < 2.5


def test_fabric_resumes_after_a_kill(tmp_path: Path) -> None:
    text = run("fabric_digits.py", "--kill", cwd=tmp_path)
    assert "SIGKILL" in text and "resuming from step 40" in text
    loss = re.search(r"loss ([\d.]+) after 100 steps", text)
    assert loss and float(loss[1]) < 0.5


def test_tensorflow_resumes_after_a_kill(tmp_path: Path) -> None:
    text = run("tensorflow_digits.py", "--kill", cwd=tmp_path)
    assert "SIGKILL" in text and "resuming from checkpoint_000000" in text
    loss = re.search(r"loss ([\d.]+) after 3 epochs", text)
    assert loss and float(loss[1]) < 0.7


def test_keras_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    text = run("keras_digits.py", "--kill", "--epochs", "3", cwd=tmp_path)
    assert "SIGKILL" in text and "resuming from checkpoint_0000" in text
    accuracy = re.search(r"accuracy ([\d.]+)% after 3 epochs", text)
    assert accuracy and float(accuracy[1]) > 85


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_boosting_resumes_after_a_kill(library: str, tmp_path: Path) -> None:
    text = run(f"{library}_digits.py", "--kill", cwd=tmp_path)
    assert "SIGKILL" in text and re.search(r"restarted .* from checkpoint_000004", text)
    accuracy = re.search(r"accuracy ([\d.]+)% of 4\d\d digits after 20 rounds", text)
    assert accuracy and float(accuracy[1]) > 90


def test_jax_resumes_after_a_kill(tmp_path: Path) -> None:
    text = run("jax_digits.py", "--kill", "--epochs", "3", cwd=tmp_path)
    assert "SIGKILL" in text and "resuming from step 25" in text
    accuracy = re.search(r"accuracy ([\d.]+)% after 75 steps", text)
    assert accuracy and float(accuracy[1]) > 80


@pytest.mark.skipif(find_spec("horovod") is None, reason="`make horovod` builds the wheel of Horovod")
def test_horovod_continues_after_a_kill(tmp_path: Path) -> None:
    text = run("horovod_digits.py", "--kill", "--epochs", "4", cwd=tmp_path)
    assert "SIGKILL" in text and "continuing from epoch 2" in text
    accuracy = re.search(r"accuracy ([\d.]+)% after 4 epochs", text)
    assert accuracy and float(accuracy[1]) > 80


def test_accelerate_resumes_after_a_kill(tmp_path: Path) -> None:
    text = run("accelerate_digits.py", "--kill", "--epochs", "3", cwd=tmp_path)
    assert "SIGKILL" in text and "resuming from checkpoint_000003" in text
    accuracy = re.search(r"accuracy ([\d.]+)% after 3 epochs", text)
    assert accuracy and float(accuracy[1]) > 85


def test_deepspeed_resumes_with_another_number_of_workers(tmp_path: Path) -> None:
    run("deepspeed_digits.py", "--epochs", "1", cwd=tmp_path)
    text = run("deepspeed_digits.py", "--epochs", "2", "--num-workers", "1", cwd=tmp_path)
    assert "resuming from checkpoint_000000, written by 2 workers" in text
    accuracy = re.search(r"accuracy ([\d.]+)% after 2 epochs", text)
    assert accuracy and float(accuracy[1]) > 85
