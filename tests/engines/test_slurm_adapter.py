"""The adapter for Slurm with a real Slurm, spoken to as the driver does."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from adapter_client import processes_with, recorded
from machines import wait_for, why_not_permitted
from slurm_cluster import SlurmCluster, installed

pytestmark = [
    pytest.mark.skipif(not installed(), reason="Slurm is not installed: tools/install_packages.sh dev"),
    pytest.mark.skipif(os.getuid() != 0, reason="slurmd runs as root"),
]
MODULE = "trireme.engines.slurm"
machines = pytest.mark.skipif(why_not_permitted() is not None, reason=f"no namespaces: {why_not_permitted()}")


class Allocation:
    """A job of a user, as of `salloc` or `sbatch`, whose variables the adapter finds."""

    def __init__(self, cluster: SlurmCluster, *options: str) -> None:
        self.cluster = cluster
        self.process = subprocess.Popen(
            cluster.command(["salloc", "--no-kill", *options, "sh", "-c", "env | grep ^SLURM_; echo; exec cat"]),
            env=cluster.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        lines = iter(lambda: self.process.stdout.readline().strip(), "")
        self.env = dict(line.split("=", 1) for line in lines)

    def __enter__(self) -> Allocation:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()
        number = self.env["SLURM_JOB_ID"]
        wait_for(lambda: not any(job.split()[0] == number for job in self.cluster.jobs()), "the job has ended")


def test_inside_an_allocation(slurm: SlurmCluster, adapter: Any, agents: Path) -> None:
    with Allocation(slurm, "--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=2", "--gres=gpu:2") as job:
        client = adapter(slurm, **job.env)
        assert client.start() | {"driver_host": ""} == {
            "version": 1,
            "name": "slurm",
            "places": False,
            "driver_host": "",
        }
        nodes = client.ask("nodes")
        assert [(n["id"], n["host"], n["total"], n["gpus"]) for n in nodes] == [
            ("n1", "n1", {"CPU": 4, "GPU": 2}, ["0", "1"]),
            ("n2", "n2", {"CPU": 4, "GPU": 2}, ["0", "1"]),
        ]
        for node in ("n1", "n2"):
            client.start_agent(f"a-{node}", node, agents, COLOUR="red")
        for node in ("n1", "n2"):
            agent = recorded(agents, f"a-{node}")
            assert agent["ticket"] == f"secret-a-{node}"
            assert "secret" not in agent["command"] + json.dumps(agent["env"])
            assert agent["env"]["COLOUR"] == "red"
            assert agent["env"]["SLURMD_NODENAME"] == node
            assert agent["env"]["SLURM_CPUS_ON_NODE"] == "4"
            assert agent["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"
        assert len(slurm.run("squeue", "--steps", "-h").splitlines()) >= 2
        client.send("stop_agent", agent="a-n1")
        assert "srun ended with" in client.wait("agent_exited", agent="a-n1")["why"]
        client.close()
        wait_for(lambda: not slurm.run("squeue", "--steps", "-h").splitlines(), "no step is left")


def test_job_options_are_refused_inside_a_job_and_unknown_ones_everywhere(slurm: SlurmCluster, adapter: Any) -> None:
    client = adapter(slurm, SLURM_JOB_ID="77")
    with pytest.raises(
        RuntimeError,
        match="option partition of the slurm engine has no effect inside a job, and this process runs in job 77",
    ):
        client.start(partition="high")
    with pytest.raises(RuntimeError, match=r"unknown option of the slurm engine: partiton. The options are: account"):
        client.start(partiton="high")
    with pytest.raises(RuntimeError, match=r"scontrol show job .* 77: .*Invalid job id"):
        client.start()


def test_a_job_for_each_gang(slurm: SlurmCluster, adapter: Any, agents: Path) -> None:
    client = adapter(slurm)
    assert client.start(constraint="fast", comment="training")["places"] is True
    assert {n["id"]: (n["total"], n["available"]) for n in client.ask("nodes")} == {
        name: ({"CPU": 8, "GPU": 4}, {"CPU": 8, "GPU": 4}) for name in ("n1", "n2")
    }
    client.reserve(1, [{"CPU": 2, "GPU": 1}] * 2, strategy="STRICT_SPREAD")
    slots = client.wait("reserved", gang=1)["slots"]
    assert [(slot["host"], slot["gpus"]) for slot in slots] == [("n1", ["0"]), ("n2", ["0"])]
    # Grow: another job, perhaps on the same nodes, with other devices.
    client.reserve(2, [{"CPU": 2, "GPU": 2}], strategy="STRICT_PACK")
    more = client.wait("reserved", gang=2)["slots"][0]
    assert more["node"] not in [slot["node"] for slot in slots]
    assert more["gpus"] == ["1", "2"]
    for index, slot in enumerate([*slots, more]):
        client.start_agent(f"a{index}", slot["node"], agents)
    found = [recorded(agents, f"a{index}")["env"] for index in range(3)]
    assert [env["SLURMD_NODENAME"] for env in found] == ["n1", "n2", more["host"]]
    assert found[2]["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert len(slurm.jobs()) == 2
    # Shrink: its job ends, and its agent with it.
    client.send("release", gang=2)
    client.wait("agent_exited", agent="a2")
    wait_for(lambda: len(slurm.jobs()) == 1, "the second job has ended")
    client.close()
    wait_for(lambda: not slurm.jobs(), "no job is left")


def test_all_or_nothing(slurm: SlurmCluster, adapter: Any) -> None:
    client = adapter(slurm)
    client.start()
    client.reserve(1, [{"CPU": 8}] * 3)
    why = client.wait("reserve_failed", gang=1)["why"]
    assert why == (
        "no room for more than 2 workers: asked for 3 x {CPU: 8} (PACK), "
        "partition low has n1 (8 CPUs, gpu:4), n2 (8 CPUs, gpu:4)"
    )
    with Allocation(slurm, "--nodes=1", "--ntasks=1", "--cpus-per-task=5"):
        # One node has room, the other has not.
        client.reserve(2, [{"CPU": 8}] * 2, optional=True)
        assert "salloc: " in client.wait("reserve_failed", gang=2)["why"]
        client.reserve(3, [{"CPU": 8}] * 2)
        assert "Slurm job" in client.wait("reserve_waiting", gang=3)["why"]
        client.reserve(4, [{"CPU": 8}] * 2, timeout_s=0.2)
        assert "not started the job within 0.2 s" in client.wait("reserve_failed", gang=4)["why"]
        client.reserve(5, [{"CPU": 8}] * 2)
        client.wait("reserve_waiting", gang=5)
        client.send("release", gang=5)
        wait_for(lambda: sum("PENDING" in job for job in slurm.jobs()) == 1, "only gang 3 is in the queue")
    assert len(client.wait("reserved", gang=3)["slots"]) == 2
    answers = ("reserved", "reserve_failed")
    assert not [event for event in client.events if event.get("gang") in (4, 5) and event["event"] in answers]


@pytest.mark.parametrize(
    ("bundles", "fields", "why"),
    [
        ([{"CPU": 1, "GPU": 0.5}], {}, "0.5 GPUs per worker: Slurm allocates whole GPUs"),
        ([{"CPU": 1}, {"CPU": 2}], {}, "equal bundles only"),
        ([{"CPU": 1, "license": 1}], {}, "resource license: the slurm engine knows CPU, GPU and memory"),
        ([{"CPU": 1}], {"label_selector": [{"region": "eu"}]}, "Slurm has no labels: use the engine option constraint"),
    ],
)
def test_what_slurm_cannot_reserve(slurm: SlurmCluster, adapter: Any, bundles: Any, fields: Any, why: str) -> None:
    client = adapter(slurm)
    client.start()
    client.reserve(1, bundles, **fields)
    assert why in client.wait("reserve_failed", gang=1)["why"]


def test_an_exit_code_of_zero_is_an_exit(slurm: SlurmCluster, adapter: Any, agents: Path) -> None:
    client = adapter(slurm)
    client.start()
    client.reserve(1, [{"CPU": 1}])
    node = client.wait("reserved", gang=1)["slots"][0]["node"]
    client.start_agent("good", node, agents, AGENT_EXIT="0")
    assert client.wait("agent_exited", agent="good")["why"].startswith("srun ended with exit code 0")
    client.start_agent("bad", node, agents, AGENT_EXIT="3")
    why = client.wait("agent_exited", agent="bad")["why"]
    assert why.startswith("srun ended with exit code 3") and "agent failed on purpose" in why
    client.send("start_agent", agent="none", node=node, argv=["/nonexistent"], env={}, ticket="secret")
    assert "/nonexistent" in client.wait("agent_exited", agent="none")["why"]


def test_preemption_is_a_notice_with_the_seconds_that_are_left(slurm: SlurmCluster, adapter: Any, agents: Path) -> None:
    client = adapter(slurm)
    client.start(partition="low")
    client.reserve(1, [{"CPU": 8}] * 2)
    slots = client.wait("reserved", gang=1)["slots"]
    for slot in slots:
        client.start_agent(slot["host"], slot["node"], agents)
        recorded(agents, slot["host"])
    with subprocess.Popen(
        slurm.command(["srun", "--partition=high", "-N1", "-c8", "true"]), env=slurm.environment
    ) as high:
        notices = [client.wait("preempt", node=slot["node"]) for slot in slots]
        assert all(15 < notice["seconds"] <= 30 for notice in notices)
        assert not [event for event in client.events if event["event"] == "agent_exited"]
        client.send("release", gang=1)  # as the driver does after the last checkpoint
        assert high.wait(60) == 0


@pytest.mark.slow  # slurmctld looks at time limits twice a minute
def test_the_end_of_the_time_limit_is_a_notice(slurm: SlurmCluster, adapter: Any, agents: Path) -> None:
    client = adapter(slurm)
    client.start(time=2)
    client.reserve(1, [{"CPU": 1}])
    slot = client.wait("reserved", gang=1)["slots"][0]
    client.start_agent("a", slot["node"], agents)
    assert 10 < client.wait("preempt", node=slot["node"], timeout=150)["seconds"] <= 120


def test_a_drained_node_is_a_notice_without_a_deadline(slurm: SlurmCluster, adapter: Any) -> None:
    client = adapter(slurm)
    client.start(poll_s=0.2)
    client.reserve(1, [{"CPU": 1}])
    slot = client.wait("reserved", gang=1)["slots"][0]
    slurm.run("scontrol", "update", f"nodename={slot['host']}", "state=drain", "reason=new disk")
    try:
        notice = client.wait("preempt", node=slot["node"])
        assert notice["seconds"] is None and "new disk" in notice["why"]
    finally:
        slurm.run("scontrol", "update", f"nodename={slot['host']}", "state=resume")


@pytest.mark.parametrize("who", ["driver", "both"])
def test_nothing_is_left_of_a_killed_driver(slurm: SlurmCluster, adapter: Any, agents: Path, who: str) -> None:
    client = adapter(slurm)
    client.start()
    client.reserve(1, [{"CPU": 8}] * 2)
    slots = client.wait("reserved", gang=1)["slots"]
    client.reserve(2, [{"CPU": 8}])
    client.wait("reserve_waiting", gang=2)
    for slot in slots:
        client.start_agent(slot["host"], slot["node"], agents)
    pids = [recorded(agents, slot["host"])["pid"] for slot in slots]
    assert pids
    if who == "both":
        client.kill()
    client.close()
    wait_for(lambda: not slurm.jobs(), "no job is left, running or queued")
    wait_for(lambda: not processes_with(agents), "no agent is left")


def test_slurmctld_restarts(own_slurm: SlurmCluster, adapter: Any, agents: Path) -> None:
    client = adapter(own_slurm)
    client.start(poll_s=0.2)
    client.reserve(1, [{"CPU": 1}], strategy="STRICT_PACK")
    slot = client.wait("reserved", gang=1)["slots"][0]
    client.start_agent("a", slot["node"], agents)
    recorded(agents, "a")
    own_slurm.stop_controller()
    own_slurm.start_controller()
    wait_for(lambda: "RUNNING" in str(own_slurm.states() and own_slurm.jobs()), "the job is known again")
    client.reserve(2, [{"CPU": 1}])
    client.wait("reserved", gang=2)
    assert not [event for event in client.events if event["event"] in ("node_lost", "agent_exited")]


@machines
def test_a_dead_node_is_lost_and_the_others_work_on(own_slurm: SlurmCluster, adapter: Any, agents: Path) -> None:
    client = adapter(own_slurm)
    client.start()
    client.reserve(1, [{"CPU": 1}] * 2, strategy="STRICT_SPREAD")
    slots = client.wait("reserved", gang=1)["slots"]
    for slot in slots:
        client.start_agent(slot["host"], slot["node"], agents)
        recorded(agents, slot["host"])
    dead = own_slurm.machine("n2")
    assert dead
    dead.kill()
    assert client.wait("node_lost")["node"] == slots[1]["node"]
    assert client.wait("agent_exited")["agent"] == "n2"
    assert not [event for event in client.events if event["event"] in ("node_lost", "agent_exited")]
    client.close()
    wait_for(lambda: not own_slurm.jobs(), "no job is left")
    wait_for(lambda: not processes_with(agents), "no agent is left")
