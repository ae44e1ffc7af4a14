"""Which rank is blamed if a collective times out, or a peer is lost, and NCCL's watchdogs end healthy ranks."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import like_nccl
import trireme
from runs import events
from trireme import ScalingConfig, WorkerGroupError, collective
from trireme.torch import TorchTrainer

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# As torch prints them, before native stacks.
PREFIX = "[rank0]:[E1118 21:21:18.895381245 ProcessGroupNCCL.cpp:2197] "
TIMEOUT = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10, OpType=ALLREDUCE, NumelIn=1, "
    "NumelOut=1, Timeout(ms)=1000) ran for 1021 milliseconds before timing out."
)
REMOTE = "NCCL error: remote process exited or there was a network error, NCCL version 2.27.5"
ENDED = "[PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: "


def watchdog_ends_this_process(why: str) -> None:
    print(f"{PREFIX}{ENDED}{why}\nException raised from checkTimeout at ProcessGroupNCCL.cpp:760", file=sys.stderr)
    for frame in range(30):
        print(f"frame #{frame}: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout() + 0x9d", file=sys.stderr)
    sys.stderr.flush()
    os.abort()


def waits_in_a_collective(folder: Path) -> None:
    while not list(folder.glob("stacks/attempt_*.txt")):
        time.sleep(0.02)


def loads_forever() -> None:
    while True:
        time.sleep(0.02)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def fit(function: Any, workers: int, **options: Any) -> WorkerGroupError:
    trainer = TorchTrainer(
        function,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=trireme.RunConfig(name="run"),
        **options,
    )
    with pytest.raises(WorkerGroupError) as raised:
        trainer.fit()
    return raised.value


def test_the_rank_that_did_not_take_part_is_blamed(results: Path) -> None:
    def train() -> None:
        context = trireme.get_context()
        folder = Path(context.get_trial_dir() or "")
        trireme._session._current._core.set_collective_timeout(1.0)  # type: ignore[union-attr]
        trireme.report({"step": 0})
        if context.get_world_rank() == 1:
            loads_forever()
        waits_in_a_collective(folder)
        record = Path(os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + str(context.get_world_rank()))
        record.write_bytes(b"dump")
        watchdog_ends_this_process(TIMEOUT)

    error = str(fit(train, 3))
    assert re.search(
        r"rank 1 \(pid \d+ on \S+\) failed: Hang: rank [02,]+ waited in a collective until its timeout", error
    )
    assert re.search(r"this rank did not take part: in \S*test_collective_timeout\.py:\d+ in loads_forever", error)
    failed = {event["rank"]: event for event in events(results / "run", "worker_failed")}
    assert (failed[1]["cause"], failed[1]["collateral"]) == ("hang", False)
    (stacks,) = (results / "run/stacks").glob("attempt_0-*.txt")
    assert f"all stacks: {stacks}" in failed[1]["message"]
    assert "in loads_forever" in stacks.read_text()
    assert "in waits_in_a_collective" in stacks.read_text()
    others = [event for rank, event in failed.items() if rank != 1]
    assert others
    for event in others:
        assert (event["cause"], event["error_type"], event["collateral"]) == ("watchdog", "NcclWatchdog", True)
        assert TIMEOUT in event["message"]
        record = results / f"run/stacks/flight_recorder_rank_{event['rank']}"
        assert f"flight recorder: {record}" in event["message"]
        assert record.read_bytes() == b"dump"


@pytest.mark.skipif(like_nccl.MODULE is None, reason="the module nccl_like is not built: run `make build` first")
def test_the_rank_that_hangs_is_blamed_and_not_the_watchdogs_of_others(results: Path) -> None:
    def train() -> None:
        import torch
        import torch.distributed as dist

        trireme.report({"step": 0})
        if trireme.get_context().get_world_rank() == 1:
            loads_forever()
        dist.all_reduce(torch.ones(1))

    nccl = like_nccl.LikeNccl(watchdog=True, timeout_s=4.0)
    error = str(fit(train, 3, torch_config=nccl))
    assert re.search(r"rank 1 \(pid \d+ on \S+\) failed: Hang: rank [02,]+ waited in a collective until", error)
    assert re.search(r"this rank did not take part: in \S*test_collective_timeout\.py:\d+ in loads_forever", error)
    first, *others = events(results / "run", "worker_failed")
    assert (first["rank"], first["cause"]) == (1, "hang")
    assert others
    for event in others:
        assert (event["cause"], event["collateral"]) == ("watchdog", True)
        assert "Watchdog caught collective operation timeout: WorkNCCL(" in event["message"]


def test_a_rank_that_died_is_blamed_and_not_the_watchdogs_of_others(results: Path) -> None:
    def train() -> None:
        context = trireme.get_context()
        pid = collective.broadcast_from_rank_zero(os.getpid())
        if context.get_world_rank() == 1:
            # Mostly the engine learns of the healthy rank's end first, but some of its threads may still be ending.
            while runs(pid):
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGKILL)
        watchdog_ends_this_process(REMOTE)

    error = str(fit(train, 2))
    assert re.search(
        r"rank 1 \(pid \d+ on \S+\) failed: WorkerKilled: the process was killed with signal SIGKILL", error
    )
    failed = {event["rank"]: event for event in events(results / "run", "worker_failed")}
    assert not failed[1]["collateral"]
    if 0 in failed:  # its end, or the loss of its connection, was noticed before the verdict
        assert failed[0]["collateral"]


def test_flight_records_of_an_earlier_attempt_are_set_aside(results: Path) -> None:
    def train() -> None:
        context = trireme.get_context()
        record = Path(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "0")
        if context._attempt == 0:
            record.parent.mkdir(exist_ok=True)
            record.write_bytes(b"dump")
            watchdog_ends_this_process(REMOTE)
        assert not record.exists()
        assert (record.parent / f"attempt_0-{record.name}").read_bytes() == b"dump"

    result = TorchTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=trireme.RunConfig(name="run", failure_config=trireme.FailureConfig(max_failures=1)),
    ).fit()
    assert result.error is None
    (failed,) = events(results / "run", "worker_failed")
    assert f"flight recorder: {results / 'run/stacks/flight_recorder_rank_0'}" in failed["message"]
