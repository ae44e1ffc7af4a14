"""torch.compile: compile a model in place before prepare_model(), so that its parameters keep their names."""

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


def train():
    losses = {}
    for compiled in (False, True):
        torch.manual_seed(0)
        network = Network()
        if compiled:
            network.compile()
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
    losses = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit().return_value
    torch.testing.assert_close(losses[True], losses[False], rtol=1e-4, atol=1e-6)
    print(f"loss {losses[True]:.5f} compiled, {losses[False]:.5f} not")
