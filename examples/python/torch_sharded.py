"""Sharded checkpoints in the format that load_state() reads: every worker stores its part, any number can load it.

Two workers train and store, three resume, and this process reads the complete tensors.
"""

import torch
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import trireme
from trireme import CheckpointUploadMode, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer, load_sharded, prepare_model, save_sharded

STEPS = 6


def state_of(model, optimizer, step):
    """State by parameter name, for every layout: an optimizer's own state_dict() uses indices instead."""
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": step}


def load(model, optimizer):
    """Return the step to start with. Each worker reads only the files that overlap its part."""
    checkpoint = trireme.get_checkpoint()
    if checkpoint is None:
        return 0
    state = state_of(model, optimizer, 0)
    load_sharded(checkpoint, state)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return state["step"]


def train(config):
    context = trireme.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(16, 10), torch.nn.GELU(), torch.nn.Linear(10, 1))
    model = prepare_model(network, parallel_strategy="fsdp")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    first = load(model, optimizer)
    for step in range(first, config["until"]):
        inputs = torch.randn(24, 16, generator=torch.Generator().manual_seed(step))
        loss = (model(inputs[rank::workers]) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trireme.report(
            {"step": step},
            checkpoint=save_sharded(state_of(model, optimizer, step + 1)),
            checkpoint_upload_mode=CheckpointUploadMode.ASYNC,  # training continues while it is written
        )
    weight = next(model.parameters())
    part = tuple(getattr(weight, "to_local", lambda: weight)().shape)
    print(f"rank {rank} of {workers}: steps {first} to {config['until'] - 1}, holds {part} of {tuple(weight.shape)}")


def run(name, workers, until):
    return TorchTrainer(
        train,
        train_loop_config={"until": until},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name=name),
    ).fit()


if __name__ == "__main__":
    run("sharded", 2, STEPS // 2)
    resharded = run("sharded", 3, STEPS).checkpoint.to_dict()  # complete tensors, as from one process
    straight = run("straight", 1, STEPS).checkpoint.to_dict()
    for name, expected in straight["model"].items():
        torch.testing.assert_close(resharded["model"][name], expected, atol=1e-5, rtol=1e-4)
    print(f"two workers, then three: the same {len(straight['model'])} tensors as one worker without interruption")
