"""Code of the user that runs in the driver while a run goes on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trireme._checkpoint import Checkpoint
from trireme._errors import worker_exception

if TYPE_CHECKING:
    from trireme._config import DataConfig, RunConfig, ScalingConfig
    from trireme.backend import BackendConfig


@dataclass(frozen=True)
class RunContext:
    """Which run a callback is called for."""

    run_id: str
    run_config: RunConfig
    scaling_config: ScalingConfig
    train_loop_config: dict[str, Any] | None
    backend_config: BackendConfig
    dataset_config: DataConfig | None


class UserCallback:
    """Subclass and pass to `RunConfig(callbacks=[...])`. An exception in a callback stops the run."""

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Every worker has made its next report, or has finished: their metrics in rank order."""

    def after_exception(self, run_context: RunContext, worker_exceptions: dict[int, Exception]) -> None:
        """An attempt has failed; called before it is known whether another one follows."""


_PATIENCE_S = 5.0  # how long reports wait for a rank that has never made one


@dataclass
class _Attempt:
    """Reports of one attempt that callbacks have not seen yet."""

    path: str
    size: int = 0
    now: float = 0.0  # of the newest event
    told: int = -1  # the newest index that callbacks have seen
    reporting: set[int] = field(default_factory=set)
    since: dict[int, float] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    metrics: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)
    awaiting_commit: set[int] = field(default_factory=set)
    committed: dict[int, str] = field(default_factory=dict)

    def note_report(self, event: dict[str, Any]) -> None:
        index, rank = event["index"], event["rank"]
        self.reporting.add(rank)
        if index <= self.told:
            return  # callbacks did not wait for this rank
        self.since.setdefault(index, event["time"])
        self.metrics.setdefault(index, {})[rank] = event["metrics"]
        if event.get("checkpoint"):
            self.awaiting_commit.add(index)

    def complete(self, index: int) -> bool:
        if index in self.awaiting_commit:
            return index in self.committed
        missing = set(range(self.size)) - self.metrics[index].keys() - self.finished
        if missing & self.reporting:
            return False
        # Some functions report on one rank only.
        return not missing or self.now - self.since[index] > _PATIENCE_S

    def take_complete(self) -> list[tuple[list[dict[str, Any]], Checkpoint | None]]:
        taken = []
        for index in sorted(self.metrics):
            if not self.complete(index):
                break
            by_rank = self.metrics.pop(index)
            del self.since[index]
            self.told = index
            name = self.committed.pop(index, None)
            self.awaiting_commit.discard(index)
            checkpoint = Checkpoint(os.path.join(self.path, name)) if name else None
            taken.append(([by_rank[rank] for rank in sorted(by_rank)], checkpoint))
        return taken


class CallbackCaller:
    """Turns the events of a run into calls of the user's callbacks."""

    def __init__(self, callbacks: Sequence[UserCallback], context: RunContext, path: str) -> None:
        self._callbacks = callbacks
        self._context = context
        self._attempt = _Attempt(path)
        self._failures: dict[int, Exception] = {}

    def handle(self, event: dict[str, Any]) -> None:
        if not self._callbacks:
            return
        kind = event["event"]
        self._attempt.now = event.get("time", self._attempt.now)
        if kind == "attempt_started":
            self._attempt = _Attempt(self._attempt.path, event["num_workers"])
            self._failures = {}
        elif kind == "report":
            self._attempt.note_report(event)
        elif kind == "checkpoint_committed":
            self._attempt.committed[event["index"]] = event["name"]
        elif kind == "worker_finished":
            self._attempt.finished.add(event["rank"])
        elif kind == "worker_failed":
            self._failures[event["rank"]] = worker_exception(event)
        elif kind == "attempt_failed":
            for callback in self._callbacks:
                callback.after_exception(self._context, dict(self._failures))
        if kind in ("report", "checkpoint_committed", "worker_finished"):
            for metrics, checkpoint in self._attempt.take_complete():
                for callback in self._callbacks:
                    callback.after_report(self._context, metrics, checkpoint)
