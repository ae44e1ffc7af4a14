"""The TCP connections of a library that has no function to abort its collectives."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from trireme._context import TrainContext
from trireme._rank_variables import node_address

_ATTEMPTS = 200


def own_address(context: TrainContext) -> str:
    """The address at which the other workers reach this one."""
    return node_address(context)


def tcp_sockets() -> dict[int, int]:
    """The TCP connections of this process, without those that listen: inode -> descriptor."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed in the meantime
            link = os.readlink(f"/proc/self/fd/{name}")
            if link.startswith("socket:[") and _is_connection(int(name)):
                found[int(link[len("socket:[") : -1])] = int(name)
    return found


def _is_connection(fd: int) -> bool:
    with _borrowed(fd) as sock:
        tcp = sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM
        return tcp and not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


@contextlib.contextmanager
def _borrowed(fd: int) -> Iterator[socket.socket]:
    sock = socket.socket(fileno=fd)
    try:
        yield sock
    finally:
        sock.detach()


def cut(descriptors: Collection[int]) -> None:
    """Ends all calls on these connections with an error, in whatever thread they are.

    A library that reads until it has everything would loop forever on a connection that only is at its end. Therefore
    the descriptors refer to a file afterwards, on which recv() and send() fail.
    """
    null = os.open(os.devnull, os.O_RDWR)
    try:
        for fd in descriptors:
            with contextlib.suppress(OSError):
                kept = os.dup(fd)
                os.dup2(null, fd, inheritable=False)
                with socket.socket(fileno=kept) as sock, contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # wakes threads that wait in recv()
    finally:
        os.close(null)


@dataclass
class Connections:
    """The connections that a library opens during `recording()`, to cut them later."""

    _inodes: set[int] = field(default_factory=set)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        before = tcp_sockets().keys()
        try:
            yield
        finally:
            self._inodes |= tcp_sockets().keys() - before

    def cut(self) -> None:
        cut([fd for inode, fd in tcp_sockets().items() if inode in self._inodes])


def connections_of_ports(ports: Collection[int]) -> list[int]:
    """The descriptors of connections from or to one of these ports."""
    found = []
    for fd in tcp_sockets().values():
        with contextlib.suppress(OSError), _borrowed(fd) as sock:
            if sock.getsockname()[1] in ports or sock.getpeername()[1] in ports:
                found.append(fd)
    return found


class ReservedPort:
    """A TCP port that no other worker of this machine gets, for a library that binds it later, by its number.

    The port is outside of the range from which the kernel takes ports for connections. Workers of all runs lock it by
    an abstract Unix socket, which the kernel removes with the process.
    """

    def __init__(self, usable: Callable[[int], bool] | None = None) -> None:
        self._lock = socket.socket(socket.AF_UNIX)
        choices = _outside_of_ephemeral()
        for _ in range(_ATTEMPTS):
            self.port = random.SystemRandom().choice(choices)
            try:
                self._lock.bind(f"\0trireme-port-{self.port}")
            except OSError:  # another worker has it
                continue
            if (usable or _can_bind)(self.port):
                return
            self._lock.close()
            self._lock = socket.socket(socket.AF_UNIX)
        self._lock.close()
        raise RuntimeError(
            f"no free TCP port was found in {_ATTEMPTS} attempts, between {choices[0]} and {choices[-1]}"
        )

    def release(self) -> None:
        self._lock.close()


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def _outside_of_ephemeral() -> range:
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        low, high = map(int, file.read().split())
    below, above = range(10_000, low), range(high + 1, 65_536)
    best = max((below, above), key=len)
    return best if len(best) >= _ATTEMPTS else range(low, high + 1)
