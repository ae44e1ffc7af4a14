"""Tensor and data parallel training on a mesh of 2 x 2 workers, compared with one process.

Workers of one "tp" group share the matrices of a network and use the same data. Workers of one "dp" group use different
data and average their gradients.
"""

import torch
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from trireme import ScalingConfig
from trireme.torch import TorchTrainer, get_device_mesh, prepare_model


def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4), torch.nn.Tanh())


def data(step):
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(step))


def learn(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs in batches:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()


def train():
    mesh = get_device_mesh({"dp": 2, "tp": 2})
    # The first matrix is split by columns, the second by rows: no communication is needed between them.
    model = parallelize_module(make(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    model = prepare_model(model, parallel_strategy="fsdp", parallel_strategy_kwargs={"mesh": mesh["dp"]})
    part = tuple(model[0].weight.to_local().shape)
    learn(model, [data(step)[mesh.get_local_rank("dp") :: 2] for step in range(4)])
    return part, [parameter.full_tensor().tolist() for parameter in model.parameters()]


if __name__ == "__main__":
    part, weights = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=4)).fit().return_value
    reference = make()
    learn(reference, [data(step) for step in range(4)])
    for ours, expected in zip(weights, reference.parameters(), strict=True):
        torch.testing.assert_close(torch.tensor(ours), expected.detach(), atol=1e-6, rtol=1e-4)
    print(f"each of 4 workers holds {part} of {tuple(reference[0].weight.shape)}; equal to one process")
