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
from runs import events, fit, pids

torch = pytest.importorskip("torch")

from trireme.torch import TorchTrainer  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(like_nccl.MODULE is None, reason="the module nccl_like is not built: run `make build` first"),
]


def train(config: dict[str, Any]) -> None:
    """Three steps of DDP, or of plain all_reduce(). In the first attempt, rank 1 breaks after the first collective."""
    import torch.distributed as dist

    context = trireme.get_context()
    model = torch.nn.Linear(4, 1)
    if config["model"] == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    for step in range(3):
        if config["model"] == "ddp":
            model(torch.ones(2, 4)).sum().backward()
        else:
            dist.all_reduce(torch.ones(1))
        if (context._attempt, context.get_world_rank()) == (0, 1):
            fail(config["fault"])
        trireme.report({"step": step})


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


@pytest.mark.parametrize(
    ("model", "fault", "cause"),
    [
        ("ddp", "kill", "signal"),
        ("plain", "kill", "signal"),
        ("plain", "raise", "exception"),
        ("plain", "hang", "hang"),
    ],
)
def test_survivors_are_kept(model: str, fault: str, cause: str) -> None:
    # Nothing but an abort ends the survivors' collectives before this timeout, after which they are replaced.
    options = {"hang_timeout_s": 5.0, "on_hang": "restart"} if fault == "hang" else {}
    result = run({"model": model, "fault": fault}, LikeNccl(), cancel_timeout_s=30.0, **options)
    (failure,) = [each for each in events(result.path, "worker_failed") if not each["collateral"]]
    assert (failure["rank"], failure["cause"]) == (1, cause)
    (restarted,) = events(result.path, "restarted")
    assert (restarted["kind"], restarted["kept"], restarted["replaced"]) == ("warm", 2, 1)
    before, after = pids(result.path, 0), pids(result.path, 1)
    assert [rank for rank in before if before[rank] == after[rank]] == [0, 2]


def test_a_worker_whose_abort_hangs_is_replaced() -> None:
    nccl = LikeNccl(abort_hangs=True)
    result = run({"model": "plain", "fault": "kill"}, nccl, cancel_timeout_s=1.0)
    (restarted,) = events(result.path, "restarted")
    assert (restarted["kept"], restarted["replaced"]) == (1, 2)
    before, after = pids(result.path, 0), pids(result.path, 1)
    assert [rank for rank in before if before[rank] == after[rank]] == [2], "rank 0 never becomes ready"


def test_the_watchdog_ends_the_process_like_nccl() -> None:
    nccl = LikeNccl(watchdog=True, timeout_s=1.0)
    result = run({"model": "plain", "fault": "hang"}, nccl, restart_backoff_s=0.01)
    died = [each for each in events(result.path, "worker_failed") if each["cause"] == "watchdog"]
    assert died, "ranks 0 and 2 wait for rank 1, and their watchdogs end them"
    log = Path(result.path or "", f"logs/attempt_0/rank_{died[0]['rank']}.log").read_text()
    assert "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" in log
    assert "Process group watchdog thread terminated with exception" in log
