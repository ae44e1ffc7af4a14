"""Runs one training function with two workers under Trireme, Ray Train or a launcher, and stamps its steps.

Three fits: the first from the start of the script, a second one, and one in which rank 1 kills itself. Or a single one,
whose steps the benchmark requests in blocks (../rotation.py).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

STEPS = int(os.environ.get("BENCH_STEPS", 60))
_KILLED_AT = 10
_REST_S = 2.0  # a worker dies in the middle of training, not in its first steps
_UNREQUESTED = 10  # the first steps compile and open connections

Config = dict[str, Any]  # "mode": trireme, ray or launcher; "fit": 0, 1 or 2; "folder"; "form": the name of the job


class Steps:
    """Call it after every step."""

    def __init__(self, config: Config, rank: int) -> None:
        self._config, self._rank, self._count = config, rank, 0
        self._name = f"fit_{config['fit']}_rank_{rank}"
        self._blocks = Blocks(config["form"], rank) if "BENCH_SOCKET" in os.environ else None
        stamp(config["folder"], self._name, "enter")

    def __call__(self) -> None:
        if self._blocks is not None:
            self._blocks.step()
            return
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


class Blocks:
    """Answers each request with the times of its steps, and waits for the next one in between."""

    def __init__(self, form: str, rank: int) -> None:
        self._form, self._rank = form, rank
        self._open, self._left = STEPS, _UNREQUESTED
        self._connection = socket.socket(socket.AF_UNIX)
        self._requests = self._connection.makefile("r")
        self._stamps: list[int] = []
        self._worked = 0

    def step(self) -> None:
        self._stamps.append(time.perf_counter_ns())
        self._open -= 1
        self._left -= 1
        if self._left:
            return
        if self._open == STEPS - _UNREQUESTED:
            self._connection.connect(os.environ["BENCH_SOCKET"])
            self._connection.sendall(f"{self._form} {self._rank}\n".encode())
        else:
            worked = time.process_time_ns() - self._worked
            taken = [str(after - before) for before, after in pairwise(self._stamps)]
            self._connection.sendall(f"0 {worked} {' '.join(taken)}\n".encode())
        if self._open:
            _, self._left = map(int, self._requests.readline().split())
            self._worked = time.process_time_ns()
            self._stamps = [time.perf_counter_ns()]


def stamp(folder: str, name: str, what: str) -> None:
    """One write each: the process may be killed at the next instruction."""
    with open(os.path.join(folder, f"{name}.txt"), "a", buffering=1) as file:
        file.write(f"{what} {time.time()!r}\n")


def main(train: Callable[[Config], None], trainer: str = "torch.TorchTrainer", in_ray: str = "") -> None:
    """trainer: the module and the class in trireme. in_ray: those in ray.train, if they have other names."""
    mode, folder = sys.argv[1], os.environ["BENCH_FOLDER"]
    config = {"mode": mode, "folder": folder, "form": " ".join(sys.argv[2:])}
    if mode == "launcher":
        train({**config, "fit": 0})
        return
    if mode == "ray":
        import ray
        from ray.train import FailureConfig, RunConfig, ScalingConfig

        ray.init(num_cpus=3, include_dashboard=False, _node_ip_address="127.0.0.1")
    else:
        from trireme import FailureConfig, RunConfig, ScalingConfig
    module, _, name = (in_ray if in_ray and mode == "ray" else trainer).rpartition(".")
    kind = getattr(importlib.import_module(f"{'ray.train' if mode == 'ray' else 'trireme'}.{module}"), name)
    for fit in range(int(os.environ["BENCH_FITS"])):
        stamp(folder, f"fit_{fit}", "begin")
        kind(
            train,
            train_loop_config={**config, "fit": fit},
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


def set_tf_config(config: Config) -> int:
    """Trireme and Ray Train set it. Under torchrun, from its variables. Returns the rank."""
    if config["mode"] == "launcher":
        port = int(os.environ["MASTER_PORT"])
        cluster = {"worker": [f"127.0.0.1:{port + 1 + rank}" for rank in range(2)]}
        task = {"type": "worker", "index": int(os.environ["RANK"])}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    return int(json.loads(os.environ["TF_CONFIG"])["task"]["index"])


def compile_no_operator() -> None:
    """Otherwise DeepSpeed compiles one for two minutes. Not in the script: Ray would pickle `torch.ops` with it."""
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
