"""Frames between the driver and its warm process.

In both directions they are a 4-byte big-endian length and a JSON object; file descriptors are attached to the first
byte of a frame.
"""

from __future__ import annotations

import array
import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

_MAX_FRAME = 256 << 20


class DriverGone(Exception):
    """The other end of the control socket is closed."""


class Channel:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        body = json.dumps(message).encode()
        frame = struct.pack(">I", len(body)) + body
        try:
            sent = self.sock.sendmsg([frame], rights_of(fds))
            self.sock.sendall(frame[sent:])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise DriverGone from error

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        try:
            header, fds = take(self.sock, 4, 4)
            (length,) = struct.unpack(">I", header)
            if length > _MAX_FRAME:
                raise DriverGone(f"invalid frame of {length} bytes from the driver")
            return json.loads(take(self.sock, length)[0]), fds
        except ConnectionResetError as error:
            raise DriverGone from error


def rights_of(fds: Sequence[int]) -> list[tuple[int, int, array.array[int]]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []


def take(sock: socket.socket, length: int, most_fds: int = 0) -> tuple[bytearray, list[int]]:
    """That many bytes, and the descriptors at the first of them. At the end of the data, ConnectionResetError."""
    data = bytearray()
    fds: list[int] = []
    while len(data) < length:
        if most_fds and not data:
            chunk, fds, _, _ = socket.recv_fds(sock, length, most_fds)
        else:
            chunk = sock.recv(min(length - len(data), 1 << 20))
        if not chunk:
            raise ConnectionResetError("closed")
        data += chunk
    return data, list(fds)
