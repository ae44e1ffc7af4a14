"""Workers that the kernel kills because memory runs out: the node's agent is in a cgroup with a real limit."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import processes
import trireme
from runs import events, fit
from test_clusters import attempt

LIMIT = 400 << 20
ROOT = Path("/sys/fs/cgroup")


def limit_memory(group: Path) -> None:
    """Version 1 of cgroups, if it manages memory on this machine, otherwise version 2."""
    names = ("limit_in_bytes", "memsw.limit_in_bytes") if group.parent.name == "memory" else ("max", "swap.max")
    (group / f"memory.{names[0]}").write_text(str(LIMIT))
    swap = group / f"memory.{names[1]}"
    if swap.exists():  # otherwise the machine has none, or does not count it
        swap.write_text(str(LIMIT) if "memsw" in names[1] else "0")


@pytest.fixture
def limited() -> Iterator[Path]:
    """A cgroup with little memory."""
    first = ROOT / "memory"
    group = (first if first.is_dir() else ROOT) / f"trireme-test-{os.getpid()}"
    try:
        group.mkdir()
        limit_memory(group)
    except OSError as why:
        if group.is_dir():
            group.rmdir()
        message = f"NOT TESTED: a worker that is killed because memory runs out needs a memory cgroup ({why})"
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)
    yield group
    assert processes.wait_until(lambda: not (group / "cgroup.procs").read_text()), "processes are left in the group"
    group.rmdir()


def test_an_agent_reports_a_worker_that_was_killed_for_its_memory(limited: Path, declared: Callable[..., None]) -> None:
    launcher = f"sh -c 'echo $$ > {limited}/cgroup.procs && exec \"$@\"' sh {{command}}"
    declared(engine="hosts:a", engine_options={"launcher": launcher, "num_cpus": 2})

    def train() -> int:
        eaten = []
        while trireme.get_context().get_world_rank() == 1 and attempt() == 0:
            eaten.append(b"x" * (16 << 20))
        trireme.report({"attempt": attempt()})
        return attempt()

    result = fit(train, 2, max_failures=1)
    assert result.return_value == 1
    (failed,) = [event for event in events(result.path, "worker_failed") if not event["collateral"]]
    assert (failed["rank"], failed["host"], failed["cause"]) == (1, "a", "out_of_memory")
    assert "the kernel killed the process because memory ran out: " in failed["message"]
    assert "oom_kill of its cgroup" in failed["message"] or f"Killed process {failed['pid']}" in failed["message"]
