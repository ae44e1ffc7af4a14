"""Activation checkpointing: activations are discarded and recomputed in the backward pass."""

import torch
from torch.utils.checkpoint import checkpoint

from trireme import ScalingConfig
from trireme.torch import TorchTrainer, prepare_model


class Deep(torch.nn.Module):
    def __init__(self, recompute):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU()) for _ in range(8)
        )
        self.recompute = recompute

    def forward(self, values):
        for layer in self.layers:
            values = checkpoint(layer, values, use_reentrant=False) if self.recompute else layer(values)
        return values


def kept_bytes(model, inputs):
    """The bytes that autograd keeps for the backward pass."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.nbytes) or tensor, lambda t: t):
        loss = model(inputs).square().mean()
    loss.backward()
    return sum(kept)


def train():
    inputs = torch.randn(256, 32)
    found = {}
    for recompute in (False, True):
        torch.manual_seed(0)
        model = prepare_model(Deep(recompute))
        size = kept_bytes(model, inputs)
        found[recompute] = size, [parameter.grad for parameter in model.parameters()]
    for plain, recomputed in zip(found[False][1], found[True][1], strict=True):
        torch.testing.assert_close(plain, recomputed)
    return f"equal gradients; kept {found[False][0] // 1024} KiB without, {found[True][0] // 1024} KiB with recomputing"


if __name__ == "__main__":
    print(TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit().return_value)
