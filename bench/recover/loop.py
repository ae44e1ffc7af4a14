"""The training loop of all Python variants: a small network, a checkpoint every few steps, a rank that fails."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Linear, Module, ReLU, Sequential

_STEPS_PER_CHECKPOINT = 5
_STEPS_PER_FAULT = 12
_REST_S = 2.0  # faults occur in the middle of training, not in its first steps

State = dict[str, Any]


def stamp(name: str, what: str) -> None:
    """One write each: the process may be killed at the next instruction."""
    with open(os.path.join(os.environ["BENCH_FOLDER"], f"{name}.txt"), "a", buffering=1) as file:
        file.write(f"{what} {time.time()!r}\n")


def train(
    rank: int,
    ranks: int,
    wrap: Callable[[Module], Module],
    saved: Callable[[], State | None],
    save: Callable[[int, State | None], None],
    go_on: Callable[[int], bool] | None = None,
) -> None:
    """`save` receives the state on rank 0, and None on the others."""
    stamp(f"rank_{rank}", f"enter_{ranks}")
    torch.manual_seed(0)
    network = Sequential(Linear(64, 64), ReLU(), Linear(64, 10))
    model = wrap(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    if state := saved():
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    inputs, targets = torch.randn(32, 64), torch.randint(10, (32,))
    while (go_on or expects_faults)(step):
        step += 1
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        stamp(f"rank_{rank}", "step")
        if step % _STEPS_PER_CHECKPOINT == 0:
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            save(step, state if rank == 0 else None)
        if go_on is None and rank == 1 and step % _STEPS_PER_FAULT == 0 and expects_faults(step):
            break_once(rank, step)


def expects_faults(step: int) -> bool:
    return step < _STEPS_PER_FAULT * (int(os.environ["BENCH_FAULTS"]) + 1)


def break_once(rank: int, step: int) -> None:
    try:
        open(os.path.join(os.environ["BENCH_FOLDER"], f"fault_{step}"), "x").close()
    except FileExistsError:
        return
    time.sleep(_REST_S)
    stamp(f"rank_{rank}", "fault")
    os.kill(os.getpid(), getattr(signal, os.environ["BENCH_SIGNAL"]))
