from __future__ import annotations

import sys
from typing import Any

import pytest

from trireme._preload import frameworks_of

SCRIPT = """
import sys
import trireme

def train():
    return trireme.get_context().get_world_size()

if __name__ == "__main__":
    result = trireme.DataParallelTrainer(train, scaling_config=trireme.ScalingConfig(num_workers=1)).fit()
    print("result", result.return_value, sys.argv[1:], sys.path[0] == sys.argv[0].rpartition("/")[0])
"""


def test_run_sets_the_number_of_workers(script: Any) -> None:
    command = [sys.executable, "-m", "trireme._cli", "run", "--num-workers", "2"]
    done = script.run(SCRIPT, "--flag", "x", command=command)
    assert done.returncode == 0, done.stderr
    assert "num_workers=2 from the command line, in place of 1" in done.stdout
    assert "result 2 ['--flag', 'x'] True" in done.stdout


def test_script_ends_with_its_own_exit_code(script: Any) -> None:
    done = script.run("import sys\nsys.exit(7)\n", command=[sys.executable, "-m", "trireme._run_script"])
    assert done.returncode == 7


def test_missing_script(tmp_path: Any) -> None:
    import subprocess

    command = [sys.executable, "-m", "trireme._run_script", str(tmp_path / "none.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "none.py" in done.stderr


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch\n", ["torch"]),
        ("from torch import nn\nimport numpy as np\n", ["torch", "numpy"]),
        ("def train():\n    import torch.nn\n", ["torch"]),
        ("from trireme.torch import TorchTrainer\n", ["torch"]),
        ("import torchvision\nprint('import numpy')\n", []),
        ("from .torch import local\n", []),
        ("import torch\nthis is no Python", []),
        ("from transformers import AutoTokenizer\n", ["transformers.AutoTokenizer"]),
    ],
)
def test_frameworks_are_seen_in_the_text(source: str, found: list[str]) -> None:
    assert frameworks_of(source) == found


def test_trackers_that_loggers_import_in_the_first_step() -> None:
    lightning = "import lightning.pytorch as pl\n"
    for source, trackers in (
        (lightning + "pl.Trainer(logger=TensorBoardLogger('.'))\n", {"torch.utils.tensorboard"}),
        (lightning + "pl.Trainer(max_epochs=1)\n", {"torch.utils.tensorboard"}),  # Lightning's default
        (lightning + "pl.Trainer(logger=False)\n", set()),
        ("from accelerate import Accelerator\nAccelerator(log_with=['wandb', 'mlflow'])\n", {"wandb", "mlflow"}),
        ("from transformers import Trainer, TrainingArguments\nTrainingArguments(report_to='wandb')\n", {"wandb"}),
        ("import torch, wandb\n", set()),
    ):
        assert set(frameworks_of(source)) & {"torch.utils.tensorboard", "wandb", "mlflow"} == trackers


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("import lightning.pytorch as pl\n", "lightning.pytorch"),
        ("def train():\n    import pytorch_lightning as pl\n", "pytorch_lightning"),
        ("from lightning_fabric import Fabric\n", "lightning_fabric"),
        ("from accelerate import Accelerator\n", "accelerate"),
        ("import deepspeed\n", "deepspeed"),
        ("from transformers import GPT2LMHeadModel, Trainer\n", "transformers.GPT2LMHeadModel"),
        ("import transformers\ntransformers.Trainer()\n", "transformers.trainer"),
    ],
)
def test_frameworks_come_with_what_their_first_step_imports(source: str, part: str) -> None:
    found = frameworks_of(source)
    assert found[0] == "torch" and part in found and "torch._dynamo" in found
