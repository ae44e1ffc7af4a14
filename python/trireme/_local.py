"""Local mode (num_workers=0): runs the training function in this process and thread, so that breakpoints work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trireme import _core
from trireme._checkpoint import Checkpoint
from trireme._context import TrainContext
from trireme._positions import Positions
from trireme._report import Report, ReportedCheckpoint, ReportedCheckpointStatus
from trireme._result import Result
from trireme._session import set_session
from trireme._validation import ValidationConfig, checked_metrics

if TYPE_CHECKING:
    from trireme.data._trainer_datasets import DatasetPlans


class LocalSession:
    """A TrainSession that keeps the last metrics and the checkpoints in memory and writes no files."""

    def __init__(
        self,
        context: TrainContext,
        checkpoint: Checkpoint | None,
        validation: ValidationConfig | None = None,
        datasets: DatasetPlans | None = None,
    ) -> None:
        self.context = context
        self.positions = Positions(_positions_of(checkpoint))
        self.datasets = datasets.shards(context, self.positions) if datasets is not None else None
        self.metrics: dict[str, Any] | None = None
        self.checkpoint = checkpoint
        self._validation = validation
        self._reported: list[ReportedCheckpoint] = []

    def report(self, report: Report) -> None:
        self.metrics = _core.check_metrics(report.metrics)
        if report.checkpoint is None:
            return
        self.checkpoint = report.checkpoint
        metrics, status = self.metrics, ReportedCheckpointStatus.COMMITTED
        if report.validation:
            metrics = self.metrics = {**self.metrics, **self._validate(report)}
            status = ReportedCheckpointStatus.VALIDATED
        self._reported.append(ReportedCheckpoint(report.checkpoint, metrics, status))

    def get_checkpoint(self) -> Checkpoint | None:
        return self.checkpoint

    def reported_checkpoints(self, validated: bool, timeout_s: float | None) -> list[ReportedCheckpoint]:
        return list(self._reported)

    def preemption(self) -> dict[str, Any] | None:
        return None

    def barrier(self) -> None:
        pass

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        return data

    def _validate(self, report: Report) -> dict[str, Any]:
        """Validates synchronously. Exceptions propagate, as those of the training function do."""
        task = ValidationConfig.task_for(self._validation, report.validation)
        assert self._validation is not None
        return checked_metrics(self._validation.fn(report.checkpoint, **task["fn_kwargs"]))


def _positions_of(checkpoint: Checkpoint | None) -> dict[str, Any]:
    """The positions in a checkpoint that a run has stored."""
    if checkpoint is None or checkpoint._state is not None:
        return {}
    where = checkpoint._where()
    manifest: Any = _core.Storage(where.files()).read_manifest(where.path)
    return manifest.get("positions", {}) if manifest else {}


def run_here(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    context: TrainContext,
    checkpoint: Checkpoint | None,
    validation: ValidationConfig | None = None,
    datasets: DatasetPlans | None = None,
) -> Result:
    """Exceptions of the function propagate."""
    session = LocalSession(context, checkpoint, validation, datasets)
    before = set_session(session)
    started = time.monotonic()
    try:
        value = function(*arguments)
    finally:
        set_session(before)
    seconds = time.monotonic() - started
    metrics = f" ({_core.metrics_text(session.metrics)})" if session.metrics else ""
    print(f"{context.get_experiment_name()}: finished in local mode after {seconds:.1f} s{metrics}")
    return Result(metrics=session.metrics, checkpoint=session.checkpoint, error=None, path=None, return_value=value)
