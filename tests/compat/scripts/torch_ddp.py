"""DDP with a score, from the getting-started guide."""

import os
import tempfile

import ray.train
import ray.train.torch
import torch
from compat_record import STORAGE, described, record
from ray.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func(config):
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(torch.nn.Linear(4, 1))
    rank = ray.train.get_context().get_world_rank()
    features = torch.arange(32.0).reshape(8, 4)[rank::2] / 32
    target = features.sum(1, keepdim=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(3):
        loss = torch.nn.functional.mse_loss(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if rank == 0:
                torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"loss": loss.item(), "epoch": epoch}, checkpoint=checkpoint)
    return str(ray.train.torch.get_device())


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        train_loop_config={"lr": 0.1},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="torch_ddp",
            storage_path=STORAGE,
            checkpoint_config=CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
            ),
        ),
    ).fit()
    with result.checkpoint.as_directory() as folder:
        state = torch.load(os.path.join(folder, "model.pt"))
    record(
        result=described(result),
        weights=state["weight"].flatten().tolist(),
        best=os.path.basename(result.get_best_checkpoint("loss", "min").path),
        again=described(ray.train.Result.from_path(result.path))["metrics"],
    )
