"""The guide for PyTorch: an image classifier with prepare_model and prepare_data_loader, without a checkpoint."""

import os

import ray.train
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def get_dataloaders(batch_size):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(64, 1, 28, 28, generator=generator)
    labels = torch.randint(0, 10, (64,), generator=generator)
    train = DataLoader(TensorDataset(images, labels), batch_size=batch_size, shuffle=True)
    test = DataLoader(TensorDataset(images[:32], labels[:32]), batch_size=batch_size)
    return train, test


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(
            nn.Linear(28 * 28, 32), nn.ReLU(), nn.Dropout(0.25), nn.Linear(32, 10), nn.ReLU()
        )

    def forward(self, x):
        return self.linear_relu_stack(self.flatten(x))


def train_func_per_worker(config: dict):
    lr, epochs, batch_size = config["lr"], config["epochs"], config["batch_size_per_worker"]
    train_dataloader, test_dataloader = get_dataloaders(batch_size=batch_size)
    train_dataloader = ray.train.torch.prepare_data_loader(train_dataloader)
    test_dataloader = ray.train.torch.prepare_data_loader(test_dataloader)
    model = NeuralNetwork()
    model = ray.train.torch.prepare_model(model)
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for epoch in range(epochs):
        if ray.train.get_context().get_world_size() > 1:
            # Required for the distributed sampler to shuffle properly across epochs.
            train_dataloader.sampler.set_epoch(epoch)
        model.train()
        for X, y in train_dataloader:
            pred = model(X)
            loss = loss_fn(pred, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        test_loss, num_correct, num_total = 0, 0, 0
        with torch.no_grad():
            for X, y in test_dataloader:
                pred = model(X)
                loss = loss_fn(pred, y)
                test_loss += loss.item()
                num_total += y.shape[0]
                num_correct += (pred.argmax(1) == y).sum().item()
        test_loss /= len(test_dataloader)
        accuracy = num_correct / num_total
        ray.train.report(metrics={"loss": test_loss, "accuracy": accuracy})


def train_fashion_mnist(num_workers=2, use_gpu=False):
    global_batch_size = 32
    train_config = {
        "lr": 1e-3,
        "epochs": 2,
        "batch_size_per_worker": global_batch_size // num_workers,
    }
    scaling_config = ScalingConfig(num_workers=num_workers, use_gpu=use_gpu)
    trainer = TorchTrainer(
        train_loop_per_worker=train_func_per_worker,
        train_loop_config=train_config,
        scaling_config=scaling_config,
    )
    result = trainer.fit()
    print(f"Training result: {result}")
    return result


if __name__ == "__main__":
    result = train_fashion_mnist(num_workers=2, use_gpu=False)
    assert result.error is None and os.path.isdir(result.path)
    print("GUIDE DONE")
