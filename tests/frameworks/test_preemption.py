"""A preemption notice in the middle of an epoch: a checkpoint at once, and then the same result as without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import trireme
from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer

STEPS = 40


def notify(config: dict[str, Any], step: int) -> None:
    """As a scheduler does, once."""
    mine = config["preempted"] and trireme.get_context().get_world_rank() == 1
    if mine and step == 5 and trireme.get_checkpoint() is None:
        os.kill(os.getpid(), signal.SIGTERM)


def with_lightning(config: dict[str, Any]) -> Any:
    import lightning.pytorch as pl

    from trireme.lightning import ReportCallback, prepare_trainer

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            notify(config, self.trainer.global_step)
            return (self.layer(batch) - batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    network = Model()
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    callback = ReportCallback(on_train_epoch_end=False, on_validation_end=True)
    trainer = prepare_trainer(pl.Trainer(max_epochs=1, callbacks=[callback], enable_model_summary=False, **options))
    loader = torch.utils.data.DataLoader(torch.arange(2.0 * STEPS).reshape(-1, 1) / STEPS, shuffle=True)
    checkpoint = trireme.get_checkpoint()
    trainer.fit(network, loader, ckpt_path=os.path.join(checkpoint.path, "checkpoint.ckpt") if checkpoint else None)
    return trainer.global_step, [each.tolist() for each in network.parameters()]


def with_transformers(config: dict[str, Any]) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

    from trireme.transformers import ReportCallback, prepare_trainer

    class Notify(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            notify(config, state.global_step)

    set_seed(0)
    sizes = {"vocab_size": 8, "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1}
    network = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    options: dict[str, Any] = {"save_strategy": "no", "report_to": [], "disable_tqdm": True, "max_steps": STEPS}
    trainer = prepare_trainer(
        Trainer(
            model=network,
            args=TrainingArguments(output_dir=config["out"], per_device_train_batch_size=1, **options),
            train_dataset=[{"input_ids": [row % 8] * 4, "labels": [row % 8] * 4} for row in range(2 * STEPS)],
            callbacks=[ReportCallback(), Notify()],
        )
    )
    checkpoint = trireme.get_checkpoint()
    trainer.train(resume_from_checkpoint=os.path.join(checkpoint.path, "checkpoint") if checkpoint else None)
    return trainer.state.global_step, [each.detach().flatten().tolist() for each in network.parameters()]


@pytest.mark.parametrize("train", [with_lightning, with_transformers])
def test_a_notice_in_the_middle_of_an_epoch(tmp_path: Path, train: Any) -> None:
    results = {}
    for preempted in (False, True):
        name = f"preempted_{preempted}"
        results[preempted] = TorchTrainer(
            train,
            train_loop_config={"preempted": preempted, "out": str(tmp_path / name)},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(name=name, failure_config=FailureConfig(preemption_grace_s=300)),
        ).fit()
    steps, weights = results[True].return_value
    assert steps == STEPS
    assert weights == results[False].return_value[1]
    log = Path(results[True].path, "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in log]
    kinds = [event["event"] for event in events]
    assert kinds.index("preemption_announced") < kinds.index("checkpoint_committed") < kinds.index("attempt_failed")
    (failed,) = [event for event in events if event["event"] == "attempt_failed"]
    assert failed["budget"] == "max_preemption_failures"


SCRIPT = """
import os, signal
import lightning.pytorch as pl
import torch
import trireme
from trireme.lightning import ReportCallback

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        if self.trainer.global_step == 5 and self.global_rank == 1 and trireme.get_checkpoint() is None:
            os.kill(os.getpid(), signal.SIGTERM)
        return (self.layer(batch) - batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "max_epochs": 1}
report = ReportCallback(on_train_epoch_end=False, on_validation_end=True)
trainer = pl.Trainer(devices=2, strategy="ddp", callbacks=[report], **options)
checkpoint = trireme.get_checkpoint()
rows = torch.utils.data.DataLoader(torch.arange(80.0).reshape(-1, 1) / 80)
trainer.fit(Model(), rows, ckpt_path=os.path.join(checkpoint.path, "checkpoint.ckpt") if checkpoint else None)
print("finished after", trainer.global_step, "steps, resumed:", checkpoint is not None)
"""


def test_a_notice_to_a_lightning_script_under_trireme_launch(tmp_path: Path, results: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [str(Path(sys.executable).parent / "trireme"), "launch", "-n", "2", "--name", "notice", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"finished after {STEPS} steps, resumed: True" in done.stdout
    log = (results / "notice" / "events.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["event"] for line in log]
    assert kinds.index("preemption_announced") < kinds.index("checkpoint_committed") < kinds.index("attempt_failed")
