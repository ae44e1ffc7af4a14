"""Local mode (num_workers=0): the training function in this very process and thread, so that breakpoints work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from trireme import _core
from trireme._checkpoint import Checkpoint
from trireme._context import TrainContext
from trireme._result import Result
from trireme._session import set_session


class LocalSession:
    """A TrainSession that keeps the last metrics and the last checkpoint, and writes nothing."""

    def __init__(self, context: TrainContext, checkpoint: Checkpoint | None) -> None:
        self.context = context
        self.metrics: dict[str, Any] | None = None
        self.checkpoint = checkpoint

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None, dir_name: str | None) -> None:
        self.metrics = _core.check_metrics(metrics)
        self.checkpoint = checkpoint or self.checkpoint

    def get_checkpoint(self) -> Checkpoint | None:
        return self.checkpoint

    def barrier(self) -> None:
        pass

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        return data


def run_here(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    context: TrainContext,
    checkpoint: Checkpoint | None,
) -> Result:
    """Exceptions of the function pass straight through."""
    session = LocalSession(context, checkpoint)
    before = set_session(session)
    started = time.monotonic()
    try:
        value = function(*arguments)
    finally:
        set_session(before)
    seconds = time.monotonic() - started
    print(f"{context.get_experiment_name()}: finished in local mode after {seconds:.1f} s, metrics {session.metrics}")
    return Result(metrics=session.metrics, checkpoint=session.checkpoint, error=None, path=None, return_value=value)
