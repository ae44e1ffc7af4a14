"""TCP ports for servers that a framework starts itself, by the number that it is given."""

from __future__ import annotations

import socket

from trireme._context import TrainContext
from trireme._rank_variables import one_host


class HeldPort:
    """A free port of this machine that nobody else gets until release().

    The kernel chooses it, and does not choose it again while the socket is bound. A server that sets SO_REUSEPORT, as
    those of gRPC do, can bind it meanwhile: call release() when the server listens.
    """

    def __init__(self, host: str = "") -> None:
        """host: the address that the server binds; "" for all."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind((host, 0))
        except OSError as error:
            self._socket.close()
            raise RuntimeError(f"no TCP port could be reserved on {host or 'this machine'}: {error}") from error
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


def address_to_bind(context: TrainContext) -> str:
    """Where a server listens for the other workers: only on the loopback device if they are on the same machine."""
    return "127.0.0.1" if one_host(context) else ""
