"""Workers inherit what they import: neither a second fit() nor a restart pays for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LIGHTNING = """
import torch
import lightning.pytorch as pl
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, index):
        return self.layer(batch).mean()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
def steps():
    from trireme.lightning import ReportCallback, prepare_trainer
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = prepare_trainer(pl.Trainer(max_epochs=1, callbacks=[ReportCallback()], **quiet))
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(4, 1)))
"""
TRANSFORMERS = """
import torch
def steps():
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    from trireme.transformers import ReportCallback, prepare_trainer
    model = GPT2LMHeadModel(GPT2Config(vocab_size=8, n_positions=4, n_embd=4, n_layer=1, n_head=1))
    data = [{"input_ids": [1] * 4, "labels": [1] * 4}] * 8
    arguments = TrainingArguments("out", max_steps=2, report_to=[], disable_tqdm=True)
    prepare_trainer(Trainer(model=model, args=arguments, train_dataset=data, callbacks=[ReportCallback()])).train()
"""
ACCELERATE = """
import torch
from accelerate import Accelerator
def steps():
    accelerator = Accelerator()
    model = torch.nn.Linear(1, 1)
    loader = torch.utils.data.DataLoader(torch.ones(4, 1))
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    for batch in loader:
        accelerator.backward(model(batch).mean())
        optimizer.step()
"""
DEEPSPEED = """
import torch
import deepspeed
def steps():
    model = torch.nn.Linear(1, 1)
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2},
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)
    for _ in range(2):
        engine.backward(engine(torch.ones(1, 1)).mean())
        engine.step()
"""
TENSORFLOW = """
import tensorflow as tf
def steps():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weight = tf.Variable(1.0)
    @tf.function
    def step(values):
        def of_replica(values):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(values * weight)
            (mean,) = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, [weight]))
            weight.assign_sub(mean)
        strategy.run(of_replica, args=(values,))
    step(tf.ones([4]))
"""
KERAS = """
import numpy as np
import tensorflow as tf
def steps():
    from trireme.keras import ReportCheckpointCallback
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile("adam", "mse")
    data = tf.data.Dataset.from_tensor_slices((np.ones((8, 1)), np.ones((8, 1)))).batch(4)
    model.fit(data, verbose=0, callbacks=[ReportCheckpointCallback([])])
"""
HOROVOD = """
import horovod.torch as hvd
import torch
def steps():
    hvd.init()
    model = torch.nn.Linear(1, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    model(torch.ones(4, 1)).mean().backward()
    optimizer.step()
"""
SCRIPT = """
import os, sys, threading
import trireme
from trireme import ScalingConfig
from {trainer} as Trainer
{steps}
def train():
    before = set(sys.modules)
    threads = len(os.listdir(f"/proc/{{os.getppid()}}/task"))
    warm = "trireme._zygote" in open(f"/proc/{{os.getppid()}}/cmdline").read()
    steps()
    return warm, threads, sorted(set(sys.modules) - before)

if __name__ == "__main__":
    for _ in range(2):
        warm, threads, imported = Trainer(train, scaling_config=ScalingConfig(num_workers=2)).fit().return_value
        print("RESULT", warm, threads, len(imported), *imported)
"""


JOBS = {
    "lightning": LIGHTNING,
    "transformers": TRANSFORMERS,
    "accelerate": ACCELERATE,
    "deepspeed": DEEPSPEED,
    "tensorflow": TENSORFLOW,
    "keras": KERAS,
    "horovod": HOROVOD,
}
TRAINERS = {
    "tensorflow": "trireme.tensorflow import TensorflowTrainer",
    "keras": "trireme.tensorflow import TensorflowTrainer",
    "horovod": "trireme.horovod import HorovodTrainer",
}


@pytest.mark.parametrize("framework", JOBS)
def test_the_first_step_imports_nothing(tmp_path: Path, framework: str) -> None:
    """Also in the first fit(): the warm process has read the script's imports."""
    if framework in ("deepspeed", "horovod"):
        pytest.importorskip(framework)
    trainer = TRAINERS.get(framework, "trireme.torch import TorchTrainer")
    (tmp_path / "script.py").write_text(SCRIPT.format(steps=JOBS[framework], trainer=trainer))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line.split() for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert [line[1:3] for line in told] == [["True", "1"]] * 2
    for line in told:
        assert int(line[3]) < 25, line
