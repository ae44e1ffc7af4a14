"""A small network in PyTorch Lightning."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from harness import STEPS, Config, Steps, main, set_rank_variables
from torch.utils.data import DataLoader, TensorDataset


class Network(pl.LightningModule):
    def __init__(self, done: Steps) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        self.done = done

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def on_train_batch_end(self, *_: Any) -> None:
        self.done()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def trainer(mode: str) -> pl.Trainer:
    options = {
        "accelerator": "cpu",
        "max_steps": STEPS,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    if mode == "launcher":
        return pl.Trainer(devices=2, strategy="ddp", **options)
    if mode == "trireme":
        from trireme.lightning import prepare_trainer

        return prepare_trainer(pl.Trainer(**options))
    from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, prepare_trainer

    strategy = RayDDPStrategy(process_group_backend="gloo")
    return prepare_trainer(
        pl.Trainer(devices="auto", strategy=strategy, plugins=[RayLightningEnvironment()], **options)
    )


def train(config: Config) -> None:
    done = Steps(config, set_rank_variables(config))
    rows = TensorDataset(torch.randn(64 * STEPS, 64), torch.randint(10, (64 * STEPS,)))
    made = trainer(config["mode"])
    made.fit(Network(done), DataLoader(rows, batch_size=32))
    done.end(torch.distributed.barrier)


if __name__ == "__main__":
    main(train)
