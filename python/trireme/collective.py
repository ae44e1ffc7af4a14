"""Small exchanges between the workers of a run, over the run's own connection. For tensors use the framework."""

from __future__ import annotations

from typing import TypeVar

from trireme._session import current_session

T = TypeVar("T")


def barrier() -> None:
    """Wait until every worker has called barrier()."""
    current_session("barrier").barrier()


def broadcast_from_rank_zero(data: T) -> T:
    """Return the data of rank 0 on every worker. Waits until every worker has called it."""
    result: T = current_session("broadcast_from_rank_zero").broadcast_from_rank_zero(data)
    return result
