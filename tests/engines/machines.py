"""Machines for tests of clusters: each is a network namespace with its own processes and host name.

The first machine contains the switch that connects them. Killing a machine kills every process in it at once; cutting
it off leaves its processes running, as a broken cable does. Nothing is left when the processes of a machine are gone:
the namespaces have no names.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

PREFIX = "10.77.5"


@functools.cache
def why_not_permitted() -> str | None:
    """Why this process cannot create namespaces; None if it can."""
    veth, bridge = "ip link add trireme0 type veth peer name trireme1", "ip link add name trireme2 type bridge"
    try:
        run = subprocess.run(
            [*_UNSHARE, "sh", "-c", f"ip link set lo up && {veth} && {bridge}"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    return None if run.returncode == 0 else (run.stderr.strip() or f"exit code {run.returncode}")


_UNSHARE = ["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc"]


class Machine:
    """Its host name is `host`, but other machines only know its address."""

    def __init__(self, number: int, host: str, switch: Machine | None) -> None:
        self.host = host
        self.address = f"{PREFIX}.{number}"
        self.switch = switch
        # The shell stays: it is the init process of the machine, which has to reap orphans. The machine ends with this
        # process, even if that is killed: its standard input ends then.
        script = f"hostname {host} && ip link set lo up && echo ready && cat > /dev/null"
        self.unshare = subprocess.Popen(
            [*_UNSHARE, "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.unshare.stdout is not None
        assert self.unshare.stdout.readline() == "ready\n", "the namespaces could not be created"
        children = Path(f"/proc/{self.unshare.pid}/task/{self.unshare.pid}/children").read_text().split()
        self.init = int(children[0])
        self._plug_in(number)

    def _plug_in(self, number: int) -> None:
        switch = self.switch
        if switch is None:
            self._ip("link", "add", "name", "switch", "type", "bridge")
            self._ip("addr", "add", f"{self.address}/24", "dev", "switch")
            self._ip("link", "set", "switch", "up")
            return
        self.cable = f"cable{number}"
        switch._ip("link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", str(self.init))
        switch._ip("link", "set", self.cable, "master", "switch", "up")
        self._ip("addr", "add", f"{self.address}/24", "dev", "eth0")
        self._ip("link", "set", "eth0", "up")

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["nsenter", "--net", "--target", str(self.init), "ip", *arguments], check=True)

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` on this machine."""
        here = ["--net", "--pid", "--mount", "--uts", f"--wdns={os.getcwd()}"]
        return ["nsenter", "--target", str(self.init), *here, *argv]

    def network_command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` in the network of this machine, but as a process that outlives it."""
        return ["nsenter", "--target", str(self.init), "--net", "--uts", *argv]

    def pids(self) -> list[int]:
        """All processes on this machine except its init, and the one that init waits for."""
        space = os.readlink(f"/proc/{self.init}/ns/pid")
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(folder / "ns/pid") == space and (folder / "cmdline").read_bytes() != b"cat\0":
                    found.append(int(folder.name))
            except OSError:
                continue
        return [pid for pid in found if pid != self.init]

    def kill_all(self, but: str = "") -> None:
        """SIGKILL to all processes on the machine whose names do not contain this. The machine, and its cable, stay."""
        for pid in self.pids():
            with contextlib.suppress(OSError):  # it has ended with another one
                if not but or but not in Path(f"/proc/{pid}/comm").read_text():
                    os.kill(pid, signal.SIGKILL)

    def cut(self) -> None:
        assert self.switch is not None
        self.switch._ip("link", "set", self.cable, "down")

    def restore(self) -> None:
        assert self.switch is not None
        self.switch._ip("link", "set", self.cable, "up")

    def kill(self) -> None:
        """Every process on the machine is dead when this returns."""
        if self.unshare.poll() is None:
            os.kill(self.init, signal.SIGKILL)
        self.unshare.wait()


class Network:
    """Machines that reach each other by address. The first one is the head."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.machines: list[Machine] = []
        for number, host in enumerate(hosts, 1):
            self.machines.append(Machine(number, host, self.machines[0] if self.machines else None))

    def add(self, host: str) -> Machine:
        self.machines.append(Machine(len(self.machines) + 1, host, self.machines[0]))
        return self.machines[-1]

    def close(self) -> None:
        for machine in reversed(self.machines):
            machine.kill()


def wait_for(condition, what: str, timeout: float = 60.0):
    """The first true value of `condition()`. The timeout only ends a hang."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {what}")
        time.sleep(0.02)
    return value
