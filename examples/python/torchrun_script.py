"""An ordinary torchrun script. Only the lines with trireme are added, to resume after a restart.

trireme launch -n 2 --max-failures 1 examples/python/torchrun_script.py [--steps 6] [--fail-at 3]
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import trireme


def main():
    parser = argparse.ArgumentParser(description="Learn to add four numbers.")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--fail-at", type=int, default=-1, help="rank 1 fails at this step of the first attempt")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, restarts = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.manual_seed(0)
    network = torch.nn.Linear(4, 1)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    first = 0
    if checkpoint := trireme.get_checkpoint():
        state = checkpoint.to_dict()
        network.load_state_dict(state["network"])
        first = state["step"] + 1
    for step in range(first, options.steps):
        inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(100 * step + rank))
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = {"network": network.state_dict(), "step": step}
        mine = trireme.Checkpoint.from_dict(state) if rank == 0 else None
        trireme.report({"step": step, "loss": loss.item()}, checkpoint=mine)
        if step == options.fail_at and rank == 1 and restarts == 0:
            raise RuntimeError("a broken batch")
    if rank == 0:
        mean = network.weight.mean().item()
        print(f"{dist.get_world_size()} workers, steps {first} to {options.steps - 1}, mean weight {mean:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
