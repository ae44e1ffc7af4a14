"""A small network learns handwritten digits on four workers: `make demo`.

python examples/python/digits.py [--epochs 8] [--num-workers 4] [--name digits]

A second start with the same --name and more --epochs goes on from the newest checkpoint.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trireme
from trireme import Checkpoint, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer

TEST_SIZE = 360


def load_data():
    """In the driver, once: 1,797 images of 8 x 8 pixels are small enough to travel with the configuration."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    return {
        "images": torch.tensor(digits.data, dtype=torch.float32)[order] / 16,
        "labels": torch.tensor(digits.target)[order],
    }


def save(folder, model, optimizer, epoch):
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, Path(folder) / "state.pt")
    return Checkpoint.from_directory(folder)


def load(model, optimizer):
    """The epoch to begin with: 0, or the one after the checkpoint's."""
    checkpoint = trireme.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        state = torch.load(Path(folder) / "state.pt", weights_only=True)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1


def train(config):
    torch.manual_seed(0)
    images, labels = config["images"], config["labels"]
    train_set = TensorDataset(images[TEST_SIZE:], labels[TEST_SIZE:])
    sampler = DistributedSampler(train_set)  # this worker's part; the process group is ready
    loader = DataLoader(train_set, batch_size=config["batch_size"], sampler=sampler)
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = DistributedDataParallel(network)  # averages the gradients of all workers
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    for epoch in range(load(model, optimizer), config["epochs"]):
        sampler.set_epoch(epoch)
        for some_images, some_labels in loader:
            loss = torch.nn.functional.cross_entropy(model(some_images), some_labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (network(images[:TEST_SIZE]).argmax(1) == labels[:TEST_SIZE]).float().mean()
        metrics = {"epoch": epoch, "loss": loss.item(), "accuracy": accuracy.item()}
        if trireme.get_context().get_world_rank() == 0:
            with tempfile.TemporaryDirectory() as folder:
                trireme.report(metrics, checkpoint=save(folder, model, optimizer, epoch))
        else:
            trireme.report(metrics)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a small network on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--num-workers", type=int, default=4)
    parser.add_argument("--name", help="continue the run of this name, if there is one")
    options = parser.parse_args()
    result = TorchTrainer(
        train,
        train_loop_config={"epochs": options.epochs, "batch_size": 16, "lr": 0.005, **load_data()},
        scaling_config=ScalingConfig(num_workers=options.num_workers),
        run_config=RunConfig(name=options.name),
    ).fit()
    print(f"The network reads {result.metrics['accuracy']:.1%} of the test digits right.")
