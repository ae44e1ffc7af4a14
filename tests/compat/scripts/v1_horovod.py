"""HorovodTrainer of the first version."""

import os
import tempfile

import ray.train
from compat_record import STORAGE, described, record
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.horovod import HorovodTrainer


def train_func(config):
    import horovod.torch as hvd
    import torch

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    features = torch.arange(16.0).reshape(8, 2)[hvd.rank() :: hvd.size()] / 16
    for epoch in range(2):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(features), features.sum(1, keepdim=True)).backward()
        optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
            norm = float(sum(parameter.norm() for parameter in model.parameters()))
            checkpoint = Checkpoint.from_directory(folder) if hvd.rank() == 0 else None
            ray.train.report({"norm": norm, "size": hvd.size(), "epoch": epoch}, checkpoint=checkpoint)


if __name__ == "__main__":
    result = HorovodTrainer(
        train_func,
        train_loop_config={"lr": 0.1},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="v1_horovod", storage_path=STORAGE),
    ).fit()
    record(result=described(result, first_version=True))
