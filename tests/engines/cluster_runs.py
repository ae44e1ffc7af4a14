"""Runs on clusters: the `trireme` command on a machine of a test's cluster, and a script for all tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from machines import wait_for

# Arguments: the storage of runs, a folder where workers record where they are, and settings as JSON.
SCRIPT = """
import itertools, json, os, sys, time, trireme
from pathlib import Path
from trireme import Checkpoint, DataConfig, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, collective

storage, records, settings = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])

def train():
    context = trireme.get_context()
    checkpoint = trireme.get_checkpoint()
    first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    rank = context.get_world_rank()
    place = {"host": os.uname().nodename, "pid": os.getpid(), "first": first, "rank": rank,
             "node_rank": context.get_node_rank(), "local_rank": context.get_local_rank(),
             "size": context.get_world_size(), "env": {name: os.environ.get(name) for name in settings.get("env", [])},
             "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "cpus": len(os.sched_getaffinity(0))}
    (records / f"{time.time():.6f}-{rank}").write_text(json.dumps(place))
    hold = records.parent / "hold"
    batches = itertools.repeat(None)
    if "rows" in settings:
        batches = trireme.get_dataset_shard("train").iter_batches(global_batch_size=8)
    for step, _ in zip(itertools.count(first), batches):
        if settings.get("busy"):  # reports until it is no longer held
            time.sleep(settings.get("pause", 0.1))
            if not collective.broadcast_from_rank_zero(hold.exists()):
                return
        elif step >= settings.get("steps", 3) and "rows" not in settings:
            return
        while step >= settings.get("hold_at", 1 << 30) and hold.exists():
            time.sleep(0.05)
        mine = Checkpoint.from_dict({"step": step}) if rank == 0 else None
        trireme.report({"step": step, "size": context.get_world_size()}, checkpoint=mine)
        collective.barrier()

datasets = {}
if "rows" in settings:
    import trireme.data
    datasets["train"] = trireme.data.range(settings["rows"]).random_shuffle(seed=7)
for name in settings.get("names", ["run"]):
    scaling = ScalingConfig(**settings.get("scaling", {"num_workers": 2}))
    run = RunConfig(name=name, storage_path=storage, failure_config=FailureConfig(max_failures=3))
    DataParallelTrainer(train, scaling_config=scaling, run_config=run, datasets=datasets,
                        dataset_config=DataConfig(log_samples=True)).fit()
"""


class Script:
    """The script of a test, and what its workers recorded."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.storage = folder / "storage"
        self.records = folder / "records"
        self.records.mkdir(parents=True, exist_ok=True)
        self.path = folder / "train.py"
        self.path.write_text(SCRIPT)
        self.settings = settings
        self._hold_file = folder / "hold"
        if "hold_at" in settings or settings.get("busy"):
            self._hold_file.touch()

    def proceed(self) -> None:
        """Past the step that it is held at, or to its end."""
        self._hold_file.unlink()

    def words(self, *options: str, command: str = "run") -> list[str]:
        arguments = [str(self.storage), str(self.records), json.dumps(self.settings)]
        return [*trireme(command, *options), str(self.path), *arguments]

    def places(self) -> list[dict[str, Any]]:
        """Every start of the function, in the order of time."""
        found = sorted(path for path in self.records.iterdir() if path.stat().st_size)
        return [json.loads(path.read_text()) for path in found]

    def events(self, *kinds: str, run: str = "run") -> list[dict[str, Any]]:
        path = self.storage / run / "events.jsonl"
        text = path.read_text() if path.exists() else ""
        events = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [event for event in events if event["event"] in kinds]

    def expect_each_row_once(self, run: str = "run") -> None:
        verified = json.loads(output_of([*trireme("data", "verify", "--json"), str(self.storage / run)], os.environ))
        assert [(epoch["seen"], epoch["size"]) for epoch in verified] == [(self.settings["rows"],) * 2], verified

    def wait_for_step(self, step: int, run: str = "run") -> None:
        """Until its checkpoint is committed: a failure from now on loses no step."""

        def reached() -> bool:
            return any(e["metrics"]["step"] >= step for e in self.events("checkpoint_committed", run=run))

        wait_for(reached, f"step {step}", 120)


def detach(
    command: Callable[[list[str]], list[str]], script: Script, engine: str, env: Mapping[str, str], *options: str
) -> str:
    """The job that the script runs in, after step 1."""
    told = output_of(command(script.words("--detach", "--engine", engine, *options)), env)
    script.wait_for_step(1)
    return told.partition("detached: job ")[2].split()[0]


def trireme(*words: str) -> list[str]:
    return [sys.executable, "-m", "trireme._cli", *words]


def environment(folder: Path, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """With the state of runs in this folder, which must not be inherited by other tests."""
    return {**env, "TRIREME_STATE_DIR": str(folder / "state")}


class Driver:
    """A driver in the background."""

    def __init__(self, command: Callable[[list[str]], list[str]], words: list[str], env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command(words),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, timeout: float = 180) -> str:
        """Its output. Raises it if the driver has failed."""
        try:
            output, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the driver has not ended: {self.process.communicate()[0]}") from None
        assert self.process.returncode == 0, output
        return output


def output_of(argv: list[str], env: Mapping[str, str], *, expect: int = 0) -> str:
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == expect, (done.returncode, done.stdout + done.stderr)
    return done.stdout + done.stderr
