"""Fully sharded training: every worker keeps and stores a part of each parameter.

Checkpoints use torch.distributed.checkpoint: one file per worker; any number of workers can load them.
"""

import tempfile

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import trireme
from trireme import Checkpoint, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer, prepare_model

STEPS = 6


def make():
    torch.manual_seed(0)
    blocks = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU()) for _ in range(3)]
    return torch.nn.Sequential(*blocks, torch.nn.Linear(16, 1))


def save(model, optimizer, step):
    """Each rank saves its part to a separate folder; report() merges the folders."""
    weights, moments = get_state_dict(model, optimizer)
    folder = tempfile.mkdtemp()
    dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=folder)
    return Checkpoint.from_directory(folder)


def load(model, optimizer):
    """Return the step to start with. Each rank reads only the parts that it needs, from the files of any rank."""
    checkpoint = trireme.get_checkpoint()
    if checkpoint is None:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": 0}
    with checkpoint.as_directory() as folder:
        dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return state["step"]


def train(config):
    context = trireme.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    model = prepare_model(make(), parallel_strategy="fsdp", parallel_strategy_kwargs={"layers": [torch.nn.Sequential]})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    first = load(model, optimizer)
    for step in range(first, config["until"]):
        inputs = torch.randn(24, 16, generator=torch.Generator().manual_seed(step))
        loss = (model(inputs[rank::workers]) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        checkpoint = save(model, optimizer, step + 1)
        trireme.report({"step": step}, checkpoint=checkpoint, delete_local_checkpoint_after_upload=True)
    weight = next(model.parameters())
    part = tuple(getattr(weight, "to_local", lambda: weight)().shape)
    print(f"rank {rank} of {workers}: steps {first} to {config['until'] - 1}, holds {part} of {tuple(weight.shape)}")
    return [getattr(p, "full_tensor", lambda p=p: p)().tolist() for p in model.parameters()]


def run(name, workers, until):
    return TorchTrainer(
        train,
        train_loop_config={"until": until},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name=name),
    ).fit()


if __name__ == "__main__":
    run("resharded", 2, STEPS // 2)
    resharded = run("resharded", 3, STEPS).return_value
    straight = run("straight", 1, STEPS).return_value
    for ours, expected in zip(resharded, straight, strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(expected), atol=1e-5, rtol=1e-4)
    print("two workers, then three: the same weights as one worker without interruption")
