"""Lightning with Ray's strategy, environment and callback."""

import lightning.pytorch as pl
import ray.train.lightning
import torch
from compat_record import STORAGE, described, record
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, _):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss_seen", torch.tensor(1.0), sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train_func():
    loader = torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=2)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices="auto",
        strategy=ray.train.lightning.RayDDPStrategy(),
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        callbacks=[ray.train.lightning.RayTrainReportCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer = ray.train.lightning.prepare_trainer(trainer)
    trainer.fit(Model(), loader)
    return [trainer.world_size, trainer.global_step]


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="lightning_fit", storage_path=STORAGE),
    ).fit()
    with result.checkpoint.as_directory() as folder:
        import os

        record(result=described(result), files=[name for name in os.listdir(folder) if not name.startswith(".")])
