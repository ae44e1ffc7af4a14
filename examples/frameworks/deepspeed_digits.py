"""DeepSpeed ZeRO on two workers: handwritten digits, with sharded checkpoints.

Run it again with the same --name, more --epochs and another --num-workers: it continues.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import deepspeed
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import trireme
from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.deepspeed import load_checkpoint, save_checkpoint
from trireme.torch import TorchTrainer, prepare_data_loader

CONFIG = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": 16,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
    "bf16": {"enabled": True},
}


def train(config: dict[str, Any]) -> None:
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    rows = TensorDataset(torch.tensor(images, dtype=torch.bfloat16) / 16, torch.tensor(labels))
    fitted, held_out = torch.utils.data.random_split(rows, [0.9, 0.1], torch.Generator().manual_seed(0))
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={**CONFIG, "zero_optimization": {"stage": config["stage"]}},
    )
    loader = prepare_data_loader(DataLoader(fitted, batch_size=16, shuffle=True))
    if checkpoint := trireme.get_checkpoint():
        before = load_checkpoint(engine, checkpoint)["workers"]
        print(f"resuming from {os.path.basename(checkpoint.path)}, written by {before} workers")

    for epoch in range(loader.epoch, config["epochs"]):
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(engine(inputs).float(), targets)
            engine.backward(loss)
            engine.step()
        inputs, targets = held_out[:]
        with torch.no_grad():
            accuracy = (engine(inputs).argmax(1) == targets).float().mean().item()
        saved = save_checkpoint(engine, {"workers": engine.world_size})
        trireme.report({"epoch": epoch, "loss": loss.item(), "accuracy": accuracy}, checkpoint=saved)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--stage", type=int, default=2, help="of ZeRO, 0 to 3")
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--name", default=None)
    given = parser.parse_args()
    result = TorchTrainer(
        train,
        train_loop_config={"epochs": given.epochs, "stage": given.stage},
        scaling_config=ScalingConfig(num_workers=given.num_workers),
        run_config=RunConfig(name=given.name, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    print(f"accuracy {result.metrics['accuracy']:.1%} after {result.metrics['epoch'] + 1} epochs")
