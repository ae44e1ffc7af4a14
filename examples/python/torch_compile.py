"""torch.compile: compile a model in place before prepare_model(), so that its parameters keep their names."""

import argparse

import torch

from trireme import ScalingConfig
from trireme.torch import TorchTrainer, prepare_model


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(8, 16)
        self.narrow = torch.nn.Linear(16, 1)

    def forward(self, inputs):
        return self.narrow(torch.nn.functional.gelu(self.wide(inputs)))


def train(config):
    losses = {}
    for compiled in (False, True):
        torch.manual_seed(0)
        network = Network()
        if compiled:
            network.compile(backend=config["backend"])
        model = prepare_model(network)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
        for _ in range(5):
            loss = (model(inputs) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses[compiled] = loss.item()
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare a compiled model with the same model as it is.")
    parser.add_argument("--backend", default="inductor", help="aot_eager needs no C++ compiler, and is no faster")
    config = vars(parser.parse_args())
    scaling_config = ScalingConfig(num_workers=2)
    losses = TorchTrainer(train, train_loop_config=config, scaling_config=scaling_config).fit().return_value
    torch.testing.assert_close(losses[True], losses[False], rtol=1e-4, atol=1e-6)
    print(f"loss {losses[True]:.5f} compiled, {losses[False]:.5f} not")
