"""A script that imports its framework before Trireme: the driver is copied where that is safe, and only there."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

import processes

PROBE = """
import os
from trireme._warm_copy import copy_driver
{before}
copy = copy_driver({frameworks})
print("copied" if copy else "not copied")
if copy:
    os.close(copy[1])
    print(os.waitpid(copy[0], 0)[1])
"""


def probe(script: Any, before: str = "", frameworks: tuple[str, ...] = ("os",)) -> list[str]:
    done = script.run(PROBE.format(before=before, frameworks=list(frameworks)))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_copy_ends_when_its_driver_lets_go(script: Any) -> None:
    assert probe(script) == ["copied", "0"]


def test_names_that_imports_and_constants_leave_are_harmless(script: Any) -> None:
    before = "import json\nfrom os.path import join\nfrom pathlib import Path\nEPOCHS = 3\nNAME = 'x'\ndef f(): ..."
    assert probe(script, before)[0] == "copied"


@pytest.mark.parametrize(
    "before",
    [
        "import tempfile; folder = tempfile.TemporaryDirectory()",
        "file = open(__file__)",
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "import beside",
        "import package_beside",
        "copy_driver = (lambda inner: lambda frameworks: inner(frameworks))(copy_driver)",  # not by an import statement
    ],
)
def test_script_that_has_done_more_than_import_is_not_copied(script: Any, before: str) -> None:
    script.write("", "beside.py")
    (script.folder / "package_beside").mkdir()
    script.write("", "package_beside/__init__.py")
    assert probe(script, before) == ["not copied"]


def test_no_copy_without_the_frameworks(script: Any) -> None:
    assert probe(script, frameworks=()) == ["not copied"]
    assert probe(script, frameworks=("os", "decimal")) == ["not copied"]


TRAIN = """
import os

import numpy as np
import torch

from trireme import RunConfig, ScalingConfig
from trireme.torch import TorchTrainer


def train(config):
    weight = torch.ones(300, 300, requires_grad=True)
    (weight @ weight).sum().backward()
    total = weight.grad.sum()
    torch.distributed.all_reduce(total)
    np.linalg.inv(np.eye(300))
    while config["wait"]:
        open(os.path.join(config["wait"], f"inside_{os.environ['RANK']}"), "w").close()
    return float(total), torch.get_num_threads(), open(f"/proc/{os.getppid()}/cmdline").read()


def fit(**config):
    return TorchTrainer(train, train_loop_config=config, scaling_config=ScalingConfig(num_workers=2)).fit()
"""


@pytest.mark.torch
def test_training_after_torch_was_imported_first(script: Any) -> None:
    done = script.run(
        TRAIN
        + """
np.linalg.inv(np.eye(300))  # starts the threads that the fork had ended
for _ in range(2):
    total, threads, parent = fit(wait="").return_value
    assert total == 2 * 2 * 300.0**3, total
    assert threads == 1, threads
    assert "_zygote" not in parent, parent
print("both fits done")
"""
    )
    assert done.returncode == 0, done.stderr
    assert "both fits done" in done.stdout


@pytest.mark.torch
def test_copy_and_workers_die_with_their_driver(script: Any, tmp_path: Path) -> None:
    process = script.start(TRAIN + f"\nfit(wait={str(tmp_path)!r})")
    assert processes.wait_until(lambda: len(list(tmp_path.glob("inside_*"))) == 2, 60)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    assert processes.wait_until(lambda: not processes.left_over()), processes.left_over()


READS = """
import torch
from trireme import ScalingConfig, get_dataset_shard
from trireme.torch import TorchTrainer

def train():
    return sum(len(batch["id"]) for batch in get_dataset_shard("train").iter_batches())

import trireme.data

if __name__ == "__main__":
    datasets = {"train": trireme.data.range(10)}
    print(TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2), datasets=datasets).fit().return_value)
"""


@pytest.mark.torch
def test_a_copy_that_imports_what_datasets_need_still_has_one_thread(script: Any) -> None:
    done = script.run(READS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "5"
    assert "one by one" not in done.stdout + done.stderr
