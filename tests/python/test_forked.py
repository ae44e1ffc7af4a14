"""Processes forked by the training function: only the worker itself affects the run."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import trireme
from runs import events, fit
from trireme import DataParallelTrainer, ScalingConfig, collective


def log_of(path: str | None, rank: int = 0) -> str:
    return Path(path or "", f"logs/attempt_0/rank_{rank}.log").read_text()


CHILDREN = {
    "returns": (lambda: None, 0, ""),
    "raises": (lambda: 1 / 0, 1, "ZeroDivisionError: division by zero"),
    "exits": (lambda: sys.exit(7), 7, ""),
    "exits with a text": (lambda: sys.exit("enough"), 1, "enough\n"),
    "reports": (lambda: trireme.report({"child": True}), 1, "report() was called in process "),
    "waits for all": (lambda: collective.barrier(), 1, "collective.barrier() was called in process "),
    "asks who it is": (lambda: sys.exit(trireme.get_context().get_world_rank() + 40), None, ""),
}


@pytest.mark.parametrize("how", CHILDREN)
def test_child_ends_where_it_comes_out_of_the_function(how: str) -> None:
    def train(config: dict[str, Any]) -> Any:
        child = os.fork()
        if child == 0:
            CHILDREN[config["how"]][0]()
            return "child"
        _, status = os.waitpid(child, 0)
        trireme.report({"status": os.waitstatus_to_exitcode(status)})
        return "worker"

    result = fit(train, config={"how": how})
    _, code, said = CHILDREN[how]
    assert result.return_value == "worker"
    told = {event["rank"]: event["metrics"]["status"] for event in events(result.path, "report")}
    assert told == ({0: code, 1: code} if code is not None else {0: 40, 1: 41})
    assert said in log_of(result.path)
    assert events(result.path, "attempt_failed", "worker_failed") == []


def test_child_of_multiprocessing_may_fail_and_the_worker_sees_it() -> None:
    def train() -> Any:
        process = multiprocessing.get_context("fork").Process(target=trireme.report, args=({"child": True},))
        process.start()
        process.join()
        return process.exitcode

    result = fit(train, 1)
    assert result.return_value == 1
    assert "only the worker is connected to the run" in log_of(result.path)


def test_child_does_not_wait_for_threads_that_read_for_the_worker() -> None:
    pytest.importorskip("pyarrow")
    import trireme.data

    def train() -> list[int]:
        codes = []
        shard = trireme.get_dataset_shard("train")
        batches = iter(shard.iter_batches(batch_size=1))
        next(batches)
        for way in ("goes on", "begins", "asks for it", "leaves"):
            child = os.fork()
            if child == 0:
                if way == "goes on":
                    next(batches)
                elif way == "begins":
                    next(iter(shard.iter_batches(batch_size=1)))
                elif way == "asks for it":
                    trireme.get_dataset_shard("train")
                return codes
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        codes.append(1 + sum(1 for _ in batches))
        return codes

    trainer = DataParallelTrainer(
        train, datasets={"train": trireme.data.range(6)}, scaling_config=ScalingConfig(num_workers=1)
    )
    result = trainer.fit()
    assert result.return_value == [1, 1, 1, 0, 6]
    log = log_of(result.path)
    assert "is continued in its forked child" in log
    assert "dataset 'train' is iterated in process" in log
    assert "get_dataset_shard() was called in process" in log


@pytest.mark.torch
def test_loader_processes_know_their_worker() -> None:
    torch = pytest.importorskip("torch")
    del torch
    from trireme.torch import TorchTrainer

    def train() -> list[int]:
        from torch.utils.data import DataLoader, Dataset

        class Ranks(Dataset):  # type: ignore[type-arg]
            def __len__(self) -> int:
                return 4

            def __getitem__(self, index: int) -> int:
                return trireme.get_context().get_world_rank()

        return [
            int(rank) for batch in DataLoader(Ranks(), num_workers=2, multiprocessing_context="fork") for rank in batch
        ]

    result = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit()
    assert result.return_value == [0] * 4
