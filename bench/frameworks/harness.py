"""Runs one training function with two workers under Trireme, under Ray Train or under torchrun, and stamps its steps.

Three fits: the first from the start of the script, a second one, and one in which rank 1 kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

STEPS = 60
_KILLED_AT = 10
_REST_S = 2.0  # a worker dies in the middle of training, not in its first steps

Config = dict[str, Any]  # "mode": trireme, ray or torchrun; "fit": 0, 1 or 2; "folder"


class Steps:
    """Call it after every step."""

    def __init__(self, config: Config, rank: int) -> None:
        self._config, self._rank, self._count = config, rank, 0
        self._name = f"fit_{config['fit']}_rank_{rank}"
        stamp(config["folder"], self._name, "enter")

    def __call__(self) -> None:
        self._count += 1
        stamp(self._config["folder"], self._name, "step")
        if self._config["fit"] == 2 and self._rank == 1 and self._count == _KILLED_AT:
            self._die_once()

    def end(self, barrier: Callable[[], Any]) -> None:
        """Memory is read while all workers exist: they share pages."""
        barrier()
        with open("/proc/self/smaps_rollup") as file:
            (size,) = [line.split()[1] for line in file if line.startswith("Pss:")]
        stamp(self._config["folder"], self._name, f"pss_{size}")
        barrier()

    def _die_once(self) -> None:
        try:
            open(os.path.join(self._config["folder"], "died"), "x").close()
        except FileExistsError:
            return
        time.sleep(_REST_S)
        stamp(self._config["folder"], self._name, "fault")
        os.kill(os.getpid(), signal.SIGKILL)


def stamp(folder: str, name: str, what: str) -> None:
    """One write each: the process may be killed at the next instruction."""
    with open(os.path.join(folder, f"{name}.txt"), "a", buffering=1) as file:
        file.write(f"{what} {time.time()!r}\n")


def main(train: Callable[[Config], None]) -> None:
    mode, folder = sys.argv[1], os.environ["BENCH_FOLDER"]
    if mode == "torchrun":
        train({"mode": mode, "fit": 0, "folder": folder})
        return
    if mode == "ray":
        import ray
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        ray.init(num_cpus=3, include_dashboard=False, _node_ip_address="127.0.0.1")
    else:
        from trireme import FailureConfig, RunConfig, ScalingConfig
        from trireme.torch import TorchTrainer
    for fit in range(int(os.environ["BENCH_FITS"])):
        stamp(folder, f"fit_{fit}", "begin")
        TorchTrainer(
            train,
            train_loop_config={"mode": mode, "fit": fit, "folder": folder},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(
                name=f"fit_{fit}",
                storage_path=os.path.join(folder, "results"),
                failure_config=FailureConfig(max_failures=1),
            ),
        ).fit()


def set_rank_variables(config: Config) -> int:
    """Ray Train does not set the variables that the frameworks read. Returns the rank."""
    if config["mode"] == "ray":
        from ray.train import get_context

        context = get_context()
        os.environ.update(
            RANK=str(context.get_world_rank()),
            WORLD_SIZE=str(context.get_world_size()),
            LOCAL_RANK=str(context.get_local_rank()),
        )
    return int(os.environ["RANK"])
