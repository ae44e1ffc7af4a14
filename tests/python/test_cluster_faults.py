"""Faults of nodes and links: each node is a network and a pid namespace of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import namespaces
import processes
import trireme
from runs import events, fit
from test_clusters import step_with_checkpoints

# Sooner than the defaults, so that the tests do not wait for them.
LEASES = {"node_timeout_s": 1.5, "lease_s": 4}


@pytest.fixture(scope="module")
def nodes() -> Iterator[namespaces.Nodes]:
    try:
        with namespaces.nodes(2) as made:
            yield made
    except OSError as why:
        message = f"NOT TESTED: faults of nodes and links need network namespaces ({why})"
        warnings.warn(message, stacklevel=1)
        pytest.skip(message)


@pytest.fixture
def two_hosts(
    nodes: namespaces.Nodes, declared: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[namespaces.Nodes]:
    monkeypatch.setenv("TRIREME_LEASE_S", "4")
    options = {"launcher": namespaces.LAUNCHER, "driver_host": namespaces.DRIVER, "num_cpus": 2, **LEASES}
    declared(engine=f"hosts:{','.join(nodes.hosts)}", engine_options=options)
    yield nodes
    for host in nodes.hosts:
        nodes.restore(host)


class OnceAt(trireme.UserCallback):
    """Calls the function on a thread, once rank 0 has reported this step."""

    def __init__(self, step: int, call: Callable[[str], None]) -> None:
        self.step, self.call = step, call
        self.thread: threading.Thread | None = None

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if self.thread is None and metrics[0]["step"] >= self.step:
            self.thread = threading.Thread(target=self.call, args=(run_context.path,))
            self.thread.start()


def steps_until(file: Path, last: int) -> int:
    """Steps of a tenth of a second, and more until the file exists."""

    def wait(rank: int, step: int) -> None:
        time.sleep(0.1)
        while step == last and not file.exists():
            time.sleep(0.1)

    return step_with_checkpoints(last, wait)


@pytest.mark.parametrize("longer_than_the_lease", [False, True])
def test_a_cut_link_ends_the_workers_behind_it(
    two_hosts: namespaces.Nodes, tmp_path: Path, longer_than_the_lease: bool
) -> None:
    host = two_hosts.hosts[1]
    done = tmp_path / "done"

    def cut(folder: str) -> None:
        before = set(two_hosts.inside(host))
        two_hosts.cut(host)
        assert processes.wait_until(lambda: events(folder, "node_lost"))
        if longer_than_the_lease:
            # The workers behind the cut end by themselves, and so does everything else there.
            assert processes.wait_until(lambda: not before & set(two_hosts.inside(host)))
        two_hosts.restore(host)
        done.touch()

    callback = OnceAt(2, cut)
    result = fit(lambda: steps_until(done, 8), (2, 4), max_failures=1, callbacks=[callback])
    assert callback.thread is not None
    callback.thread.join()
    (lost,) = events(result.path, "node_lost")
    assert f"node {host} is lost: no heartbeat from its agent for" in lost["message"]
    assert [each["num_workers"] for each in events(result.path, "attempt_started")][:2] == [4, 2]
    failed = [each for each in events(result.path, "worker_failed") if not each["collateral"]]
    assert {each["cause"] for each in failed} == {"node_lost"}
    assert result.return_value >= 2  # it resumed from a checkpoint


def test_collectives_use_the_interface_between_the_nodes(
    two_hosts: namespaces.Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detected, unless the user has set one."""
    torch = pytest.importorskip("torch")
    from trireme.torch import TorchTrainer

    def train() -> float:
        import torch.distributed as dist

        assert os.environ["GLOO_SOCKET_IFNAME"] == os.environ["NCCL_SOCKET_IFNAME"] == "eth0"
        sum_of_ranks = torch.tensor([float(dist.get_rank() + 1)])
        dist.all_reduce(sum_of_ranks)
        return sum_of_ranks.item()

    assert fit(train, 4, trainer_class=TorchTrainer).return_value == 10.0

    def chosen() -> tuple[str, str]:
        return os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"]

    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    assert fit(chosen, 4, name="chosen").return_value == ("eth0", "ib0")


def test_a_node_that_is_killed_leaves_nothing(two_hosts: namespaces.Nodes, tmp_path: Path) -> None:
    """SIGKILL of the first process of a pid namespace ends everything in it."""
    done = tmp_path / "done"

    def kill(folder: str) -> None:
        inside = two_hosts.inside(two_hosts.hosts[1])
        os.kill(min(inside), signal.SIGKILL)  # unshare --kill-child takes the namespace with it
        assert processes.wait_until(lambda: not set(inside) & set(two_hosts.inside(two_hosts.hosts[1])))
        done.touch()

    callback = OnceAt(2, kill)
    result = fit(lambda: steps_until(done, 6), 4, max_failures=1, callbacks=[callback])
    assert callback.thread is not None
    callback.thread.join()
    assert len(events(result.path, "node_lost")) == 1
    assert [each["num_workers"] for each in events(result.path, "attempt_started")] == [4, 4]
    assert result.return_value >= 2
