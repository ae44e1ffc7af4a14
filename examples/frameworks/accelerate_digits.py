"""Accelerate on two workers: handwritten digits, gradient accumulation, checkpoints in the middle of an epoch.

Kill a worker while it runs (`kill -9`, or --kill): training resumes at the batch after the last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import trireme
from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.accelerate import load_state, save_state
from trireme.torch import TorchTrainer


def kill_once() -> None:
    if trireme.get_context().get_world_rank() == 1 and trireme.get_context()._attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def train(config: dict[str, Any]) -> None:
    set_seed(0)
    images, labels = load_digits(return_X_y=True)
    rows = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    fitted, held_out = torch.utils.data.random_split(rows, [0.9, 0.1], torch.Generator().manual_seed(0))
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    accelerator = Accelerator(gradient_accumulation_steps=2)
    model, optimizer, train_loader, valid_loader = accelerator.prepare(
        model,
        torch.optim.AdamW(model.parameters(), lr=0.01),
        DataLoader(fitted, batch_size=16, shuffle=True),
        DataLoader(held_out, batch_size=32),
    )
    if checkpoint := trireme.get_checkpoint():
        print(f"resuming from {os.path.basename(checkpoint.path)}")
        load_state(accelerator, checkpoint)

    for epoch in range(train_loader.iteration, config["epochs"]):
        for step, (inputs, targets) in enumerate(train_loader):
            if config["kill"] and (epoch, step) == (1, 25):
                kill_once()
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients and step % 20 == 19:
                trireme.report({"epoch": epoch, "loss": loss.item()}, checkpoint=save_state(accelerator))
        right = count = 0
        with torch.no_grad():
            for inputs, targets in valid_loader:
                found, expected = accelerator.gather_for_metrics((model(inputs).argmax(1), targets))
                right, count = right + int((found == expected).sum()), count + len(expected)
        trireme.report({"epoch": epoch, "accuracy": right / count}, checkpoint=save_state(accelerator))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true", help="kill rank 1 in the middle of the second epoch, once")
    parser.add_argument("--name", default=None)
    given = parser.parse_args()
    result = TorchTrainer(
        train,
        train_loop_config={"epochs": given.epochs, "kill": given.kill},
        scaling_config=ScalingConfig(num_workers=given.num_workers),
        run_config=RunConfig(name=given.name, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    print(f"accuracy {result.metrics['accuracy']:.1%} after {result.metrics['epoch'] + 1} epochs")
