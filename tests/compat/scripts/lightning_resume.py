"""Lightning with datasets of Ray, a failure, and a checkpoint to resume from; a callback with names of its own."""

import os
import tempfile

import lightning.pytorch as pl
import ray.data
import ray.train
import torch
from compat_record import STORAGE, described, record
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, RayTrainReportCallback, prepare_trainer
from ray.train.torch import TorchTrainer


class Model(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layer(batch["x"].unsqueeze(1)).squeeze(1), batch["x"] * 2)
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        self.log("rows", float(len(batch["x"])), on_epoch=True, reduce_fx="sum", sync_dist=True)

    def on_train_epoch_start(self):
        self.log("epoch_seen", float(self.current_epoch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


class FailOnce(pl.Callback):
    def __init__(self, mark):
        self.mark = mark

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1 and trainer.global_rank == 1 and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            raise RuntimeError("once")


class OwnReport(pl.Callback):
    def on_validation_epoch_end(self, trainer, module):
        if trainer.sanity_checking:
            return
        with tempfile.TemporaryDirectory() as folder:
            trainer.save_checkpoint(os.path.join(folder, "model.ckpt"), weights_only=False)
            values = {name: value.item() for name, value in trainer.callback_metrics.items()}
            checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({**values, "own": True, "at": trainer.current_epoch}, checkpoint=checkpoint)


def train_func(config):
    train = ray.train.get_dataset_shard("train").iter_torch_batches(batch_size=8, dtypes=torch.float32)
    valid = ray.train.get_dataset_shard("valid").iter_torch_batches(batch_size=2, dtypes=torch.float32)
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        devices="auto",
        strategy=RayDDPStrategy(find_unused_parameters=False),
        plugins=[RayLightningEnvironment()],
        callbacks=[FailOnce(config["mark"]), OwnReport() if config["own"] else RayTrainReportCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer = prepare_trainer(trainer)
    path = None
    checkpoint = ray.train.get_checkpoint()
    name = "model.ckpt" if config["own"] else "checkpoint.ckpt"
    if checkpoint:
        with checkpoint.as_directory() as folder:
            path = os.path.join(folder, name)
            trainer.fit(Model(0.1), train_dataloaders=train, val_dataloaders=valid, ckpt_path=path)
    else:
        trainer.fit(Model(0.1), train_dataloaders=train, val_dataloaders=valid)
    return [path is not None, trainer.current_epoch, trainer.global_step]


def run(own):
    rows = [{"x": float(i) / 16} for i in range(16)]
    result = TorchTrainer(
        train_func,
        train_loop_config={"own": own, "mark": os.path.join(tempfile.mkdtemp(), "mark")},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name=f"lightning_resume_{own}",
            storage_path=STORAGE,
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
        datasets={"train": ray.data.from_items(rows), "valid": ray.data.from_items(rows[:8])},
    ).fit()
    shown = described(result)
    with result.checkpoint.as_directory() as folder:
        shown["files"] = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    return shown


if __name__ == "__main__":
    record(theirs=run(False), own=run(True))
