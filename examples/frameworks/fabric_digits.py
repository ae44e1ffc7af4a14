"""Lightning Fabric on two workers: a training loop of your own on handwritten digits, resumed inside an epoch."""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
from typing import Any

import torch
from lightning.fabric import Fabric
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import trireme
from trireme import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from trireme.lightning import prepare_fabric
from trireme.torch import TorchTrainer


def train(config: dict[str, Any]) -> None:
    fabric = prepare_fabric(Fabric())  # one model on all workers
    fabric.launch()
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    rows = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model, optimizer = fabric.setup(network, torch.optim.AdamW(network.parameters(), lr=0.01))
    loader = fabric.setup_dataloaders(DataLoader(rows, batch_size=32, shuffle=True))
    state = {"model": model, "optimizer": optimizer, "step": 0}
    if checkpoint := trireme.get_checkpoint():
        with checkpoint.as_directory() as folder:
            fabric.load(os.path.join(folder, "state.ckpt"), state)
        print(f"resuming from step {state['step']}")
    while state["step"] < config["steps"]:
        for batch, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch), targets)
            fabric.backward(loss)
            optimizer.step()
            state["step"] += 1
            if state["step"] % 20 == 0:
                report(fabric, state, loss.item())
            if config["kill"] and state["step"] == 50 and fabric.global_rank == 1 and checkpoint is None:
                os.kill(os.getpid(), signal.SIGKILL)


def report(fabric: Fabric, state: dict[str, Any], loss: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fabric.save(os.path.join(folder, "state.ckpt"), state)  # on all ranks; rank 0 writes
        mine = Checkpoint.from_directory(folder) if fabric.is_global_zero else None
        trireme.report({"step": state["step"], "loss": loss}, checkpoint=mine)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true", help="kill rank 1 at step 50, once")
    parser.add_argument("--name", default=None)
    given = parser.parse_args()
    result = TorchTrainer(
        train,
        train_loop_config={"steps": given.steps, "kill": given.kill},
        scaling_config=ScalingConfig(num_workers=given.num_workers),
        run_config=RunConfig(name=given.name, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    print(f"loss {result.metrics['loss']:.2f} after {result.metrics['step']} steps")
