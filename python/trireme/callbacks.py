"""User code that runs in the driver during a run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from trireme._checkpoint import Checkpoint
from trireme._errors import ControllerError, worker_exception
from trireme._storage import Location

if TYPE_CHECKING:
    from trireme._config import DataConfig, RunConfig, ScalingConfig
    from trireme.backend import BackendConfig


@dataclass(frozen=True)
class RunContext:
    """The run that a callback is called for."""

    run_id: str
    run_config: RunConfig
    scaling_config: ScalingConfig
    train_loop_config: dict[str, Any] | None
    backend_config: BackendConfig
    dataset_config: DataConfig | None
    path: str = ""  # the run folder on this machine
    storage_path: str = ""  # the run folder in its storage; equals `path` if the storage is local
    resumed: bool = False  # whether this start continues an earlier one
    first_run_id: str = ""  # the run_id of its first start
    report_index: int | None = None  # in after_report: the number of the report
    report_time: float = 0.0  # in after_report: seconds since 1970


class UserCallback:
    """Subclass and pass to `RunConfig(callbacks=[...])`. An exception in a callback stops the run."""

    def before_run(self, run_context: RunContext) -> None:
        """fit() has begun and the workers are starting."""

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Every worker has made its next report or has finished. `metrics` is in rank order."""

    def after_exception(self, run_context: RunContext, worker_exceptions: dict[int, Exception]) -> None:
        """An attempt has failed. Called before the decision whether another attempt follows."""

    def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
        """fit() is about to return, or to raise `error`."""


_PATIENCE_S = 5.0  # how long a report waits for a rank that has never reported


class _Complete(NamedTuple):
    step: int
    time: float
    metrics: list[dict[str, Any]]
    checkpoint: Checkpoint | None


@dataclass
class _Attempt:
    """Reports of one attempt that callbacks have not seen yet."""

    folder: Location
    size: int = 0
    now: float = 0.0  # of the newest event
    told: int = -1  # the newest index that callbacks have seen
    reporting: set[int] = field(default_factory=set)
    since: dict[int, float] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    metrics: dict[int, dict[int, dict[str, Any]]] = field(default_factory=dict)
    awaiting_commit: set[int] = field(default_factory=set)
    committed: dict[int, str] = field(default_factory=dict)
    in_memory: dict[str, int] = field(default_factory=dict)  # committed, but only nodes hold the files: name -> index

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

    def commits_expected(self) -> bool:
        """Whether a checkpoint that all ranks have reported is not committed yet."""
        return any(
            index not in self.committed and not set(range(self.size)) - self.metrics[index].keys() - self.finished
            for index in self.awaiting_commit
        )

    def take_complete(self) -> list[_Complete]:
        taken = []
        for index in sorted(self.metrics):
            if not self.complete(index):
                break
            by_rank = self.metrics.pop(index)
            self.told = index
            name = self.committed.pop(index, None)
            self.awaiting_commit.discard(index)
            checkpoint = Checkpoint.at(self.folder.join(name)) if name else None
            metrics = [by_rank[rank] for rank in sorted(by_rank)]
            taken.append(_Complete(index, self.since.pop(index), metrics, checkpoint))
        return taken


class CallbackCaller:
    """Turns the events of a run into calls of the user's callbacks."""

    def __init__(self, callbacks: Sequence[UserCallback], context: RunContext, folder: Location) -> None:
        self._callbacks = callbacks
        self._context = context
        self._attempt = _Attempt(folder)
        self._earlier: list[_Attempt] = []  # with checkpoints that are not stored yet
        self._failures: dict[int, Exception] = {}
        self._failed = False  # callbacks have not seen these failures yet
        self._begun: list[UserCallback] = []

    def handle(self, event: dict[str, Any]) -> None:
        if not self._callbacks:
            return
        kind = event["event"]
        self._attempt.now = event.get("time", self._attempt.now)
        if kind in ("attempt_started", "run_finished"):
            self._deliver_failures()
        if kind == "run_started":
            self._begin(event)
        elif kind == "attempt_started":
            self._earlier.append(self._attempt)
            self._attempt = _Attempt(self._attempt.folder, event["num_workers"])
            self._failures = {}
        elif kind == "report":
            self._attempt.note_report(event)
        elif kind == "checkpoint_committed" and "in_memory_of_nodes" in event:
            self._attempt.in_memory[event["name"]] = event["index"]
        elif kind == "checkpoint_committed":
            self._attempt.committed[event["index"]] = event["name"]
        elif kind in ("checkpoint_stored", "checkpoint_removed"):
            # Callbacks may read the checkpoint, so they wait for the files, or until it is known that none will come.
            for attempt in (*self._earlier, self._attempt):
                if (index := attempt.in_memory.pop(event["name"], None)) is not None:
                    attempt.committed[index] = event["name"] if kind == "checkpoint_stored" else ""
        elif kind == "worker_finished":
            self._attempt.finished.add(event["rank"])
        elif kind == "worker_failed":
            self._failures[event["rank"]] = worker_exception(event)
        elif kind == "attempt_failed":
            self._failed = True
        if kind in ("report", "checkpoint_committed", "checkpoint_stored", "checkpoint_removed", "worker_finished"):
            for attempt in (*self._earlier, self._attempt):
                self._tell(attempt)
            self._earlier = [attempt for attempt in self._earlier if attempt.in_memory]
        # A report that was made before the failure comes first, even if its checkpoint is committed after it.
        if not self._attempt.commits_expected():
            self._deliver_failures()

    def _tell(self, attempt: _Attempt) -> None:
        for report in attempt.take_complete():
            context = replace(self._context, report_index=report.step, report_time=report.time)
            for callback in self._callbacks:
                callback.after_report(context, report.metrics, report.checkpoint)

    def _deliver_failures(self) -> None:
        if self._failed:
            self._failed = False
            for callback in self._callbacks:
                callback.after_exception(self._context, dict(self._failures))

    def end(self, error: BaseException | None) -> None:
        """Calls after_run() once for every callback whose before_run() was called, even if one of them raises."""
        problem: Exception | None = None
        while self._begun:
            try:
                self._begun.pop(0).after_run(self._context, error)
            except Exception as raised:
                problem = problem or raised
        if problem is not None and error is None:
            raise ControllerError(problem) from problem
        if problem is not None:
            print(f"warning: {type(problem).__name__} in a callback's after_run(): {problem}", flush=True)

    def _begin(self, event: dict[str, Any]) -> None:
        resumed = bool(event["resumed"])
        first = _first_run_id(self._context.path) if resumed else None
        self._context = replace(self._context, resumed=resumed, first_run_id=first or event["id"])
        for callback in self._callbacks:
            self._begun.append(callback)
            callback.before_run(self._context)


def _first_run_id(path: str) -> str | None:
    """From the first line of the event log."""
    try:
        with open(os.path.join(path, "events.jsonl"), encoding="utf-8") as file:
            event = json.loads(file.readline())
    except (OSError, ValueError):
        return None
    return event.get("id") if isinstance(event, dict) else None
