"""`trireme run --engine ray` on a real Ray cluster: placement, faults, environments, detached scripts."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from adapter_client import processes_with
from cluster_runs import Driver, Script, detach, environment, output_of, trireme
from machines import wait_for, why_not_permitted
from ray_cluster import RayCluster, installed

pytestmark = [
    pytest.mark.skipif(not installed(), reason="Ray is not in this environment: make test-engines"),
    pytest.mark.skipif(why_not_permitted() is not None, reason=f"no namespaces: {why_not_permitted()}"),
]


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[RayCluster]:
    cluster = RayCluster(nodes=0, cpus=2, gpus=0, with_dashboard=True)
    cluster.add_node("n1", {"gpus": 2}, labels="region=eu")
    cluster.add_node("n2", {"gpus": 2, "accelerator_type:H100": 1}, labels="region=us", gpus=2)
    yield cluster
    cluster.close()


def run(cluster: RayCluster, script: Script, *options: str, address: str | None = None, **env: str) -> Driver:
    words = script.words("--engine", f"ray:{address or cluster.address}", *options)
    return Driver(cluster.command, words, {**environment(script.folder, cluster.environment), **env})


def test_ranks_are_ordered_by_node_and_the_second_run_is_warm(ray_cluster: RayCluster, tmp_path: Path) -> None:
    script = Script(tmp_path, names=["run", "second"], scaling={"num_workers": 6, "placement_strategy": "SPREAD"})
    run(ray_cluster, script).finish()
    first, second = script.places()[:6], script.places()[6:]
    for places in (first, second):
        ranks = sorted((p["rank"], p["node_rank"], p["local_rank"]) for p in places)
        assert ranks == [(rank, rank // 2, rank % 2) for rank in range(6)]
        by_rank = {p["rank"]: p["host"] for p in places}
        assert {by_rank[0], by_rank[2], by_rank[4]} == {"head", "n1", "n2"}
    assert {event["forked"] for event in script.events("worker_started", run="second")} == {True}
    wait_for(lambda: not processes_with(tmp_path), "no process is left")


def test_labels_select_nodes(ray_cluster: RayCluster, tmp_path: Path) -> None:
    script = Script(tmp_path, scaling={"num_workers": 2, "label_selector": {"region": "us"}})
    run(ray_cluster, script).finish()
    assert {place["host"] for place in script.places()} == {"n2"}
    script = Script(tmp_path / "none", scaling={"num_workers": 1, "label_selector": {"region": "asia"}})
    driver = run(ray_cluster, script)
    output, _ = driver.process.communicate(timeout=60)
    assert driver.process.returncode == 1
    assert "can never place it: asked for 1 x {CPU: 1} on nodes with {'region': 'asia'}" in output


def test_accelerator_types_select_nodes(ray_cluster: RayCluster, tmp_path: Path) -> None:
    script = Script(tmp_path, scaling={"num_workers": 2, "use_gpu": True, "accelerator_type": "H100"})
    run(ray_cluster, script).finish()
    assert {place["host"] for place in script.places()} == {"n2"}
    assert {place["gpus"] for place in script.places()} == {"0", "1"}


def test_a_killed_remote_worker_is_replaced_on_its_node(ray_cluster: RayCluster, tmp_path: Path) -> None:
    scaling = {"num_workers": 2, "resources_per_worker": {"CPU": 1, "gpus": 0.5}, "placement_strategy": "STRICT_SPREAD"}
    script = Script(tmp_path, scaling=scaling, steps=6, hold_at=3)
    driver = run(ray_cluster, script)
    script.wait_for_step(2)
    (victim,) = [place for place in script.places() if place["rank"] == 1]
    machine = ray_cluster.machine(victim["host"])
    subprocess.run(machine.command(["kill", "-9", str(victim["pid"])]), check=True)
    wait_for(lambda: len(script.places()) >= 3, "the attempt after it has started")
    script.proceed()
    driver.finish()
    (failed,) = [event for event in script.events("worker_failed") if not event["collateral"]]
    assert (failed["cause"], failed["rank"], failed["host"]) == ("signal", 1, victim["host"])
    again = script.places()[2:]
    assert {place["first"] for place in again} <= {2, 3}  # the last report may have been lost with it
    assert [place["host"] for place in again if place["rank"] == 1] == [victim["host"]]


def test_an_elastic_run_survives_a_dead_node_and_leaves_a_drained_one(ray_cluster: RayCluster, tmp_path: Path) -> None:
    dying = ray_cluster.add_node("n3", {"spot": 2})
    ray_cluster.add_node("n4", {"spot": 2})
    scaling = {"num_workers": (1, 4), "resources_per_worker": {"CPU": 1, "spot": 1}}
    script = Script(tmp_path, scaling=scaling, busy=True)
    driver = run(ray_cluster, script)
    script.wait_for_step(2)
    assert {place["host"] for place in script.places()} == {"n3", "n4"}
    dying.kill()
    wait_for(lambda: len(script.places()) >= 6, "the run continues on the other node")
    assert {(place["host"], place["size"]) for place in script.places()[4:6]} == {("n4", 2)}
    (lost,) = script.events("node_lost")
    assert "node n3 is lost" in lost["message"]
    # Nothing more is placed on a node that Ray drains.
    ray_cluster.add_node("n5", {"spot": 2})
    drained = ray_cluster.hosts()["n4"]
    ray_cluster.run(
        "drain-node",
        f"--address={ray_cluster.address}",
        f"--node-id={drained}",
        "--reason=DRAIN_NODE_REASON_PREEMPTION",
        "--reason-message=spot",
        "--deadline-remaining-seconds=300",
    )
    # It may have grown to both nodes before.
    wait_for(lambda: [(place["host"], place["size"]) for place in script.places()[-2:]] == [("n5", 2)] * 2, "only n5")
    script.proceed()
    driver.finish()
    assert {place["host"] for place in script.places()[-2:]} == {"n5"}
    told = script.events("preemption_announced", "resize_wanted")
    assert any("Ray drains node n4" in json.dumps(event) for event in told), told
    for host in ("n4", "n5"):
        ray_cluster.machine(host).kill()


def test_a_runtime_environment(ray_cluster: RayCluster, tmp_path: Path) -> None:
    script = Script(tmp_path, env=["COLOUR"])
    environment_of_ray = json.dumps({"env_vars": {"COLOUR": "red"}})
    run(ray_cluster, script, "--engine-option", f"runtime_env={environment_of_ray}").finish()
    assert {place["env"]["COLOUR"] for place in script.places()} == {"red"}


def test_the_address_comes_from_the_environment(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """As in a Ray job."""
    script = Script(tmp_path)
    words = script.words("--engine", "ray")
    env = {**environment(tmp_path, ray_cluster.environment), "RAY_ADDRESS": ray_cluster.address}
    Driver(ray_cluster.command, words, env).finish()
    assert len(script.places()) == 2


def test_through_the_client(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """`ray://` from a machine that is not in the cluster. Its driver restarts workers and starts a second run too."""
    script = Script(tmp_path, names=["run", "second"], scaling={"num_workers": 3, "placement_strategy": "SPREAD"})
    assert ray_cluster.network
    outside = ray_cluster.network.add("laptop")
    words = script.words("--engine", f"ray://{ray_cluster.head}:10001")
    Driver(outside.command, words, environment(tmp_path, ray_cluster.environment)).finish()
    assert [place["host"] for place in script.places()].count("n1") == 2
    assert {place["host"] for place in script.places()} == {"head", "n1", "n2"}
    assert {event["forked"] for event in script.events("worker_started", run="second")} == {True}
    wait_for(lambda: not outside.pids(), "no process is left on the driver's machine")
    outside.kill()


def test_a_ray_job(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """`ray job submit` of a folder, with a runtime environment. Ray sets RAY_ADDRESS of the script."""
    script = Script(tmp_path / "submitted", env=["COLOUR"], scaling={"num_workers": 3, "placement_strategy": "SPREAD"})
    options, _, arguments = shlex.join(script.words("--engine", "ray")).partition(f" {script.path} ")
    words = [*shlex.split(options), script.path.name, *shlex.split(arguments)]
    variables = {"env_vars": {"COLOUR": "red", "TRIREME_STATE_DIR": str(tmp_path / "state")}}
    outside = ray_cluster.run(
        "job",
        "submit",
        f"--address=http://{ray_cluster.head}:8265",
        f"--working-dir={script.folder}",
        f"--runtime-env-json={json.dumps(variables)}",
        "--",
        *words,
    )
    assert "succeeded" in outside
    assert {place["host"] for place in script.places()} == {"head", "n1", "n2"}
    assert {place["env"]["COLOUR"] for place in script.places()} == {"red"}


def test_a_ray_of_its_own(tmp_path: Path, ray_cluster: RayCluster) -> None:
    script = Script(tmp_path)
    env = environment(tmp_path, {**ray_cluster.environment, "RAY_TMPDIR": str(ray_cluster.folder)})
    words = script.words("--engine", "ray:local", "--engine-option", "num_cpus=2")
    Driver(list, words, env).finish()
    assert len(script.places()) == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
def test_the_head_restarts_during_a_run(tmp_path: Path) -> None:
    """With its state in Redis, as Ray's documentation recommends. Restarts of workers do not need it."""
    cluster = RayCluster(nodes=2, cpus=2, gpus=0, head_cpus=0, with_redis=True)
    try:
        script = Script(tmp_path, steps=6, hold_at=3, scaling={"num_workers": 2, "placement_strategy": "SPREAD"})
        words = script.words("--engine", f"ray:{cluster.address}")
        env = environment(tmp_path, cluster.environment)
        driver = Driver(lambda argv: cluster.command(argv, "n1"), words, env)
        script.wait_for_step(2)
        cluster.kill_head()
        victim = next(place for place in script.places() if place["rank"] == 1)
        subprocess.run(cluster.command(["kill", "-9", str(victim["pid"])], victim["host"]), check=True)
        wait_for(lambda: len(script.places()) >= 4, "the next attempt has started without the head")
        cluster.start_head()
        wait_for(lambda: len(cluster.hosts()) == 3, "the nodes are connected again")
        script.proceed()
        driver.finish()
        assert not script.events("node_lost")
        # The cluster is usable again.
        again = Script(tmp_path / "again")
        run(cluster, again).finish()
        assert len(again.places()) == 2
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RayCluster, Path]]:
    """A cluster that only accepts drivers with its token, and the file with the token."""
    token = tmp_path_factory.mktemp("guarded") / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    cluster = RayCluster(nodes=1, cpus=2, gpus=0, env={"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)})
    yield cluster, token
    cluster.close()


def run_with_token(cluster: RayCluster, script: Script, token: Path) -> Driver:
    plain = {name: value for name, value in cluster.environment.items() if not name.startswith("RAY_AUTH")}
    words = script.words("--engine", f"ray:{cluster.address}", "--engine-option", f"auth_token_path={token}")
    return Driver(cluster.command, words, environment(script.folder, plain))


def test_a_cluster_with_a_token(guarded: tuple[RayCluster, Path], tmp_path: Path) -> None:
    cluster, token = guarded
    script = Script(tmp_path, scaling={"num_workers": 2, "placement_strategy": "SPREAD"})
    run_with_token(cluster, script, token).finish()
    assert {place["host"] for place in script.places()} == {"head", "n1"}


@pytest.mark.slow  # Ray itself tries for half a minute
def test_a_wrong_token(guarded: tuple[RayCluster, Path], tmp_path: Path) -> None:
    cluster, _ = guarded
    wrong = tmp_path / "wrong"
    wrong.write_text("f" * 32)
    driver = run_with_token(cluster, Script(tmp_path), wrong)
    output, _ = driver.process.communicate(timeout=120)
    assert driver.process.returncode == 1
    assert f"Ray at {cluster.address} cannot be used" in output


# Detached scripts.


def test_a_detached_script_is_controlled_from_anywhere(ray_cluster: RayCluster, tmp_path: Path) -> None:
    script = Script(tmp_path, steps=100, hold_at=2)
    env = environment(tmp_path, ray_cluster.environment)
    engine = ["--engine", f"ray:{ray_cluster.address}"]
    job = detach(lambda argv: ray_cluster.command(argv, "n1"), script, engine[1], env)

    def elsewhere(*words: str, expect: int = 0) -> str:
        command = ray_cluster.command(trireme(*words, *engine), "n2")
        return output_of(command, {**env, "TRIREME_STATE_DIR": str(tmp_path / "other")}, expect=expect)

    assert "running" in elsewhere("show")
    assert "run" in elsewhere("runs", "--job", job)
    assert "no such detached job" in elsewhere("show", "--job", "x", expect=1)
    following = Driver(lambda argv: ray_cluster.command(argv, "n2"), trireme("logs", "-f", *engine), env)
    assert "asked to stop" in elsewhere("stop", "run")
    following.finish()
    wait_for(lambda: "stopped" in elsewhere("show"), "the run has stopped")
    wait_for(lambda: "forgotten" in elsewhere("stop", "--job", job), "the script has ended")
    assert "no detached job" in elsewhere("show", expect=1)
    wait_for(lambda: not processes_with(tmp_path), "no process is left")


def test_a_detached_script_survives_the_node_of_its_driver(ray_cluster: RayCluster, tmp_path: Path) -> None:
    machine = ray_cluster.add_node("n6", {"driver": 1})
    script = Script(tmp_path, steps=6, hold_at=3, scaling={"num_workers": 2, "label_selector": {"region": "us"}})
    env = environment(tmp_path, ray_cluster.environment)
    engine = ["--engine", f"ray:{ray_cluster.address}"]
    options = ["--engine-option", 'driver_resources={"driver": 0.1}']
    job = detach(ray_cluster.command, script, engine[1], env, *options)
    script.wait_for_step(2)
    other = ray_cluster.add_node("n7", {"driver": 1})
    machine.kill()
    wait_for(lambda: len(script.places()) >= 4, "the script has started again", 120)
    script.proceed()

    def ended() -> bool:
        command = ray_cluster.command(trireme("show", "--job", job, *engine))
        return "finished" in subprocess.run(command, env=env, capture_output=True, text=True).stdout

    wait_for(ended, "the run has finished")
    assert {place["first"] for place in script.places()[2:]} == {3}
    assert {place["host"] for place in script.places()} == {"n2"}
    output_of(ray_cluster.command(trireme("stop", "--job", job, *engine)), env)
    other.kill()
