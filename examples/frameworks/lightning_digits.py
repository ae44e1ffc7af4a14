"""PyTorch Lightning on two workers: handwritten digits, with checkpoints in the middle of an epoch.

Kill a worker while it runs (`kill -9`, or --kill): training resumes at the batch after the last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import trireme
from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.lightning import ReportCallback, prepare_trainer
from trireme.torch import TorchTrainer


class Digits(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        right = (self.network(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class KillOnce(pl.Callback):
    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 30 and trainer.global_rank == 1 and trireme.get_context()._attempt == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def train(config: dict[str, Any]) -> None:
    pl.seed_everything(0)
    images, labels = load_digits(return_X_y=True)
    rows = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    fitted, held_out = torch.utils.data.random_split(rows, [0.9, 0.1], torch.Generator().manual_seed(0))
    trainer = pl.Trainer(
        max_epochs=config["epochs"],
        callbacks=[ReportCallback(every_n_train_steps=20), *([KillOnce()] if config["kill"] else [])],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer = prepare_trainer(trainer)  # one model on all workers
    loaders = DataLoader(fitted, batch_size=32, shuffle=True), DataLoader(held_out, batch_size=32)
    checkpoint = trireme.get_checkpoint()
    if checkpoint is None:
        trainer.fit(Digits(), *loaders)
        return
    with checkpoint.as_directory() as folder:
        print(f"resuming from {os.path.basename(checkpoint.path)}")
        trainer.fit(Digits(), *loaders, ckpt_path=os.path.join(folder, "checkpoint.ckpt"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true", help="kill rank 1 at step 30, once")
    parser.add_argument("--name", default=None)
    given = parser.parse_args()
    result = TorchTrainer(
        train,
        train_loop_config={"epochs": given.epochs, "kill": given.kill},
        scaling_config=ScalingConfig(num_workers=given.num_workers),
        run_config=RunConfig(name=given.name, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    print(f"accuracy {result.metrics['accuracy']:.1%} after {result.metrics['step']} steps")
