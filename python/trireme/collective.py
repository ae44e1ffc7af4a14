"""Small exchanges between the workers of a run, through the run's own connection. Tensors go through the framework."""

from __future__ import annotations

from typing import TypeVar

from trireme._session import current_session

T = TypeVar("T")


def barrier() -> None:
    """Wait until every worker is here."""
    current_session("barrier").barrier()


def broadcast_from_rank_zero(data: T) -> T:
    """What rank 0 passed, on every worker; waits until every worker is here."""
    result: T = current_session("broadcast_from_rank_zero").broadcast_from_rank_zero(data)
    return result
