"""Messages between the broker and the other processes: a length and a pickle, with descriptors of shared memory."""

from __future__ import annotations

import array
import contextlib
import os
import pickle
import socket
import struct
import threading
from typing import Any

VARIABLE = "TRIREME_RAY_SESSION"  # the path of the broker's socket
_HEADER = struct.Struct(">QI")  # bytes of the message, descriptors


class Gone(Exception):
    """The other side has closed the connection."""


class Connection:
    """Any thread may send; one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()

    def send(self, *message: Any, fd: int | None = None) -> None:
        body = pickle.dumps(message, protocol=5)
        fds = [] if fd is None else [fd]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        header = _HEADER.pack(len(body), len(fds))
        try:
            with self._sending:
                self._sock.sendmsg([header], rights)
                self._sock.sendall(body)
        except OSError as error:
            raise Gone(str(error)) from error

    def receive(self) -> tuple[tuple[Any, ...], list[int]]:
        header, fds = self._take(_HEADER.size, True)
        size, _ = _HEADER.unpack(header)
        body, _ = self._take(size, False)
        message: tuple[Any, ...] = pickle.loads(body)
        return message, fds

    def _take(self, size: int, with_fds: bool) -> tuple[bytearray, list[int]]:
        data = bytearray()
        fds: Any = []
        while len(data) < size:
            try:
                if with_fds and not data:
                    chunk, fds, _, _ = socket.recv_fds(self._sock, size, 1)
                else:
                    chunk = self._sock.recv(min(size - len(data), 1 << 20))
            except OSError as error:
                raise Gone(str(error)) from error
            if not chunk:
                raise Gone("closed")
            data += chunk
        return data, list(fds)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def connect(path: str) -> Connection:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)
    return Connection(sock)


def is_own_user(sock: socket.socket) -> bool:
    """Nothing is unpickled from a process of another user."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())
