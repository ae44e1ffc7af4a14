"""The environment variables for the ranks and sizes of a process, as torchrun sets them."""

from __future__ import annotations

import os
import socket
from typing import Any

from trireme._context import TrainContext


def rank_variables(context: TrainContext) -> dict[str, str]:
    numbers = {
        "RANK": context.get_world_rank(),
        "WORLD_SIZE": context.get_world_size(),
        "LOCAL_RANK": context.get_local_rank(),
        "LOCAL_WORLD_SIZE": context.get_local_world_size(),
        "NODE_RANK": context.get_node_rank(),
    }
    return {name: str(number) for name, number in numbers.items()}


def master_variables(context: TrainContext, session: Any, prefix: str, timeout_s: float) -> dict[str, str]:
    """For libraries that open their own connection: a port on rank 0's machine that is free at the time of the call."""
    key = prefix + "master"
    if context.get_world_rank() == 0:
        host = node_address(context)
        with socket.socket() as probe:
            probe.bind(("", 0))
            session.store_set(key, f"{host} {probe.getsockname()[1]}".encode())
    host, port = session.store_get(key, timeout_s).decode().split()
    return {"MASTER_ADDR": host, "MASTER_PORT": port}


def node_address(context: TrainContext) -> str:
    """The address at which workers on other nodes reach this one; on a cluster, the agent has set it."""
    if one_host(context):
        return "127.0.0.1"
    return os.environ.get("TRIREME_NODE_ADDRESS") or socket.gethostbyname(socket.gethostname())


def one_host(context: TrainContext) -> bool:
    return context._num_nodes == 1
