"""`trireme run --engine slurm`: from a login node, and inside a job."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from adapter_client import processes_with
from cluster_runs import Driver, Script, detach, environment, output_of
from cluster_runs import trireme as trireme_command
from machines import wait_for, why_not_permitted
from slurm_cluster import SlurmCluster, installed

import trireme

pytestmark = [
    pytest.mark.skipif(not installed(), reason="Slurm is not installed: tools/install_packages.sh dev"),
    pytest.mark.skipif(os.getuid() != 0, reason="slurmd runs as root"),
]
SCRIPT = """
import json, os, sys, trireme
from pathlib import Path
from trireme import DataParallelTrainer, RunConfig, ScalingConfig

def train():
    context = trireme.get_context()
    ranks = context.get_node_rank(), context.get_local_rank(), context.get_world_size()
    place = [os.environ["SLURMD_NODENAME"], *ranks]
    Path(sys.argv[2], f"{ranks[0]}-{ranks[1]}-{os.getpid()}").write_text(json.dumps(place))
    trireme.report({"done": 1})

scaling = ScalingConfig(num_workers=4, resources_per_worker={"CPU": 4}, placement_strategy="SPREAD")
for name in ("first", "second"):
    DataParallelTrainer(train, scaling_config=scaling,
                        run_config=RunConfig(name=name, storage_path=sys.argv[1])).fit()
"""


def kill(cluster: SlurmCluster, place: dict[str, Any]) -> None:
    """Its pid is that on its machine."""
    argv = ["kill", "-9", str(place["pid"])]
    machine = cluster.machine(place["host"])
    subprocess.run(machine.command(argv) if machine else argv, check=True)


@pytest.mark.parametrize(
    "where", [[], ["salloc", "--no-kill", "--nodes=2", "--ntasks=2", "--cpus-per-task=8"]], ids=["login", "job"]
)
def test_a_run_on_two_nodes(slurm: SlurmCluster, tmp_path: Path, agents: Path, where: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [
        *where,
        sys.executable,
        "-m",
        "trireme._cli",
        "run",
        "--engine",
        "slurm",
        str(script),
        str(tmp_path / "runs"),
        str(agents),
    ]
    env = {**slurm.environment, "TRIREME_STATE_DIR": str(tmp_path / "state")}
    run = subprocess.run(slurm.command(command), env=env, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    for name in ("first", "second"):
        assert trireme.Result.from_path(str(tmp_path / "runs" / name)).metrics == {"done": 1}
    found = {tuple(json.loads(path.read_text())) for path in agents.iterdir()}
    assert found == {("n1", 0, 0, 4), ("n1", 0, 1, 4), ("n2", 1, 0, 4), ("n2", 1, 1, 4)}
    wait_for(lambda: not slurm.jobs(), "no job is left")
    wait_for(lambda: not processes_with(tmp_path), "no process is left")


machines = pytest.mark.skipif(why_not_permitted() is not None, reason=f"no namespaces: {why_not_permitted()}")


def submit(cluster: SlurmCluster, script: Script, *options: str) -> str:
    """A job of all nodes with an unchanged batch script."""
    batch = f"#!/bin/sh\nexec {shlex.join(script.words('--engine', 'slurm', '--engine-option', 'poll_s=0.2'))}\n"
    submitted = subprocess.run(
        cluster.command(
            [
                "sbatch",
                "--parsable",
                "--no-kill",
                "--requeue",
                "--nodes=2",
                "--ntasks-per-node=1",
                "--cpus-per-task=8",
                f"--output={script.folder}/job.log",
                "--open-mode=append",
                *options,
            ]
        ),
        input=batch,
        env=environment(script.folder, cluster.environment),
        capture_output=True,
        text=True,
    )
    assert submitted.returncode == 0, submitted.stderr
    return submitted.stdout.strip()


def wait_for_end(cluster: SlurmCluster, script: Script) -> None:
    wait_for(lambda: not cluster.jobs(), f"the job has ended: {cluster.jobs()}", 120)
    log = script.folder / "job.log"
    assert script.events("run_finished"), log.read_text() if log.exists() else "no output"
    wait_for(lambda: not processes_with(script.folder), "no process is left")


def test_a_requeued_job_resumes(slurm: SlurmCluster, tmp_path: Path) -> None:
    script = Script(tmp_path, steps=6, hold_at=3)
    job = submit(slurm, script)
    script.wait_for_step(2)
    slurm.run("scontrol", "requeue", job)
    wait_for(lambda: len(script.places()) >= 4, "the job has started again", 120)
    script.proceed()
    wait_for_end(slurm, script)
    assert [place["first"] for place in script.places()] == [0, 0, 3, 3]
    assert script.events("run_finished")[-1]["outcome"] == "finished"


def test_a_drained_node_is_left_and_used_again(slurm: SlurmCluster, tmp_path: Path) -> None:
    scaling = {"num_workers": (1, 2), "resources_per_worker": {"CPU": 8}}
    script = Script(tmp_path, busy=True, scaling=scaling)
    submit(slurm, script)
    script.wait_for_step(2)
    left = next(place["host"] for place in script.places() if place["rank"] == 1)
    slurm.run("scontrol", "update", f"nodename={left}", "state=drain", "reason=new disk")
    try:
        wait_for(lambda: len(script.places()) >= 3, "the run continues on the other node", 120)
        assert script.places()[2]["size"] == 1 and script.places()[2]["host"] != left
    finally:
        slurm.run("scontrol", "update", f"nodename={left}", "state=resume")
    wait_for(lambda: len(script.places()) >= 5, "it grows", 120)
    script.proceed()
    wait_for_end(slurm, script)
    assert {place["size"] for place in script.places()[3:]} == {2}
    told = script.events("preemption_announced", "resize_wanted")
    assert any("new disk" in json.dumps(event) for event in told), told


@pytest.mark.slow  # slurmctld looks at time limits twice a minute
def test_signal_before_the_end_of_a_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The run stops after a last checkpoint, and the next job resumes from it."""
    scaling = {"num_workers": 2, "placement_strategy": "SPREAD"}
    script = Script(tmp_path, busy=True, pause=1, scaling=scaling)
    submit(slurm, script, "--time=2", "--signal=TERM@90")
    wait_for(lambda: not slurm.jobs(), "the job has ended before its time", 150)
    assert any(20 < notice["seconds"] < 120 for notice in script.events("preemption_announced"))
    assert {failure["cause"] for failure in script.events("worker_failed")} <= {"preemption"}
    last = max(event["metrics"]["step"] for event in script.events("checkpoint_committed"))
    script.proceed()
    submit(slurm, script)
    wait_for_end(slurm, script)
    assert [place["first"] for place in script.places()] == [0, 0, last + 1, last + 1]


@pytest.mark.slow
def test_signal_before_the_end_of_the_workers_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The driver is on the login node and submits another job."""
    script = Script(tmp_path, busy=True, pause=1)
    options = ["--engine-option", "time=2", "--engine-option", "signal=TERM@90"]
    words = script.words("--engine", "slurm", *options)
    driver = Driver(slurm.command, words, environment(tmp_path, slurm.environment))
    wait_for(lambda: len(script.places()) >= 4, "the run continues in another job", 150)
    script.proceed()
    driver.finish()
    assert any(20 < notice["seconds"] < 120 for notice in script.events("preemption_announced"))
    assert {failure["cause"] for failure in script.events("worker_failed")} == {"preemption"}
    assert script.places()[2]["first"] > 0
    wait_for(lambda: not slurm.jobs(), "no job is left")


def test_slurmctld_restarts_during_a_run(own_slurm: SlurmCluster, tmp_path: Path) -> None:
    script = Script(tmp_path, steps=6, hold_at=3)
    words = script.words("--engine", "slurm", "--engine-option", "poll_s=0.2")
    driver = Driver(own_slurm.command, words, environment(tmp_path, own_slurm.environment))
    script.wait_for_step(2)
    own_slurm.stop_controller()
    # Restarts need no slurmctld: the agents are there.
    kill(own_slurm, next(place for place in script.places() if place["rank"] == 1))
    wait_for(lambda: len(script.places()) >= 4, "the next attempt has started")
    own_slurm.start_controller()
    wait_for(lambda: own_slurm.states(), "slurmctld answers")
    script.proceed()
    driver.finish()
    assert not script.events("node_lost")
    wait_for(lambda: not own_slurm.jobs(), "no job is left")


@machines
def test_an_elastic_run_survives_a_dead_node(own_slurm: SlurmCluster, tmp_path: Path) -> None:
    scaling = {"num_workers": (1, 2), "resources_per_worker": {"CPU": 8}}
    script = Script(tmp_path, steps=6, hold_at=3, scaling=scaling)
    submit(own_slurm, script, "--nodelist=n1,n2")  # the script runs on the first one
    script.wait_for_step(2)
    own_slurm.machine("n2").kill()
    wait_for(lambda: len(script.places()) >= 3, "the run continues on the other node")
    script.proceed()
    wait_for_end(own_slurm, script)
    assert (script.places()[2]["host"], script.places()[2]["first"]) == ("n1", 3)
    assert "node n2 is lost" in script.events("node_lost")[0]["message"]


# Detached scripts.


def test_a_detached_script_is_controlled_from_anywhere(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = Script(tmp_path, steps=100, hold_at=2)
    env = environment(tmp_path, slurm.environment)
    job = detach(slurm.command, script, "slurm", env)
    # Through Slurm, and directly, because this machine sees the same state folder.
    assert "running" in output_of(slurm.command(trireme_command("show", "--engine", "slurm")), env)
    assert "no such detached job" in output_of(
        slurm.command(trireme_command("show", "--engine", "slurm", "--job", "1")), env, expect=1
    )
    assert "asked to stop" in output_of(slurm.command(trireme_command("stop", "run")), env)
    wait_for(lambda: not slurm.jobs(), "the jobs of driver and workers have ended")
    assert (tmp_path / f"trireme-{job}.log").exists()
    wait_for(lambda: not processes_with(tmp_path), "no process is left")


def test_no_job_outlives_a_cancelled_driver(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = Script(tmp_path, steps=100, hold_at=2)
    job = detach(slurm.command, script, "slurm", environment(tmp_path, slurm.environment))
    slurm.run("scancel", "--signal=KILL", "--full", job)
    wait_for(lambda: not slurm.jobs(), f"no job is left: {slurm.jobs()}")
    wait_for(lambda: not processes_with(tmp_path), "no process is left")


@machines
@pytest.mark.slow  # Slurm takes a while to notice
def test_a_detached_script_survives_the_node_of_its_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = SlurmCluster(tmp_path / "slurm", nodes=3, cpus=2)
    try:
        script = Script(tmp_path, steps=6, hold_at=3, scaling={"num_workers": 1})
        options = ["--engine-option", "constraint=n2", "--engine-option", 'driver_args=["--exclude=n2"]']
        job = detach(cluster.command, script, "slurm", environment(tmp_path, cluster.environment), *options)
        script.wait_for_step(2)
        host = cluster.run("squeue", "--noheader", f"--jobs={job}", "--format=%B").strip()
        cluster.machine(host).kill()
        wait_for(lambda: len(script.places()) >= 2, f"the driver has started again: {cluster.jobs()}", 180)
        script.proceed()
        wait_for(lambda: not cluster.jobs(), f"all jobs have ended: {cluster.jobs()}", 120)
        assert [place["first"] for place in script.places()] == [0, 3]
    finally:
        cluster.close()
