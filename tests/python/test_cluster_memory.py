"""Checkpoints in the memory of nodes that share no storage with the driver."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import namespaces
import processes
import trireme
from runs import events, trireme_command
from test_cluster_faults import nodes  # noqa: F401 (a fixture)
from test_cluster_files import apart  # noqa: F401 (a fixture)
from test_docs import check_events
from trireme import Checkpoint, CheckpointConfig, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig

MEGABYTES = 8  # of each rank's state
SLOW = "8mbit"  # 1 MB/s: seconds for a checkpoint


@pytest.fixture
def slow_link(apart: namespaces.Nodes) -> Iterator[namespaces.Nodes]:  # noqa: F811
    """The nodes reach each other at full speed, and the driver slowly."""
    try:
        for host in apart.hosts:
            apart.limit(host, SLOW)
    except OSError as why:
        pytest.skip(f"NOT TESTED: a slow link needs tc ({why})")
    yield apart
    for host in apart.hosts:
        apart.unlimit(host)


def train(config: dict[str, Any]) -> int:
    """Every rank stores a state. The first attempt waits in the step `wait_at`; returns where the last one began."""
    context = trireme.get_context()
    rank = context.get_world_rank()
    first = 0
    if checkpoint := trireme.get_checkpoint():
        state = trireme.load_state(checkpoint)
        first = state["step"] + 1
        assert (state["weights"] == state["step"] + rank).all()
        other = trireme.load_state(checkpoint, rank=1 - rank)
        assert other["step"] == state["step"]
        assert (other["weights"] == other["step"] + 1 - rank).all()
    weights = np.empty(config["megabytes"] * 250_000, np.float32)
    for step in range(first, config["steps"]):
        weights.fill(step + rank)
        trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step, "weights": weights}))
        if step == config["wait_at"] and first == 0:
            processes.wait_until(lambda: False, 60.0)
    return first


class Saboteur(threading.Thread):
    """Acts as soon as the event log has what it waits for."""

    def __init__(self, folder: Path, act: Callable[[], None], **wanted: Any) -> None:
        super().__init__()
        self.folder, self.act, self.wanted = folder, act, wanted
        self.log: list[dict[str, Any]] = []  # when it acted
        self.start()

    def run(self) -> None:
        def seen() -> bool:
            if not (self.folder / "events.jsonl").exists():
                return False
            self.log = events(self.folder)
            return any(self.wanted.items() <= event.items() for event in self.log)

        if processes.wait_until(seen, 60.0):
            self.act()

    def has(self, **wanted: Any) -> bool:
        return any(wanted.items() <= event.items() for event in self.log)


def kill_node(made: namespaces.Nodes, host: str) -> None:
    inside = made.inside(host)
    for pid in inside:
        with contextlib.suppress(ProcessLookupError):  # it has ended with another one
            os.kill(pid, signal.SIGKILL)
    assert processes.wait_until(lambda: not set(inside) & set(made.inside(host)))


def trainer(
    steps: int, wait_at: int = -1, megabytes: int = MEGABYTES, function: Any = train, callbacks: Any = (), **keep: Any
) -> DataParallelTrainer:
    return DataParallelTrainer(
        function,
        train_loop_config={"steps": steps, "wait_at": wait_at, "megabytes": megabytes},
        scaling_config=ScalingConfig(num_workers=2, trainer_resources={"CPU": 0}, placement_strategy="SPREAD"),
        run_config=RunConfig(
            name="run",
            failure_config=FailureConfig(max_failures=1),
            checkpoint_config=CheckpointConfig(**keep),
            callbacks=list(callbacks),
        ),
    )


def test_the_newest_checkpoint_survives_its_node(slow_link: namespaces.Nodes, tmp_path: Path) -> None:
    """Node 0 is killed right after a commit, before the driver has the files: node 1 has copies."""
    run = tmp_path / "results" / "run"

    def kill() -> None:
        kill_node(slow_link, slow_link.hosts[0])
        for host in slow_link.hosts:
            slow_link.unlimit(host)

    saboteur = Saboteur(run, kill, event="checkpoint_committed", name="checkpoint_000001")
    result = trainer(steps=4, wait_at=1, num_to_keep=2).fit()
    saboteur.join()
    committed = [event for event in saboteur.log if event["event"] == "checkpoint_committed"]
    assert [event["in_memory_of_nodes"] for event in committed] == [2, 2]
    assert not saboteur.has(event="checkpoint_stored", name="checkpoint_000001")
    assert len(events(run, "node_lost")) == 1
    assert result.return_value == 2
    assert [metrics["step"] for metrics in result.metrics_dataframe.to_dict("records")] == [0, 1, 2, 3]
    assert "checkpoint_stored" in check_events(run)
    stored = {event["name"]: event["bytes"] for event in events(run, "checkpoint_stored")}
    assert stored["checkpoint_000003"] > 2 * MEGABYTES * 1_000_000
    assert result.checkpoint is not None
    assert trireme.load_state(result.checkpoint, rank=1)["step"] == 3
    assert sorted(path.name for path in run.glob("checkpoint_*")) == ["checkpoint_000002", "checkpoint_000003"]
    assert not list(run.glob(".trireme_c*"))
    listed = trireme_command("checkpoints", str(run), "--verify")
    assert listed.returncode == 0, listed.stdout + listed.stderr


def test_both_nodes_are_lost(slow_link: namespaces.Nodes, tmp_path: Path) -> None:
    """The run resumes from the newest checkpoint on the driver's disk, and says so in one line."""
    run = tmp_path / "results" / "run"
    for host in slow_link.hosts:
        slow_link.unlimit(host)

    def slow_down() -> None:
        for host in slow_link.hosts:
            slow_link.limit(host, SLOW)
        (tmp_path / "go").touch()

    def kill() -> None:
        for host in slow_link.hosts:
            kill_node(slow_link, host)
            slow_link.unlimit(host)

    first = Saboteur(run, slow_down, event="checkpoint_stored", name="checkpoint_000000")
    second = Saboteur(run, kill, event="checkpoint_committed", name="checkpoint_000001")

    def train_slowly(config: dict[str, Any]) -> int:
        done = trireme.get_checkpoint()
        begin = done.to_dict()["step"] + 1 if done else 0
        if begin == 0:
            trireme.report({"step": 0}, checkpoint=Checkpoint.from_dict({"step": 0}))
            processes.wait_until(lambda: False, 4.0)  # the driver has it, and its link becomes slow
        for step in range(begin or 1, 3):
            weights = np.full(MEGABYTES * 250_000, step, np.float32)
            trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"step": step, "weights": weights}))
            if step == 1 and begin == 0:
                processes.wait_until(lambda: False, 60.0)
        return begin

    result = trainer(steps=3, function=train_slowly).fit()
    first.join()
    second.join()
    assert not second.has(event="checkpoint_stored", name="checkpoint_000001")
    told = [event["message"] for event in events(run, "warning") if "is lost" in event["message"]]
    assert len(told) == 1
    assert re.fullmatch(
        r"checkpoint_000001 is lost with the nodes that held it: no node that is left holds its file \S+; "
        r"the run resumes from checkpoint_000000",
        told[0],
    )
    assert result.return_value == 1
    assert [metrics["step"] for metrics in result.metrics_dataframe.to_dict("records")] == [0, 1, 2]
    assert result.checkpoint is not None
    assert result.checkpoint.to_dict()["step"] == 2


@pytest.mark.parametrize("gigabytes", [0.004, 0])
def test_without_room_the_driver_stores_checkpoints(
    apart: namespaces.Nodes,  # noqa: F811
    tmp_path: Path,
    gigabytes: float,
) -> None:
    result = trainer(steps=2, node_memory_gb=gigabytes).fit()
    run = Path(result.path)
    committed = events(run, "checkpoint_committed")
    assert len(committed) == 2
    assert not any("in_memory_of_nodes" in event for event in committed)
    assert not events(run, "checkpoint_stored")
    assert result.checkpoint is not None
    assert trireme.load_state(result.checkpoint, rank=1)["step"] == 1
    said = re.findall(r"rank \d stores its files of checkpoint_000000 on the driver's machine: (.*)", logs(run))
    assert len(said) == (2 if gigabytes else 0)
    assert all("no room for 8.0 MB" in line and "node_memory_gb" in line for line in said)


def logs(run: Path) -> str:
    return "".join(path.read_text() for path in sorted(run.glob("logs/*/*.log")))


def test_callbacks_get_checkpoints_that_they_can_read(slow_link: namespaces.Nodes) -> None:
    found: list[tuple[int, Any]] = []

    class Reads(trireme.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            found.append((metrics[0]["step"], trireme.load_state(checkpoint)["step"]))

    trainer(steps=3, megabytes=1, callbacks=[Reads()]).fit()
    assert found == [(0, 0), (1, 1), (2, 2)]
