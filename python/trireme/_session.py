"""The functions that a training function calls, and what stands behind them in this process."""

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
    """A worker's connection, or the stand-in of local mode."""

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


# One training function runs per process; threads that it starts report for it too.
_current: TrainSession | None = None


def set_session(session: TrainSession | None) -> TrainSession | None:
    """Returns the one that was set before."""
    global _current
    before, _current = _current, session
    return before


def current_session(caller: str) -> TrainSession:
    if _current is None:
        raise RuntimeError(
            f"`{caller}` cannot be used outside of a training function: call it in the function that you pass to a "
            "trainer, which runs it on the workers when you call fit()"
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
    """Record metrics, and with them a checkpoint, of this worker. Never waits for other workers.

    checkpoint_dir_name: its folder in the run folder; 'checkpoint_' and the number of the report when not given.
    delete_local_checkpoint_after_upload: whether its directory is removed then; True for ASYNC when not given.
    checkpoint_upload_fn: stores the checkpoint under the name that it is called with and returns it from there.
    validation: True, or a ValidationTaskConfig, to have the trainer's ValidationConfig look at it.
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
    """The newest checkpoint that this worker knows of: the one to continue from, or the last that it has stored."""
    return current_session("get_checkpoint").get_checkpoint()


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """The retained checkpoints, worst first, once all that this worker has reported are among them (and validated).

    After `timeout_s` those that are known by then.
    """
    session = current_session("get_all_reported_checkpoints")
    if not isinstance(consistency_mode, CheckpointConsistencyMode):
        modes = ", ".join(f"CheckpointConsistencyMode.{mode.name}" for mode in CheckpointConsistencyMode)
        raise ValueError(f"get_all_reported_checkpoints({consistency_mode!r}): expected one of {modes}")
    return session.reported_checkpoints(consistency_mode is CheckpointConsistencyMode.VALIDATED, timeout_s)


def get_preemption_info() -> PreemptionInfo | None:
    """Which workers will be lost, and when, once somebody has announced it: a scheduler's SIGTERM, an engine, or
    `trireme preempt`. Until then there is time to report a last checkpoint.

    Every rank must call it, and gets what rank 0 knows, so that all of them do the same.
    """
    return preemption_info(current_session("get_preemption_info").preemption())


def get_context() -> TrainContext:
    """Ranks, sizes, names and folders of this worker."""
    return current_session("get_context").context


def get_dataset_shard(dataset_name: str | None = None) -> DataIterator:
    """This worker's part of a dataset that was given to the trainer: the same object whenever it is asked for."""
    shards = current_session("get_dataset_shard").datasets
    if shards is None:
        way_out = f"give it datasets={{{dataset_name or 'train'!r}: ...}}"
        raise KeyError(f"no dataset {dataset_name!r}: the trainer was given none; {way_out}")
    return shards.get(dataset_name)
