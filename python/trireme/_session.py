"""The functions that a training function calls, and what stands behind them in this process."""

from __future__ import annotations

import shutil
from typing import Any, Protocol

from trireme._checkpoint import Checkpoint
from trireme._context import TrainContext


class TrainSession(Protocol):
    """A worker's connection, or the stand-in of local mode."""

    context: TrainContext

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None, dir_name: str | None) -> None: ...

    def get_checkpoint(self) -> Checkpoint | None: ...

    def barrier(self) -> None: ...

    def broadcast_from_rank_zero(self, data: Any) -> Any: ...


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
    checkpoint_upload_mode: Any = None,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: Any = None,
    validation: Any = False,
) -> None:
    """Record metrics, and with them a checkpoint, of this worker. Never waits for other workers."""
    session = current_session("report")
    if not isinstance(metrics, dict):
        raise TypeError(f"report(metrics=...) must be a dict, got {type(metrics).__name__}")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        raise TypeError(
            f"report(checkpoint=...) must be a trireme.Checkpoint, got {type(checkpoint).__name__}; "
            "make one with Checkpoint.from_directory(path)"
        )
    _refuse_later_arguments(checkpoint_upload_mode, checkpoint_upload_fn, validation)
    metadata = session.context.get_metadata()
    if checkpoint is not None and metadata:
        checkpoint.set_metadata({**metadata, **checkpoint.get_metadata()})
    session.report(metrics, checkpoint, checkpoint_dir_name)
    if checkpoint is not None and delete_local_checkpoint_after_upload:
        shutil.rmtree(checkpoint.path)


def _refuse_later_arguments(upload_mode: Any, upload_fn: Any, validation: Any) -> None:
    mode = getattr(upload_mode, "name", upload_mode)
    if mode not in (None, "SYNC"):
        raise NotImplementedError(f"report(checkpoint_upload_mode={mode}) is not available yet; use SYNC, the default")
    if upload_fn is not None:
        raise NotImplementedError("report(checkpoint_upload_fn=...) is not available yet; leave it out")
    if validation is not False:
        raise NotImplementedError("report(validation=...) is not available yet; validate in the training function")


def get_checkpoint() -> Checkpoint | None:
    """The newest checkpoint that this worker knows of: the one to continue from, or the last that it reported."""
    return current_session("get_checkpoint").get_checkpoint()


def get_context() -> TrainContext:
    """Ranks, sizes, names and folders of this worker."""
    return current_session("get_context").context


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """This worker's part of a dataset that was given to the trainer."""
    current_session("get_dataset_shard")
    raise KeyError(
        f"no dataset {dataset_name!r}: trainers do not take datasets yet; load the data in the training function and "
        "take every world_size-th item from get_context().get_world_rank() on"
    )
