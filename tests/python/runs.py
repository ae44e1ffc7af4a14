"""Shared by the tests of failures, resizes and preemptions: runs, their event logs, and the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import trireme
from trireme import CheckpointConfig, DataParallelTrainer, FailureConfig, Result, RunConfig, ScalingConfig, UserCallback

ROOT = Path(__file__).resolve().parents[2]


def command() -> str:
    """The `trireme` command of this environment, or that of a C++ build (TRIREME_CLI)."""
    chosen = os.environ.get("TRIREME_CLI") or shutil.which("trireme", path=os.path.dirname(sys.executable))
    if chosen:
        return chosen
    built = ROOT / "build" / "release" / "src" / "cli" / "trireme"
    assert built.exists(), "no trireme command: run `make build` first"
    return str(built)


def trireme_command(*args: str) -> subprocess.CompletedProcess[str]:
    """Runs the package's C++ program directly: the `trireme` command is a Python process that executes it."""
    programs = [os.path.join(folder, "bin", "trireme") for folder in trireme.__path__]
    program = next((path for path in programs if os.access(path, os.X_OK)), None)
    chosen = os.environ.get("TRIREME_CLI") or program or command()
    return subprocess.run([chosen, *args], capture_output=True, text=True, timeout=120, check=False)


def fit(function: Any, workers: Any = 2, config: dict[str, Any] | None = None, **options: Any) -> Result:
    """options: fields of FailureConfig, and `callbacks`, `trainer_class`, `stop_grace_s`, `num_to_keep`."""
    callbacks = options.pop("callbacks", ())
    trainer_class = options.pop("trainer_class", DataParallelTrainer)
    run = {name: options.pop(name) for name in ("stop_grace_s", "name") if name in options}
    scaling = ScalingConfig(num_workers=workers, trainer_resources={"CPU": 0})
    keep = CheckpointConfig(num_to_keep=options.pop("num_to_keep", None))
    failure = FailureConfig(**options)
    run_config = RunConfig(
        **{"name": "run", **run}, failure_config=failure, checkpoint_config=keep, callbacks=list(callbacks)
    )
    trainer = trainer_class(function, train_loop_config=config, scaling_config=scaling, run_config=run_config)
    made: Result = trainer.fit()
    return made


class CapacityFollowsSize(UserCallback):
    """At the first report of a gang of each size, sets the machine's capacity to `capacity[size]` CPUs."""

    def __init__(self, capacity: dict[int, int]) -> None:
        self.capacity = capacity
        self.sizes: list[int] = []

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if len(metrics) not in self.sizes:
            self.sizes.append(len(metrics))
            trireme.set_capacity(num_cpus=self.capacity[len(metrics)])


def events(folder: Any, *kinds: str) -> list[dict[str, Any]]:
    """The events of the log, all or only those of these kinds."""
    text = Path(folder, "events.jsonl").read_text()
    whole = text[: text.rfind("\n") + 1]  # the last line may be incomplete
    parsed = [json.loads(line) for line in whole.splitlines()]
    return [event for event in parsed if not kinds or event["event"] in kinds]


def pids(folder: Any, attempt: int) -> dict[int, int]:
    """The pid of each rank in an attempt, started for it or kept."""
    found = events(folder, "worker_started", "worker_kept")
    return {event["rank"]: event["pid"] for event in found if event["attempt"] == attempt}


def ranks_that_printed(line: str, output: str) -> list[int]:
    """The ranks that the output shows this line for. Equal lines printed at about the same time are shown once."""
    found = []
    for ranks in re.findall(rf"^\[rank ([\d,-]+)\] {re.escape(line)}$", output, re.MULTILINE):
        for part in ranks.split(","):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    return sorted(found)
