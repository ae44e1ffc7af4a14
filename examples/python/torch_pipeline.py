"""Pipeline parallel training: each worker has some of the layers, and micro-batches pass through them in sequence."""

import torch
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from trireme import ScalingConfig
from trireme.torch import TorchTrainer, get_device, get_device_mesh

PARTS = 4


def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(4)])


def data(step):
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(step))


def loss_of(outputs, targets):
    return torch.nn.functional.mse_loss(outputs, targets)


def train():
    mesh = get_device_mesh({"pp": -1})
    stage, stages = mesh.get_local_rank("pp"), mesh.size()
    layers = make()
    mine = layers[stage * len(layers) // stages : (stage + 1) * len(layers) // stages].to(get_device())
    schedule = ScheduleGPipe(
        PipelineStage(mine, stage, stages, get_device(), group=mesh.get_group("pp")), PARTS, loss_fn=loss_of
    )
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.5)
    for step in range(3):
        optimizer.zero_grad()
        if stage == 0:
            schedule.step(data(step))
        elif stage == stages - 1:
            losses = []
            schedule.step(target=-data(step), losses=losses)
        else:
            schedule.step()
        optimizer.step()
    import torch.distributed as dist

    weights = [None] * stages
    dist.all_gather_object(weights, [parameter.tolist() for parameter in mine.parameters()])
    return [weight for part in weights for weight in part]


if __name__ == "__main__":
    weights = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit().return_value
    reference = make()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.5)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(reference(data(step)), -data(step)).backward()
        optimizer.step()
    for ours, expected in zip(weights, reference.parameters(), strict=True):
        torch.testing.assert_close(torch.tensor(ours), expected.detach())
    print(f"2 stages of 2 layers, {PARTS} small batches per step: equal to one process")
