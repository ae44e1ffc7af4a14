"""Gradient accumulation and clipping: each step uses four small batches and sends the gradients once."""

from contextlib import nullcontext

import torch

import trireme
from trireme import ScalingConfig
from trireme.torch import TorchTrainer, prepare_model

PARTS = 4


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def data(step):
    return torch.randn(64, 8, generator=torch.Generator().manual_seed(step))


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.5)


def clip_and_step(model, optimizer):
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)
    optimizer.step()
    optimizer.zero_grad()
    return norm.item()


def train():
    context = trireme.get_context()
    model = prepare_model(network())
    optimizer = optimizer_of(model)
    exchanges = []
    if context.get_world_size() > 1:
        model.register_comm_hook(exchanges, count_and_average)
    for step in range(3):
        mine = data(step)[context.get_world_rank() :: context.get_world_size()].chunk(PARTS)
        for number, part in enumerate(mine):
            last = number == PARTS - 1
            # Without no_sync() the gradients of every part would be sent.
            with nullcontext() if last else model.no_sync():
                (model(part).square().mean() / PARTS).backward()
        norm = clip_and_step(model, optimizer)
    return {"weights": [p.tolist() for p in model.module.parameters()], "norm": norm, "exchanges": len(exchanges)}


def count_and_average(exchanges, bucket):
    exchanges.append(bucket.index())
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    return allreduce_hook(None, bucket)


def reference():
    """One process, full batches."""
    model = network()
    optimizer = optimizer_of(model)
    for step in range(3):
        model(data(step)).square().mean().backward()
        norm = clip_and_step(model, optimizer)
    return [p.detach() for p in model.parameters()], norm


if __name__ == "__main__":
    result = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit().return_value
    weights, norm = reference()
    for ours, expected in zip(result["weights"], weights, strict=True):
        torch.testing.assert_close(torch.tensor(ours), expected)
    print(f"12 small batches, {result['exchanges']} exchanges of gradients, norm {result['norm']:.4f} clipped to 0.1")
    print(f"equal to full batches in one process, with norm {norm:.4f}")
