"""The functions that a training function calls, and the session behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from trireme._checkpoint import Checkpoint
from trireme._context import TrainContext
from trireme._positions import Positions
from trireme._preemption import PreemptionInfo, preemption_info
from trireme._report import (
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    Report,
    ReportedCheckpoint,
    UploadFunction,
)
from trireme._validation import ValidationTaskConfig

if TYPE_CHECKING:
    from trireme.data._iterator import DataIterator
    from trireme.data._trainer_datasets import WorkerDatasets


class TrainSession(Protocol):
    """A worker's connection to the run, or its replacement in local mode."""

    context: TrainContext
    positions: Positions

    @property
    def datasets(self) -> WorkerDatasets | None: ...

    def report(self, report: Report) -> None: ...

    def get_checkpoint(self) -> Checkpoint | None: ...

    def reported_checkpoints(self, validated: bool, timeout_s: float | None) -> list[ReportedCheckpoint]: ...

    def barrier(self) -> None: ...

    def broadcast_from_rank_zero(self, data: Any) -> Any: ...

    def preemption(self) -> dict[str, Any] | None: ...


# One training function runs per process; threads that it starts share its session.
_current: TrainSession | None = None


def set_session(session: TrainSession | None) -> TrainSession | None:
    """Returns the previous session."""
    global _current
    before, _current = _current, session
    return before


def current_session(caller: str) -> TrainSession:
    if _current is None:
        raise RuntimeError(
            f"`{caller}` cannot be used outside of a training function: call it in the function that you pass to a "
            "trainer; fit() runs that function on the workers"
        )
    return _current


def report(
    metrics: dict[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: UploadFunction | None = None,
    validation: bool | ValidationTaskConfig = False,
) -> None:
    """Record metrics and, optionally, a checkpoint of this worker. Never waits for other workers.

    checkpoint_dir_name: its folder in the run folder; by default 'checkpoint_' and the number of the report.
    delete_local_checkpoint_after_upload: whether to delete its directory after the upload; by default True for ASYNC.
    checkpoint_upload_fn: stores the checkpoint under the name that it receives and returns the stored checkpoint.
    validation: True or a ValidationTaskConfig to validate the checkpoint with the trainer's ValidationConfig.
    """
    session = current_session("report")
    session.report(
        Report(
            metrics,
            checkpoint,
            checkpoint_dir_name,
            checkpoint_upload_mode,
            delete_local_checkpoint_after_upload,
            checkpoint_upload_fn,
            validation,
        )
    )


def get_checkpoint() -> Checkpoint | None:
    """Return the newest checkpoint of this worker: the one to resume from, or the last one that it stored."""
    return current_session("get_checkpoint").get_checkpoint()


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """Return the retained checkpoints, worst first.

    Waits until all checkpoints reported by this worker are committed (and validated, see `consistency_mode`), or until
    `timeout_s` has passed.
    """
    session = current_session("get_all_reported_checkpoints")
    if not isinstance(consistency_mode, CheckpointConsistencyMode):
        modes = ", ".join(f"CheckpointConsistencyMode.{mode.name}" for mode in CheckpointConsistencyMode)
        raise ValueError(f"get_all_reported_checkpoints({consistency_mode!r}): expected one of {modes}")
    return session.reported_checkpoints(consistency_mode is CheckpointConsistencyMode.VALIDATED, timeout_s)


def get_preemption_info() -> PreemptionInfo | None:
    """Return the preempted workers and their deadline, or None if no preemption is announced. A preemption is announced
    by a scheduler's SIGTERM, an engine or `trireme preempt`. Workers can report a last checkpoint before the deadline.

    Every rank must call it, and every rank gets the answer of rank 0, so that all ranks act the same way.
    """
    return preemption_info(current_session("get_preemption_info").preemption())


def get_context() -> TrainContext:
    """Return the ranks, sizes, names and folders of this worker."""
    return current_session("get_context").context


def get_dataset_shard(dataset_name: str | None = None) -> DataIterator:
    """Return this worker's shard of one of the trainer's datasets. Every call returns the same object."""
    shards = current_session("get_dataset_shard").datasets
    if shards is None:
        way_out = f"pass it datasets={{{dataset_name or 'train'!r}: ...}}"
        raise KeyError(f"no dataset {dataset_name!r}: the trainer has no datasets; {way_out}")
    return shards.get(dataset_name)
