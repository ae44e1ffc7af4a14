"""Restarts with process groups that fail like NCCL: who is kept, who is blamed, and what happens if abort() hangs."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import like_nccl
import trireme
from like_nccl import LikeNccl
from runs import events, fit
from trireme import Checkpoint

torch = pytest.importorskip("torch")

from trireme.torch import TorchTrainer  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(like_nccl.MODULE is None, reason="the module nccl_like is not built: run `make build` first"),
]


def train(config: dict[str, Any]) -> int:
    """Three steps of DDP, or of plain all_reduce(). Rank 1 breaks in the second one of the first attempt."""
    import torch.distributed as dist

    context = trireme.get_context()
    checkpoint = trireme.get_checkpoint()
    first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    model = torch.nn.Linear(4, 1)
    if config["model"] == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    for step in range(first, 3):
        if (step, context._attempt, context.get_world_rank()) == (1, 0, 1):
            fail(config["fault"])
        if config["model"] == "ddp":
            model(torch.ones(2, 4)).sum().backward()
        else:
            dist.all_reduce(torch.ones(1))
        mine = Checkpoint.from_dict({"step": step}) if context.get_world_rank() == 0 else None
        trireme.report({"step": step}, checkpoint=mine)
    return first


def fail(fault: str) -> None:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "raise":
        raise ValueError("broken")
    while True:  # a hang
        time.sleep(0.01)


def run(config: dict[str, Any], nccl: LikeNccl, **options: Any) -> trireme.Result:
    trainer = partial(TorchTrainer, torch_config=nccl)
    return fit(partial(train), 3, config, trainer_class=trainer, max_failures=1, **options)


def test_the_watchdog_ends_the_process_like_nccl() -> None:
    nccl = LikeNccl(watchdog=True, timeout_s=1.0)
    result = run({"model": "plain", "fault": "hang"}, nccl, restart_backoff_s=0.01)
    died = [each for each in events(result.path, "worker_failed") if each["cause"] == "signal"]
    assert died, "ranks 0 and 2 wait for rank 1, and their watchdogs end them"
    log = Path(result.path or "", f"logs/attempt_0/rank_{died[0]['rank']}.log").read_text()
    assert "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" in log
    assert "Process group watchdog thread terminated with exception" in log
