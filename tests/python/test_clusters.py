"""Runs on several nodes: agents as separate processes of this machine, started by the engine `hosts`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cpp_programs
import processes
import trireme
from runs import ROOT, events, fit, trireme_command
from trireme import Checkpoint, ConfigError, collective
from trireme._rank_variables import one_host

LOCAL = {"launcher": "local", "num_cpus": 2}


@pytest.fixture
def two_nodes(declared: Callable[..., None]) -> None:
    declared(engine="hosts:a,b", engine_options=LOCAL)


def place() -> dict[str, Any]:
    context = trireme.get_context()
    names = ("world_rank", "world_size", "local_rank", "local_world_size", "node_rank")
    return {name: getattr(context, f"get_{name}")() for name in names}


def agents() -> list[int]:
    return [process.pid for process in processes.marked() if process.command.endswith("trireme agent")]


def step_with_checkpoints(last: int, break_at: Callable[[int, int], None]) -> int:
    """Counts in checkpoints of rank 0; returns the start of this attempt."""
    context = trireme.get_context()
    checkpoint = trireme.get_checkpoint()
    first = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    for step in range(first, last + 1):
        break_at(context.get_world_rank(), step)
        mine = Checkpoint.from_dict({"step": step}) if context.get_world_rank() == 0 else None
        trireme.report({"step": step, "size": context.get_world_size()}, checkpoint=mine)
        collective.barrier()
    return first


def attempt() -> int:
    return trireme.get_context()._attempt


def test_ranks_are_ordered_by_node_and_logs_arrive(two_nodes: None) -> None:
    def train() -> list[dict[str, Any]]:
        print(f"rank {place()['world_rank']} is here", flush=True)
        trireme.report({"rank": place()["world_rank"]}, checkpoint=Checkpoint.from_dict({"a": 1}))
        return collective.broadcast_from_rank_zero(None) or [place()]

    result = fit(train, 4)
    started = {event["rank"]: event for event in events(result.path, "worker_connected")}
    assert [started[rank]["host"] for rank in range(4)] == ["a", "a", "b", "b"]
    for rank in range(4):
        assert Path(result.path, f"logs/attempt_0/rank_{rank}.log").read_text() == f"rank {rank} is here\n"
    assert result.checkpoint is not None
    assert result.return_value == [
        {"world_rank": 0, "world_size": 4, "local_rank": 0, "local_world_size": 2, "node_rank": 0}
    ]

    # The second one is forked from the warm process of its node.
    def where() -> None:
        print(place())

    second = fit(where, 3, name="second")
    assert [event["forked"] for event in events(second.path, "worker_started")] == [True] * 3
    assert "'node_rank': 1" in Path(second.path, "logs/attempt_0/rank_2.log").read_text()


def test_two_nodes_are_not_taken_for_one_host(two_nodes: None) -> None:
    def train() -> bool:
        return one_host(trireme.get_context())  # which decides the addresses of process groups

    assert fit(train, 4).return_value is False
    assert fit(train, 2, name="packed").return_value is True


def connected_to() -> list[str]:
    """The addresses that this process has connections to."""
    peers = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as copy:
            peer = copy.getpeername()
            peers.append(peer[1:].decode() if isinstance(peer, bytes) else str(peer[0]))
    return [peer for peer in peers if peer]


def test_workers_connect_through_the_agent_of_their_node(two_nodes: None) -> None:
    """Workers have no connection to the driver; those of a node share one, also with large messages of one of them."""
    megabyte = "x" * 1_000_000

    def train() -> list[str]:
        rank = place()["world_rank"]
        for step in range(3):
            trireme.report({"step": step, "text": megabyte if rank == 1 else ""})
        peers = [peer for peer in connected_to() if not peer.startswith("trireme-memory-")]
        collective.barrier()
        return [str(peer) for peer in collective.broadcast_from_rank_zero(peers) + peers]

    result = fit(train, 4)
    assert len(result.return_value) == 2  # one of rank 0, twice
    assert all(re.fullmatch("trireme-relay-[0-9a-f]{32}", peer) for peer in result.return_value)
    reports = events(result.path, "report")
    assert len(reports) == 12
    assert [len(each["metrics"]["text"]) for each in reports if each["rank"] == 1] == [1_000_000] * 3


def test_a_killed_worker_is_replaced_on_its_node(two_nodes: None) -> None:
    def train() -> int:
        def break_at(rank: int, step: int) -> None:
            if (rank, step, attempt()) == (2, 3, 0):
                print("about to die", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

        return step_with_checkpoints(5, break_at)

    result = fit(train, 3, max_failures=1)
    assert result.return_value == 3
    (failed,) = [each for each in events(result.path, "worker_failed") if not each["collateral"]]
    assert (failed["rank"], failed["cause"], failed["host"]) == (2, "signal", "b")
    assert failed["log_tail"] == ["about to die"]
    assert all(event["forked"] for event in events(result.path, "worker_started") if event["attempt"] == 1)


class SignalAgentAtStep(trireme.UserCallback):
    """Signals the agent of a node once a step is reported. If it is killed, all that it has started ends with it."""

    def __init__(self, step: int, number: signal.Signals) -> None:
        self.step: int | None = step
        self.number = number

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        if self.step is not None and metrics[0]["step"] >= self.step:
            self.step = None
            os.kill(max(agents()), self.number)


@pytest.mark.parametrize("workers", [4, (2, 4)])
def test_a_lost_node_is_replaced(two_nodes: None, workers: Any) -> None:
    """A fixed number of workers waits for the node's next agent; an elastic run continues on the other node."""

    def train() -> int:
        def wait_for_the_kill(rank: int, step: int) -> None:
            while attempt() == 0 and step > 6:
                time.sleep(0.1)

        return step_with_checkpoints(12, wait_for_the_kill)

    result = fit(train, workers, max_failures=1, callbacks=[SignalAgentAtStep(3, signal.SIGKILL)])
    assert result.return_value >= 3
    (lost,) = events(result.path, "node_lost")
    assert "node b is lost" in lost["message"] or "node a is lost" in lost["message"]
    failed = [each for each in events(result.path, "worker_failed") if not each["collateral"]]
    assert {each["cause"] for each in failed} == {"node_lost"}
    sizes = [event["num_workers"] for event in events(result.path, "attempt_started")]
    assert sizes[0] == 4
    assert sizes[1] == (4 if workers == 4 else 2)


def test_a_drained_node_is_left(two_nodes: None) -> None:
    """Schedulers send SIGTERM to the agent before they take a node away: nothing is killed, and nothing is repeated."""

    def train() -> int:
        return step_with_checkpoints(14, lambda rank, step: time.sleep(0.05))

    result = fit(train, (2, 4), callbacks=[SignalAgentAtStep(3, signal.SIGTERM)])
    assert result.return_value >= 3
    assert not events(result.path, "node_lost")
    started = events(result.path, "worker_connected")
    last = max(each["attempt"] for each in started)
    assert last >= 1
    assert len({each["host"] for each in started if each["attempt"] == last}) == 1
    # A failed attempt would repeat steps.
    steps = [each["metrics"]["step"] for each in events(result.path, "report") if each["rank"] == 0]
    assert steps == sorted(set(steps))


def test_no_process_survives_its_driver(script: Any, tmp_path: Path) -> None:
    driver = script.start(
        f"""
        import time
        import trireme
        from trireme import DataParallelTrainer, ScalingConfig

        def train():
            print("up", flush=True)
            time.sleep(600)

        trireme.init(engine="hosts:a,b", engine_options={LOCAL!r})
        DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=4)).fit()
        """
    )
    logs = "results/*/logs/attempt_0/rank_*.log"
    assert processes.wait_until(lambda: len([p for p in tmp_path.glob(logs) if p.read_text() == "up\n"]) == 4)
    driver.kill()
    driver.wait()
    assert processes.wait_until(lambda: not processes.left_over()), processes.left_over()


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("hots:a", {}, r"engine = 'hots:a': unknown; did you mean 'hosts'\?; use local, hosts:a,b, ray, slurm"),
        ("nothing.py", {}, r"engine = 'nothing\.py': there is no file .*/nothing\.py"),
        (
            "no_such.module",
            {},
            r"(?s)engine = 'no_such\.module': its adapter ended with exit code 1.*No module named 'no_such'",
        ),
        ("hosts:", {}, r"engine = 'hosts:': no hosts: use engine=\"hosts:a,b\""),
        ("hosts:a", {"cpus": 2}, r"unknown option 'cpus'; the options are hosts, launcher"),
        ("hosts:a", {"launcher": "ssh {host}"}, r"launcher = 'ssh \{host\}': use ssh, mpirun"),
        ("hosts:a", {"ports": "80"}, r"engine_options\['ports'\] = '80': use a range from 1024"),
        ("hosts:a", {"node_timeout_s": 0}, r"engine_options\['node_timeout_s'\]: must be a positive number"),
        ("local", {"hosts": "a"}, r"engine_options\['hosts'\]: the local engine has no options"),
    ],
)
def test_a_wrong_engine_is_refused_at_once(
    declared: Callable[..., None], engine: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        declared(engine=engine, engine_options=options)


def test_capacity_is_that_of_the_nodes(two_nodes: None) -> None:
    with pytest.raises(ConfigError, match=r"5 needed .*, 4 available"):
        fit(lambda: None, 5)
    with pytest.raises(ConfigError, match="its capacity is that of its nodes"):
        trireme.set_capacity(num_cpus=8)
    with pytest.raises(ConfigError, match="num_cpus, num_gpus and resources describe this machine"):
        trireme.init(num_cpus=4, engine="hosts:a", engine_options=LOCAL)


def test_driver_and_agents_listen_on_ports_of_the_range(declared: Callable[..., None]) -> None:
    declared(engine="hosts:a", engine_options={**LOCAL, "ports": "17340-17349"})

    def train() -> list[int]:
        with open("/proc/net/tcp") as table:
            remote = {int(line.split()[2].rpartition(":")[2], 16) for line in list(table)[1:]}
        return sorted(port for port in remote if 17340 <= port <= 17349)

    ports = fit(train, 1).return_value
    # The driver's, for the agent and for the worker. It also connects to the agent's, perhaps later.
    assert ports in ([17340, 17341], [17340, 17341, 17342])


def test_an_unreachable_host_is_named(declared: Callable[..., None]) -> None:
    declared(
        engine="hosts:a", engine_options={"launcher": "sh -c 'echo no route to {host} >&2; exit 7 #{command_line}'"}
    )
    with pytest.raises(ConfigError, match=r"no node is available .*a: exit code 7: no route to a"):
        fit(lambda: None, 1)


def test_a_cpp_program_is_its_own_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_PYTHON", sys.executable)
    monkeypatch.setenv("TRIREME_ENGINE", "hosts:a,b")
    monkeypatch.setenv("TRIREME_ENGINE_OPTIONS", json.dumps(LOCAL))
    run = cpp_programs.checked(cpp_programs.EXAMPLES / "example_quickstart")
    (folder,) = Path(os.environ["TRIREME_RESULTS"]).iterdir()
    assert {event["host"] for event in events(folder, "worker_connected")} == {"a", "b"}, run


def test_the_adapter_in_the_documentation_works(
    declared: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs/engines.md").read_text()
    (source,) = re.findall(r"^```python adapter\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "folder_engine.py").write_text(source)
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    (nodes / "a").write_text("2")
    (nodes / "b").write_text("2")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"use engine_options={'folder': ...} and nothing else"):
        declared(engine="folder_engine.py")
    declared(engine="folder_engine.py", engine_options={"folder": str(nodes)})

    def train() -> int:
        def break_at(rank: int, step: int) -> None:
            # All ranks have made the report of step 2, so its checkpoint is committed.
            if (rank, step, attempt()) == (0, 3, 0):
                (nodes / "c").write_text("2")
                (nodes / "b").unlink()
            while attempt() == 0 and step > 2:
                time.sleep(0.1)

        return step_with_checkpoints(4, break_at)

    result = fit(train, 4, max_failures=1)
    assert result.return_value == 3
    (lost,) = events(result.path, "node_lost")
    assert lost["message"] == "node b is lost: its file was removed"
    hosts = {(each["attempt"], each["host"]) for each in events(result.path, "worker_started")}
    assert hosts == {(0, "a"), (0, "b"), (1, "a"), (1, "c")}


def test_the_command_line_selects_the_engine(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_PYTHON", sys.executable)
    path = script.write(
        """
        import trireme
        from trireme import DataParallelTrainer, ScalingConfig

        trireme.init(engine="local")
        result = DataParallelTrainer(
            lambda: trireme.get_context().get_node_rank(), scaling_config=ScalingConfig(num_workers=3)
        ).fit()
        """
    )
    options = ["--engine", "hosts:a,b", "--engine-option", "launcher=local", "--engine-option", "num_cpus=2"]
    done = trireme_command("run", *options, str(path))
    assert done.returncode == 0, done.stderr
    shown = trireme_command("env", *options)
    assert "a: 2 CPUs" in shown.stdout, shown.stdout
    refused = trireme_command("env", "--engine-option", "launcher=local")
    assert refused.returncode == 2 and "--engine-option requires --engine" in refused.stderr

    torchrun = script.write(
        """
        import os

        print("place", os.environ["RANK"], os.environ["NODE_RANK"], os.environ["LOCAL_RANK"], os.environ["MASTER_ADDR"])
        """,
        "torchrun.py",
    )
    launched = trireme_command("launch", "-n", "3", *options, str(torchrun))
    assert launched.returncode == 0, launched.stderr
    for line in ("place 0 0 0 127.0.0.1", "place 1 0 1 127.0.0.1", "place 2 1 0 127.0.0.1"):
        assert line in launched.stdout


SLOW_ENGINE = """
import os, time
from trireme.engines.adapter import Adapter, Refused

class SlowEngine(Adapter):
    name = "slow"

    def start(self, options):
        while not os.path.exists(options["reached"]):
            time.sleep(0.01)
        raise Refused("the script has begun")

SlowEngine().serve()
"""


def test_a_script_begins_while_its_engine_starts(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_PYTHON", sys.executable)
    (tmp_path / "slow_engine.py").write_text(SLOW_ENGINE)
    reached = tmp_path / "reached"
    path = script.write(
        f"""
        import threading
        from pathlib import Path

        from trireme import ConfigError, DataParallelTrainer

        Path({str(reached)!r}).touch()
        for thread in threading.enumerate():
            if thread.name == "trireme-warm-up":
                thread.join()
        for _ in range(2):  # the second one starts the engine again
            try:
                DataParallelTrainer(print).fit()
            except ConfigError as error:
                print("refused:", error)
        """
    )
    options = ["--engine", str(tmp_path / "slow_engine.py"), "--engine-option", f"reached={reached}"]
    done = trireme_command("run", *options, str(path))
    assert done.stdout.count("refused: engine = ") == 2, done.stdout + done.stderr
    assert done.stdout.count("the script has begun") == 2
    assert "trireme warning: fit() will fail: engine = " in done.stderr
