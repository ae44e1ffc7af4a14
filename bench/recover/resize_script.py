"""The loop under Trireme while the capacity changes: 2 workers, 4, 2 again."""

import os
import threading
import time
from pathlib import Path

from loop import stamp, train
from trireme_script import save, saved

import trireme
from trireme import RunConfig, ScalingConfig
from trireme.torch import TorchTrainer, prepare_model

FOLDER = Path(os.environ["BENCH_FOLDER"])
REST_S = 2.0


def train_func() -> None:
    context = trireme.get_context()
    train(context.get_world_rank(), context.get_world_size(), prepare_model, saved, save, go_on)


def go_on(step: int) -> bool:
    """Returns the same value on every rank."""
    done: bool = trireme.collective.broadcast_from_rank_zero((FOLDER / "done").exists()) if step % 5 == 0 else False
    return not done


def all_step_with(ranks: int) -> bool:
    """Whether each rank has last entered the function with this number of ranks, and has completed steps."""
    for rank in range(ranks):
        path = FOLDER / f"rank_{rank}.txt"
        lines = path.read_text().split("\n") if path.exists() else []
        entered = [i for i, line in enumerate(lines) if line.startswith("enter")]
        if not entered or not lines[entered[-1]].startswith(f"enter_{ranks} ") or len(lines) < entered[-1] + 3:
            return False
    return True


def resize() -> None:
    for ranks in [2, 4] * int(os.environ["BENCH_FAULTS"]) + [2]:
        if ranks != 2 or (FOLDER / "capacity.txt").exists():
            stamp("capacity", f"enter_{ranks}")
            trireme.set_capacity(num_cpus=ranks + 1)  # one CPU is for the trainer
        while not all_step_with(ranks):
            time.sleep(0.05)
        time.sleep(REST_S)
    (FOLDER / "done").touch()


if __name__ == "__main__":
    trireme.init(num_cpus=3)
    threading.Thread(target=resize, daemon=True).start()
    TorchTrainer(
        train_func, scaling_config=ScalingConfig(num_workers=(2, 4)), run_config=RunConfig(name="recover")
    ).fit()
