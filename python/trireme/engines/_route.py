"""Which of its addresses this machine shows to another one."""

from __future__ import annotations

import socket


def address_towards(towards: str) -> str | None:
    """The address of this machine that a node can reach; None if the node's address does not resolve."""
    try:
        family, _, _, _, address = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing: it only chooses the route
            return str(probe.getsockname()[0])
    except OSError:
        return None
