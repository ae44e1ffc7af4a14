"""What `make test-gpu` does: runs with a failure or a resize, and the facts that each must show."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trireme
from gpu import training
from trireme import FailureConfig, Result, RunConfig, ScalingConfig, UserCallback
from trireme.torch import TorchTrainer

WORKERS = 2
Facts = dict[str, Any]


@dataclass
class Case:
    name: str
    what: str
    expected: Facts
    run: Callable[[bool], Facts]  # the argument: on the CPU. Facts that are not expected are only shown
    on_cpu: bool = True


def fit(function: Any, config: Facts | None = None, workers: Any = WORKERS, **options: Any) -> Result:
    callbacks = options.pop("callbacks", [])
    return TorchTrainer(
        function,
        train_loop_config=config or {},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=True, trainer_resources={"CPU": 0}),
        run_config=RunConfig(failure_config=FailureConfig(**{"max_failures": 1, **options}), callbacks=callbacks),
    ).fit()


def events(result: Result, *kinds: str) -> list[Facts]:
    lines = (Path(result.path) / "events.jsonl").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["event"] in kinds]


def after_fault(fault: str, **options: Any) -> Facts:
    result = fit(training.steps_with_fault, {"fault": fault}, **options)
    first = events(result, "worker_failed")[0]
    restarted = events(result, "restarted")[0]
    return {
        "steps": result.return_value["steps"],
        "attempts": len(events(result, "attempt_started")),
        "blamed": first["rank"],
        "cause": first["cause"],
        "error": first["error_type"],
        "kept": len(events(result, "worker_kept")),
        "seconds": round(restarted["seconds"], 2),
        "memory": result.return_value["memory"],
        "left_over": result.return_value["left_over"],
    }


def hang(cpu: bool) -> Facts:
    # Creating the first communicator of NCCL takes seconds without a report.
    facts = after_fault("hang", hang_timeout_s=8.0 if cpu else 30.0, on_hang="restart")
    return {name: facts[name] for name in ("steps", "attempts", "cause", "kept", "seconds")}


class Grow(UserCallback):
    def __init__(self) -> None:
        self.done = False

    def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
        if not self.done:
            self.done = True
            trireme.set_capacity(num_gpus=WORKERS)


def resize(cpu: bool) -> Facts:
    trireme.set_capacity(num_gpus=1)
    try:
        return dict(fit(training.sizes, workers=(1, WORKERS), callbacks=[Grow()]).return_value)
    finally:
        trireme.set_capacity(num_gpus=WORKERS)


def stall(cpu: bool) -> Facts:
    seconds = fit(training.saves, {"elements": 1 << 20 if cpu else 1 << 28}).return_value
    facts = {f"{name.lower()}_s": round(value, 3) for name, value in seconds.items()}
    # 4 MB on the CPU show nothing.
    return facts if cpu else {**facts, "shorter": seconds["ASYNC"] < seconds["SYNC"] / 2}


def memory(cpu: bool) -> Facts:
    facts = after_fault("exception", warm_restart=True)
    return {"kept": facts["kept"], "left_over": facts["left_over"], "below_1MB": facts["memory"] < 1 << 20}


RESTARTED = {"steps": training.STEPS, "attempts": 2, "blamed": 1}


def all_cases(cpu: bool) -> list[Case]:
    oom = {**RESTARTED, "cause": "exception", "error": "RuntimeError" if cpu else "OutOfMemoryError"}
    return [
        Case(
            "local_rank",
            "cuda:LOCAL_RANK is the worker's own device",
            {"own": True, "distinct": WORKERS},
            lambda cpu: dict(fit(training.local_rank).return_value),
        ),
        Case(
            "kill",
            "rank 1 is killed while rank 0 waits for it in a collective",
            {**RESTARTED, "cause": "signal", "kept": 1},
            lambda cpu: after_fault("kill"),
        ),
        Case(
            "exception",
            "rank 1 raises while rank 0 waits for it",
            {**RESTARTED, "cause": "exception", "error": "ValueError", "kept": 1},
            lambda cpu: after_fault("exception"),
        ),
        Case(
            "device_assert",
            "an index out of range on the device of rank 1, which breaks its CUDA context",
            {**RESTARTED, "cause": "exception", "kept": 1},
            lambda cpu: after_fault("device assert"),
            on_cpu=False,
        ),
        Case("oom", "rank 1 allocates more memory than there is", oom, lambda cpu: after_fault("out of memory")),
        Case("hang", "rank 1 sleeps forever", {"steps": training.STEPS, "attempts": 2, "cause": "hang"}, hang),
        Case("resize", "an elastic run grows from 1 to 2 workers", {"sizes": [1, 2], "own": [True, True]}, resize),
        Case(
            "async_stall",
            "report(ASYNC) stalls for less than half of report(SYNC)",
            {} if cpu else {"shorter": True},
            stall,
        ),
        Case(
            "memory",
            "a kept process has freed the memory of the first attempt",
            {"kept": 1, "left_over": 0, "below_1MB": True},
            memory,
        ),
        Case(
            "mesh",
            "init_process_group(device_id=...) and a device mesh with two dimensions",
            {"sum": float(WORKERS), "outer": 1},
            lambda cpu: dict(fit(training.mesh).return_value),
        ),
    ]
