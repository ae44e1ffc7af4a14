"""`trireme run --engine hosts:...` on machines that are reached by ssh, mpirun or another command; broken links."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cluster_runs import Driver, Script, environment
from hosts_cluster import HostsCluster, installed
from machines import wait_for, why_not_permitted

pytestmark = [
    pytest.mark.skipif(not installed(), reason="sshd is not installed: apt-get install openssh-server"),
    pytest.mark.skipif(os.getuid() != 0, reason="sshd runs as root"),
    pytest.mark.skipif(why_not_permitted() is not None, reason=f"no namespaces: {why_not_permitted()}"),
]
TWO_CPUS = ["--engine-option", "num_cpus=2"]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostsCluster]:
    cluster = HostsCluster(tmp_path_factory.mktemp("hosts"))
    yield cluster
    cluster.close()


@pytest.fixture
def own_hosts(tmp_path: Path) -> Iterator[HostsCluster]:
    """For tests that break it."""
    cluster = HostsCluster(tmp_path / "hosts")
    yield cluster
    cluster.close()


def run(cluster: HostsCluster, script: Script, *options: str, names: str = "", **env: str) -> Driver:
    words = script.words("--engine", f"hosts:{names or cluster.hosts()}", *options)
    return Driver(cluster.command, words, {**environment(script.folder, cluster.environment), **env})


def expect_nothing_left(cluster: HostsCluster, hosts: Sequence[str] = ("n1", "n2")) -> None:
    wait_for(lambda: not any(map(cluster.processes, hosts)), "nothing is left on the hosts")


def test_agents_through_ssh(hosts: HostsCluster, tmp_path: Path) -> None:
    """`blue` only exists in the configuration of ssh; the driver still finds the address that reaches it."""
    script = Script(tmp_path, names=["run", "second"], scaling={"num_workers": 4})
    second = hosts.machine("n2").address
    run(hosts, script, *TWO_CPUS, names=f"blue,{second}").finish()
    for places in (script.places()[:4], script.places()[4:]):
        found = sorted((p["rank"], p["host"], p["node_rank"], p["local_rank"]) for p in places)
        assert found == [(0, "n1", 0, 0), (1, "n1", 0, 1), (2, "n2", 1, 0), (3, "n2", 1, 1)]
    assert {event["forked"] for event in script.events("worker_started", run="second")} == {True}
    expect_nothing_left(hosts)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed: tools/install_packages.sh dev")
def test_agents_through_mpirun(hosts: HostsCluster, tmp_path: Path) -> None:
    """mpirun starts its own daemons through ssh. It must not bind an agent, and so its workers, to one CPU."""
    script = Script(tmp_path, scaling={"num_workers": 2, "placement_strategy": "SPREAD"})
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    run(hosts, script, "--engine-option", "launcher=mpirun", **root).finish()
    assert {place["host"] for place in script.places()} == {"n1", "n2"}
    assert {place["cpus"] for place in script.places()} == {len(os.sched_getaffinity(0))}
    expect_nothing_left(hosts)


def test_nothing_is_left_of_a_killed_driver(hosts: HostsCluster, tmp_path: Path) -> None:
    """With a command of the user's."""
    script = Script(tmp_path, busy=True, scaling={"num_workers": 4})
    launcher = "launcher=ssh -o ServerAliveInterval=5 root@{host} exec {command_line}"
    driver = run(hosts, script, *TWO_CPUS, "--engine-option", launcher)
    script.wait_for_step(1)
    assert hosts.processes("n1") and hosts.processes("n2")
    hosts.network.machines[0].kill_all()  # with the adapter and its ssh
    driver.process.wait()
    expect_nothing_left(hosts)


def agent_on(cluster: HostsCluster, host: str) -> int:
    (pid,) = (pid for pid, command in cluster.processes(host).items() if command.rstrip().endswith("trireme agent"))
    return pid


def test_a_drained_host_is_left_and_used_again(hosts: HostsCluster, tmp_path: Path) -> None:
    """SIGTERM to its agent is the notice. When the agent has ended, a new one brings the host back."""
    script = Script(tmp_path, busy=True, scaling={"num_workers": (2, 4)})
    driver = run(hosts, script, *TWO_CPUS)
    script.wait_for_step(2)
    agent = agent_on(hosts, "n2")
    os.kill(agent, signal.SIGTERM)
    wait_for(lambda: [(p["host"], p["size"]) for p in script.places()[4:]] == [("n1", 2)] * 2, "the run leaves n2")
    os.kill(agent, signal.SIGTERM)
    wait_for(lambda: {p["host"] for p in script.places()[6:]} == {"n1", "n2"}, "the run is on both hosts again")
    script.proceed()
    driver.finish()
    assert not script.events("worker_failed", "node_lost")
    expect_nothing_left(hosts)


def grown_again(script: Script) -> bool:
    """It is told so when the node is back, and resizes with its next checkpoint."""
    return any(event["to"] == 4 for event in script.events("resize_wanted"))


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [10, 60])
def test_a_link_is_cut(own_hosts: HostsCluster, tmp_path: Path, seconds: int) -> None:
    """With the default timeouts. A worker behind the cut stops after 15 s at most, or when its driver is back."""
    script = Script(tmp_path, rows=160, hold_at=5, scaling={"num_workers": (2, 4)})
    driver = run(own_hosts, script, *TWO_CPUS)
    script.wait_for_step(4)
    node = own_hosts.machine("n2")
    behind = set(own_hosts.processes("n2"))
    begin = time.monotonic()
    node.cut()
    wait_for(lambda: script.events("node_lost"), "the node is lost")
    wait_for(lambda: [(p["host"], p["size"]) for p in script.places()[4:]] == [("n1", 2)] * 2, "the run continues")

    def all_stopped() -> bool:
        return not behind & set(own_hosts.processes("n2"))

    if seconds > 15:
        wait_for(all_stopped, "the workers behind the cut have stopped", seconds)
    wait_for(lambda: time.monotonic() - begin >= seconds, f"{seconds} s", seconds + 10)
    node.restore()
    wait_for(all_stopped, "the workers behind the cut have stopped")
    wait_for(lambda: grown_again(script), "the host is back", 90)
    script.proceed()
    driver.finish()
    (lost,) = script.events("node_lost")
    silent = re.search(r"no heartbeat from its agent for ([\d.]+) s", lost["message"])
    assert silent and float(silent.group(1)) <= 3.0, lost
    assert [place["first"] for place in script.places()[4:6]] == [5, 5]
    assert [event["num_workers"] for event in script.events("attempt_started")] == [4, 2, 4]
    script.expect_each_row_once()
    expect_nothing_left(own_hosts)


@pytest.mark.slow
def test_a_host_without_power(own_hosts: HostsCluster, tmp_path: Path) -> None:
    """Nothing tells the driver: no connection is closed. It notices within 3 s, by the heartbeats."""
    script = Script(tmp_path, rows=160, hold_at=5, scaling={"num_workers": (2, 4)})
    driver = run(own_hosts, script, *TWO_CPUS)
    script.wait_for_step(4)
    node = own_hosts.machine("n2")
    node.cut()
    node.kill()
    wait_for(lambda: [(p["host"], p["size"]) for p in script.places()[4:]] == [("n1", 2)] * 2, "the run continues")
    script.proceed()
    driver.finish()
    (lost,) = script.events("node_lost")
    silent = re.search(r"no heartbeat from its agent for ([\d.]+) s", lost["message"])
    assert silent and float(silent.group(1)) <= 3.0, lost
    script.expect_each_row_once()
    expect_nothing_left(own_hosts, ["n1"])
