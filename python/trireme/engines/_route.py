"""The address of this machine that another one can reach."""

from __future__ import annotations

import socket


def address_towards(towards: str) -> str | None:
    """The source address of packets to this node; None if the node's name does not resolve."""
    try:
        family, _, _, _, address = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing: it only chooses the route
            return str(probe.getsockname()[0])
    except OSError:
        return None
