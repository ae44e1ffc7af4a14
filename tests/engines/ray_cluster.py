"""A real Ray cluster for tests, on machines of its own (machines.py), or on loopback if namespaces are not permitted.

On loopback it has a single node: several nodes of one address cannot find each other's head.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from machines import Machine, Network, wait_for, why_not_permitted

_PORT = 6399
# A dead node is noticed in a second.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "1000",
    # Otherwise its workers, and our agents, starve on a busy machine: Ray runs them at nice 15.
    "RAY_worker_niceness": "0",
}

_CONNECT = "import ray, sys; ray.init(sys.argv[1], logging_level=50, log_to_driver=False)\n"
_LIST_NODES = """
for node in ray.nodes():
    if node["Alive"]:
        print(node["NodeManagerHostname"], node["NodeID"])
"""
_LIST_GROUPS = """
for group in ray.util.placement_group_table().values():
    if group["state"] == "CREATED":
        print(group["name"], *group["bundles_to_node_id"].values())
"""


def installed() -> bool:
    return (Path(sys.executable).parent / "ray").exists()


class RayCluster:
    """The head is a node with `cpus` CPUs; n1, n2, ... are the others."""

    def __init__(
        self,
        nodes: int = 1,
        cpus: int = 4,
        gpus: int = 4,
        env: Mapping[str, str] | None = None,
        head_cpus: int | None = None,
        with_redis: bool = False,
        with_dashboard: bool = False,
    ) -> None:
        # Short: it contains Unix sockets, whose paths have at most 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="tr-ray-"))
        self.network = None if why_not_permitted() else Network(["head"])
        self.cpus, self.gpus = cpus, gpus
        self.head_cpus = cpus if head_cpus is None else head_cpus
        self.environment = {**os.environ, **_SETTINGS, **(env or {})}
        self.environment.pop("RAY_ADDRESS", None)
        self._dashboard = ["--dashboard-host=0.0.0.0"] if with_dashboard else ["--include-dashboard=false"]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        head = self.network.machines[0].address if self.network else "127.0.0.1"
        self.head = head
        self.address = f"{head}:{_PORT}"
        if with_redis:
            self._start_redis(head)
        self.start_head()
        for number in range(1, nodes + 1):
            if self.network:
                self.add_node(f"n{number}")

    def start_head(self) -> None:
        self._start("head", ["--head", f"--port={_PORT}", *self._dashboard, f"--temp-dir={self.folder}"], {})

    def _start_redis(self, address: str) -> None:
        """The head keeps its state there, so that it can be started again."""
        argv = ["redis-server", "--bind", address, "--port", "6379", "--save", "", "--protected-mode", "no"]
        log = (self.folder / "redis.log").open("wb")
        with log:
            self.processes["redis"] = subprocess.Popen(self.command(argv), stdin=subprocess.DEVNULL, stdout=log)
        wait_for(lambda: b"Ready to accept" in (self.folder / "redis.log").read_bytes(), "Redis")
        self.environment |= {"RAY_REDIS_ADDRESS": f"{address}:6379", "RAY_external_storage_namespace": "test"}

    def kill_head(self) -> None:
        """The processes of Ray on the head: the machine, with the network's switch, stays."""
        machine = self.machine("head")
        assert machine
        machine.kill_all(but="redis")
        self.processes["head"].wait()

    def add_node(
        self, host: str, resources: Mapping[str, float] | None = None, labels: str = "", gpus: int | None = None
    ) -> Machine:
        assert self.network
        machine = self.network.add(host)
        # Ray uses the same path on all nodes. If they shared it, one would delete the packages of another.
        subprocess.run(machine.command(["mount", "-t", "tmpfs", "none", str(self.folder)]), check=True)
        more = [f"--labels={labels}"] if labels else []
        self._start(host, [f"--address={self.address}", *more], {host: 1, **(resources or {})}, gpus)
        return machine

    def _start(
        self, host: str, options: Sequence[str], resources: Mapping[str, float], gpus: int | None = None
    ) -> None:
        machine = self.machine(host)
        argv = [
            str(Path(sys.executable).parent / "ray"),
            "start",
            *options,
            "--block",
            "--disable-usage-stats",
            f"--node-ip-address={machine.address if machine else '127.0.0.1'}",
            f"--num-cpus={self.head_cpus if host == 'head' else self.cpus}",
            f"--num-gpus={self.gpus if gpus is None else gpus}",
            f"--resources={json.dumps(resources)}",
            "--object-store-memory=80000000",
        ]
        log = self.folder / f"{host}.log"
        with log.open("wb") as output:
            self.processes[host] = subprocess.Popen(
                machine.command(argv) if machine else argv,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )

        def started() -> bool:
            if self.processes[host].poll() is not None:
                raise AssertionError(f"ray start on {host}: {log.read_text()}")
            return "Ray runtime started" in log.read_text()

        wait_for(started, f"Ray on {host}", 120)

    def machine(self, host: str) -> Machine | None:
        return next((m for m in self.network.machines if m.host == host), None) if self.network else None

    def command(self, argv: list[str], host: str = "head") -> list[str]:
        """The command that runs `argv` on a machine."""
        machine = self.machine(host)
        return machine.command(argv) if machine else argv

    def run(self, *arguments: str) -> str:
        """The output of `ray ARGUMENTS` on the head."""
        command = self.command([str(Path(sys.executable).parent / "ray"), *arguments])
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def hosts(self) -> dict[str, str]:
        """The living nodes, as Ray names them."""
        return {line[0]: line[1] for line in self._list(_LIST_NODES)}

    def groups(self) -> dict[str, list[str]]:
        """The nodes of each placement group that is placed."""
        return {line[0]: line[1:] for line in self._list(_LIST_GROUPS)}

    def _list(self, script: str) -> list[list[str]]:
        command = self.command([sys.executable, "-c", _CONNECT + script, self.address])
        done = subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True, timeout=120)
        return [line.split() for line in done.stdout.splitlines()]

    def close(self) -> None:
        if self.network:
            self.network.close()
        for process in self.processes.values():
            if not self.network and process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
