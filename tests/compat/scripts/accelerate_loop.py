"""Hugging Face Accelerate inside a TorchTrainer, from its guide."""

import os
import tempfile

import ray.train
import torch
from accelerate import Accelerator
from compat_record import STORAGE, described, record
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func(config):
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    features = torch.arange(32.0).reshape(16, 2) / 32
    dataset = torch.utils.data.TensorDataset(features, features.sum(1, keepdim=True))
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    loader = torch.utils.data.DataLoader(dataset, batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        rows = 0
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            rows += len(accelerator.gather_for_metrics(x))
        with tempfile.TemporaryDirectory() as folder:
            accelerator.save_model(model, folder, safe_serialization=False)
            checkpoint = Checkpoint.from_directory(folder) if accelerator.is_main_process else None
            mean = accelerator.reduce(loss.detach(), "mean").item()
            ray.train.report({"loss": mean, "rows": rows, "epoch": epoch}, checkpoint=checkpoint)
    return accelerator.num_processes


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        train_loop_config={"lr": 0.1},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(name="accelerate_loop", storage_path=STORAGE),
    ).fit()
    with result.checkpoint.as_directory() as folder:
        record(result=described(result), files=sorted(name for name in os.listdir(folder) if name[0] != "."))
