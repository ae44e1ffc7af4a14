"""Frames between the driver and its warm process.

In both directions they are a 4-byte big-endian length and a JSON object; file descriptors are attached to the first
byte of a frame.
"""

from __future__ import annotations

import array
import json
import socket
import struct
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
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            sent = self.sock.sendmsg([frame], rights)
            self.sock.sendall(frame[sent:])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise DriverGone from error

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        header, fds = self._take(4, with_fds=True)
        (length,) = struct.unpack(">I", header)
        if length > _MAX_FRAME:
            raise DriverGone(f"invalid frame of {length} bytes from the driver")
        body, _ = self._take(length)
        return json.loads(body), fds

    def _take(self, length: int, with_fds: bool = False) -> tuple[bytes, list[int]]:
        data = bytearray()
        fds: list[int] = []
        while len(data) < length:
            try:
                if with_fds and not data:
                    chunk, fds, _, _ = socket.recv_fds(self.sock, length, 4)
                else:
                    chunk = self.sock.recv(length - len(data))
            except ConnectionResetError as error:
                raise DriverGone from error
            if not chunk:
                raise DriverGone
            data += chunk
        return bytes(data), fds
