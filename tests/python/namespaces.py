"""Nodes of their own on this machine: a network and a pid namespace each, connected to this one by a bridge."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import processes

_NET = f"10.{78 + os.getpid() % 150}.{os.getpid() // 150 % 250}"
# `nsenter` and not `ip netns exec`, which would mount another /sys.
LAUNCHER = "nsenter --net=/run/netns/{host} unshare --pid --fork --kill-child --mount-proc {command}"
DRIVER = f"{_NET}.1"


def launcher_without(folder: object) -> str:
    """For nodes that do not see this folder of the driver's machine."""
    return (
        "nsenter --net=/run/netns/{host} unshare --mount --pid --fork --kill-child --mount-proc "
        f"sh -c 'mount -t tmpfs none {folder} && exec \"$@\"' sh {{command}}"
    )


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


def _ip(*words: str) -> None:
    _run("ip", *words)


class Nodes:
    """Named hosts, reachable from this namespace."""

    def __init__(self, count: int) -> None:
        self._tag = f"tr{os.getpid() % 100000}"
        self._bridge = f"{self._tag}br"
        self.hosts = [f"{self._tag}n{index}" for index in range(count)]

    def open(self) -> None:
        if shutil.which("ip") is None:
            raise OSError("the command ip (package iproute2) is missing")
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{DRIVER}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for index, host in enumerate(self.hosts):
            _ip("netns", "add", host)
            _ip("link", "add", f"{host}v", "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("link", "set", f"{host}v", "master", self._bridge, "up")
            _ip("-n", host, "addr", "add", f"{_NET}.{index + 2}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", host, "link", "set", "lo", "up")

    def cut(self, host: str) -> None:
        _ip("link", "set", f"{host}v", "down")

    def restore(self, host: str) -> None:
        _ip("link", "set", f"{host}v", "up")

    def limit(self, host: str, rate: str) -> None:
        """What the node sends to the driver, not to other nodes. The queue is short, so that heartbeats pass."""
        device = ["dev", "eth0"]
        tc = ["ip", "netns", "exec", host, "tc"]
        _run(*tc, "qdisc", "add", *device, "root", "handle", "1:", "htb", "default", "10")
        _run(*tc, "class", "add", *device, "parent", "1:", "classid", "1:10", "htb", "rate", "10gbit")
        _run(*tc, "class", "add", *device, "parent", "1:", "classid", "1:20", "htb", "rate", rate)
        _run(*tc, "qdisc", "add", *device, "parent", "1:20", "pfifo", "limit", "40")
        match = ["u32", "match", "ip", "dst", f"{DRIVER}/32", "flowid", "1:20"]
        _run(*tc, "filter", "add", *device, "parent", "1:", "protocol", "ip", *match)

    def unlimit(self, host: str) -> None:
        """Does nothing if there is no limit."""
        with contextlib.suppress(OSError):
            _run("ip", "netns", "exec", host, "tc", "qdisc", "del", "dev", "eth0", "root")

    def inside(self, host: str) -> list[int]:
        """Processes of this test session on that node."""
        network = os.stat(f"/run/netns/{host}").st_ino
        found = []
        for process in processes.marked():
            with contextlib.suppress(OSError):  # it has ended in the meantime
                if os.stat(f"/proc/{process.pid}/ns/net").st_ino == network:
                    found.append(process.pid)
        return found

    def close(self) -> None:
        for host in self.hosts:
            with contextlib.suppress(OSError):
                _ip("netns", "del", host)
            with contextlib.suppress(OSError):
                _ip("link", "del", f"{host}v")
        with contextlib.suppress(OSError):
            _ip("link", "del", self._bridge)


@contextlib.contextmanager
def nodes(count: int) -> Iterator[Nodes]:
    """Raises OSError if this user may not create namespaces."""
    made = Nodes(count)
    try:
        made.open()
        yield made
    finally:
        made.close()
