"""The adapter for Ray with a real Ray cluster, spoken to as the driver does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from adapter_client import AdapterClient, processes_with, recorded
from machines import wait_for, why_not_permitted
from ray_cluster import RayCluster, installed

pytestmark = pytest.mark.skipif(not installed(), reason="Ray is not in this environment: make test-engines")
MODULE = "trireme.engines.ray"
machines = pytest.mark.skipif(why_not_permitted() is not None, reason=f"no namespaces: {why_not_permitted()}")


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[RayCluster]:
    cluster = RayCluster()
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def shared(ray_cluster: RayCluster) -> Iterator[AdapterClient]:
    """One connected adapter for the tests that do not end it: a driver takes seconds to connect to Ray."""
    client = AdapterClient(MODULE, ray_cluster.environment, ray_cluster.command)
    client.start(address=ray_cluster.address, poll_s=0.2)
    yield client
    client.close()


def maps_of_parent(pid: int) -> str:
    (parent,) = re.findall(r"^PPid:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return Path(f"/proc/{parent}/maps").read_text()


def expect_all_free(client: AdapterClient, gang: int) -> None:
    """The whole cluster can be reserved."""
    client.reserve(gang, [{"CPU": 4}] * len(client.ask("nodes")), strategy="STRICT_SPREAD")
    client.wait("reserved", gang=gang)
    client.send("release", gang=gang)


def test_options_that_do_not_work(adapter: Any, ray_cluster: RayCluster) -> None:
    client = adapter(ray_cluster)
    with pytest.raises(RuntimeError, match=r"unknown option of the ray engine: adress. The options are: address, "):
        client.start(adress="x")
    with pytest.raises(RuntimeError, match=r"Ray at 127.0.0.1:1 does not answer: Connection refused"):
        client.start(address="127.0.0.1:1")


@machines
def test_a_group_for_each_gang_and_an_agent_for_each_node(shared: AdapterClient, agents: Path) -> None:
    nodes = {node["host"]: node for node in shared.ask("nodes")}
    assert nodes["n1"]["total"] | {"memory": 0} == {"CPU": 4, "GPU": 4, "n1": 1, "memory": 0}
    shared.reserve(1, [{"CPU": 1, "GPU": 2}, {"CPU": 0.5, "GPU": 0.5}, {"CPU": 0.5, "GPU": 0.5}], strategy="SPREAD")
    slots = shared.wait("reserved", gang=1)["slots"]
    assert {slot["host"] for slot in slots} == {"head", "n1"}
    assert [len(slot["gpus"]) for slot in slots] == [2, 1, 1]
    for slot in slots:
        assert slot["node"] == nodes[slot["host"]]["id"]
    for host in nodes:
        shared.start_agent(host, nodes[host]["id"], agents, COLOUR="red")
    for host in nodes:
        agent = recorded(agents, host)
        assert (agent["host"], agent["ticket"], agent["env"]["COLOUR"]) == (host, f"secret-{host}", "red")
        assert "secret" not in agent["command"] + json.dumps(agent["env"])
        assert "CUDA_VISIBLE_DEVICES" not in agent["env"]
    # Ray would import it for the arguments of an actor.
    assert find_spec("pyarrow") and not any("libarrow" in maps_of_parent(pid) for pid in processes_with(agents))
    # Grow and shrink. The agents outlive the groups.
    shared.reserve(2, [{"n1": 1}])
    assert shared.wait("reserved", gang=2)["slots"] == [{"node": nodes["n1"]["id"], "host": "n1", "gpus": []}]
    shared.reserve(3, [{"n1": 1}])
    assert "asked for 1 x {n1: 1} (PACK)" in shared.wait("reserve_waiting", gang=3)["why"]
    shared.send("release", gang=2)
    shared.wait("reserved", gang=3)
    for gang in (1, 3):
        shared.send("release", gang=gang)
    assert len(processes_with(agents)) >= 2
    assert not [event for event in shared.events if event["event"] == "agent_exited"]
    for host in nodes:
        shared.send("stop_agent", agent=host)
        shared.wait("agent_exited", agent=host)
    wait_for(lambda: not processes_with(agents), "no agent is left")


@machines
def test_all_or_nothing(shared: AdapterClient) -> None:
    shared.reserve(11, [{"CPU": 1, "GPU": 9}])
    assert shared.wait("reserve_failed", gang=11)["why"].startswith(
        "this Ray cluster can never place it: asked for 1 x {CPU: 1, GPU: 9} (PACK), nodes are head {CPU: 4, GPU: 4}, "
        "n1 {CPU: 4, GPU: 4, n1: 1}; {"
    )
    shared.reserve(12, [{"CPU": 3}] * 2)
    shared.wait("reserved", gang=12)
    shared.reserve(13, [{"CPU": 3}] * 2, optional=True)
    assert "no room now: asked for 2 x {CPU: 3}" in shared.wait("reserve_failed", gang=13)["why"]
    shared.reserve(14, [{"CPU": 3}] * 2, timeout_s=0.5)
    assert "Ray has not placed it within 0.5 s (NO_RESOURCES)" in shared.wait("reserve_failed", gang=14)["why"]
    shared.reserve(15, [{"CPU": 1}], accelerator_type="H100")
    assert "asked for 1 x {CPU: 1, accelerator_type:H100: 0.001}" in shared.wait("reserve_failed", gang=15)["why"]
    shared.reserve(16, [{"CPU": 1}], label_selector=[{"region": "eu"}])
    assert "{CPU: 1} on nodes with {'region': 'eu'}" in shared.wait("reserve_failed", gang=16)["why"]
    shared.send("release", gang=12)
    expect_all_free(shared, 17)


@machines
def test_labels_a_drain_and_a_dead_node(shared: AdapterClient, ray_cluster: RayCluster, agents: Path) -> None:
    machine = ray_cluster.add_node("n2", labels="region=us")
    shared.wait("room_grew")
    shared.reserve(21, [{"CPU": 1}], label_selector=[{"region": "us"}])
    slot = shared.wait("reserved", gang=21)["slots"][0]
    assert slot["host"] == "n2"
    shared.start_agent("a", slot["node"], agents)
    recorded(agents, "a")
    ray_cluster.run(
        "drain-node",
        f"--address={ray_cluster.address}",
        f"--node-id={slot['node']}",
        "--reason=DRAIN_NODE_REASON_PREEMPTION",
        "--reason-message=spot",
        "--deadline-remaining-seconds=100",
    )
    notice = shared.wait("preempt", node=slot["node"])
    assert 30 < notice["seconds"] <= 101 and notice["why"] == "Ray drains node n2"
    machine.kill()
    shared.wait("node_lost", node=slot["node"])
    assert "ActorDiedError" in shared.wait("agent_exited", agent="a")["why"]
    shared.send("release", gang=21)
    shared.send("start_agent", agent="late", node=slot["node"], argv=["true"], env={}, ticket="secret")
    assert "Ray: " in shared.wait("agent_exited", agent="late")["why"]


@machines
def test_a_group_that_ray_has_moved_is_given_back(shared: AdapterClient, ray_cluster: RayCluster) -> None:
    """Ray moves the bundles of a dead node at once. The workers cannot move, so the driver starts on a new group."""
    machine = ray_cluster.add_node("n3", {"spare": 1})
    shared.reserve(31, [{"spare": 1}])
    slot = shared.wait("reserved", gang=31)["slots"][0]
    ray_cluster.add_node("n4", {"spare": 1})
    other = ray_cluster.hosts()["n4"]
    machine.kill()
    shared.wait("node_lost", node=slot["node"])

    def moved() -> bool:
        groups = ray_cluster.groups()
        return any(name.startswith("trireme-test-31-") and nodes == [other] for name, nodes in groups.items())

    wait_for(moved, "Ray has moved the bundle")
    shared.reserve(32, [{"spare": 1}])
    shared.wait("reserve_waiting", gang=32)
    shared.send("release", gang=31)
    assert shared.wait("reserved", gang=32)["slots"][0]["node"] == other
    shared.send("release", gang=32)


@pytest.mark.parametrize("who", ["driver", "both"])
def test_nothing_is_left_of_a_killed_driver(
    adapter: Any, shared: AdapterClient, ray_cluster: RayCluster, agents: Path, who: str
) -> None:
    client = adapter(ray_cluster)
    client.start(address=ray_cluster.address)
    client.reserve(1, [{"CPU": 2}])
    slot = client.wait("reserved", gang=1)["slots"][0]
    client.start_agent("a", slot["node"], agents)
    recorded(agents, "a")
    if who == "both":
        client.kill()
    client.close()
    wait_for(lambda: not processes_with(agents), "no agent is left")
    expect_all_free(shared, 41)
