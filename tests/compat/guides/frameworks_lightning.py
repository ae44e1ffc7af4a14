"""The guide for Lightning: strategy, environment, callback, prepare_trainer."""

import os

import lightning.pytorch as pl
import ray.train
import ray.train.lightning
import torch
from ray.train import CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch.utils.data import DataLoader, TensorDataset


class ImageClassifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Linear(16, 2)
        self.criterion = torch.nn.CrossEntropyLoss()

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.criterion(self.forward(x), y)
        self.log("loss", loss, on_step=True, prog_bar=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.model.parameters(), lr=0.001)


def train_func():
    data = TensorDataset(torch.rand(64, 16), torch.randint(0, 2, (64,)))
    train_dataloader = DataLoader(data, batch_size=8, shuffle=True)
    model = ImageClassifier()
    trainer = pl.Trainer(
        max_epochs=2,
        devices="auto",
        accelerator="cpu",
        strategy=ray.train.lightning.RayDDPStrategy(),
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        callbacks=[ray.train.lightning.RayTrainReportCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer = ray.train.lightning.prepare_trainer(trainer)
    trainer.fit(model, train_dataloaders=train_dataloader)


if __name__ == "__main__":
    trainer = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(
            name="lightning_guide",
            checkpoint_config=CheckpointConfig(
                num_to_keep=1, checkpoint_score_attribute="loss", checkpoint_score_order="min"
            ),
        ),
    )
    result = trainer.fit()
    with result.checkpoint.as_directory() as checkpoint_dir:
        state = torch.load(
            os.path.join(checkpoint_dir, ray.train.lightning.RayTrainReportCallback.CHECKPOINT_NAME), weights_only=False
        )
    model = ImageClassifier()
    model.load_state_dict(state["state_dict"])
    assert result.metrics["epoch"] == 1 and result.metrics["step"] == 8, result.metrics
    print("GUIDE DONE")
