"""Messages between the broker and the other processes: a length and a pickle, with descriptors of shared memory."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import threading
from typing import Any

from trireme._zygote_channel import rights_of, take

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
        header = _HEADER.pack(len(body), len(fds))
        try:
            with self._sending:
                self._sock.sendmsg([header], rights_of(fds))
                self._sock.sendall(body)
        except OSError as error:
            raise Gone(str(error)) from error

    def receive(self) -> tuple[tuple[Any, ...], list[int]]:
        try:
            header, fds = take(self._sock, _HEADER.size, 1)
            size, _ = _HEADER.unpack(header)
            body, _ = take(self._sock, size)
        except OSError as error:
            raise Gone(str(error)) from error
        message: tuple[Any, ...] = pickle.loads(body)
        return message, fds

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
