"""What a run needs in the driver before it starts."""

from __future__ import annotations

import atexit
import os
import sys


def prepare_run() -> None:
    """Workers find the session of tasks and actors in their environment."""
    if os.environ.get("TRIREME_WORKER") == "1":
        return
    from trireme.compat.ray._tasks._client import start_broker

    start_broker()
    atexit.register(end_session)


def has_session() -> bool:
    client = sys.modules.get("trireme.compat.ray._tasks._client")
    return client is not None and client._broker is not None


def end_session() -> None:
    """Ends tasks and actors."""
    atexit.unregister(end_session)
    if client := sys.modules.get("trireme.compat.ray._tasks._client"):
        client.stop_broker()
