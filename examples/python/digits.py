"""Train a small network on handwritten digits with four workers: `make demo`.

python examples/python/digits.py [--epochs 8] [--num-workers 4] [--name digits]

Start it again with the same --name and more --epochs to resume from the newest checkpoint.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import trireme
from trireme import Checkpoint, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer, prepare_data_loader, prepare_model

TEST_SIZE = 360


def load_data():
    """Load the data once, in the driver: 1,797 images of 8 x 8 pixels fit into the configuration."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    return {
        "images": torch.tensor(digits.data, dtype=torch.float32)[order] / 16,
        "labels": torch.tensor(digits.target)[order],
    }


def train(config):
    torch.manual_seed(0)
    images, labels = config["images"], config["labels"]
    loader = DataLoader(
        TensorDataset(images[TEST_SIZE:], labels[TEST_SIZE:]), batch_size=config["batch_size"], shuffle=True
    )
    loader = prepare_data_loader(loader)  # this worker's part, a new order every epoch
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = prepare_model(network)  # averages the gradients of all workers
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    if checkpoint := trireme.get_checkpoint():  # the loader restores its own position
        state = checkpoint.to_dict()
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for epoch in range(loader.epoch, config["epochs"]):
        for some_images, some_labels in loader:
            loss = torch.nn.functional.cross_entropy(model(some_images), some_labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (network(images[:TEST_SIZE]).argmax(1) == labels[:TEST_SIZE]).float().mean()
        state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
        mine = Checkpoint.from_dict(state) if trireme.get_context().get_world_rank() == 0 else None
        trireme.report({"epoch": epoch, "loss": loss.item(), "accuracy": accuracy.item()}, checkpoint=mine)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a small network on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--num-workers", type=int, default=4)
    parser.add_argument("--name", help="name of the run; continues the run if it exists")
    options = parser.parse_args()
    result = TorchTrainer(
        train,
        train_loop_config={"epochs": options.epochs, "batch_size": 16, "lr": 0.005, **load_data()},
        scaling_config=ScalingConfig(num_workers=options.num_workers),
        run_config=RunConfig(name=options.name),
    ).fit()
    print(f"Test accuracy: {result.metrics['accuracy']:.1%}")
