"""The modes and statuses of report(), and the checks of its arguments."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trireme._checkpoint import Checkpoint
from trireme._storage import Location
from trireme._validation import ValidationTaskConfig


class CheckpointUploadMode(enum.Enum):
    """When report() returns."""

    ASYNC = "ASYNC"  # before the upload: a state is copied first, a directory must not change until it is stored
    SYNC = "SYNC"  # when this worker's files are stored
    NO_UPLOAD = "NO_UPLOAD"  # immediately: the files are already in the run folder

    def default_delete_local_checkpoint_after_upload(self) -> bool:
        return self is CheckpointUploadMode.ASYNC


class CheckpointConsistencyMode(enum.Enum):
    """What get_all_reported_checkpoints() waits for."""

    COMMITTED = "COMMITTED"  # all checkpoints reported by this worker are committed
    VALIDATED = "VALIDATED"  # and all their validations have ended


class ReportedCheckpointStatus(enum.Enum):
    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"
    VALIDATION_FAILED = "VALIDATION_FAILED"


@dataclass(frozen=True)
class ReportedCheckpoint:
    checkpoint: Checkpoint
    metrics: dict[str, Any]
    status: ReportedCheckpointStatus


UploadFunction = Callable[[Checkpoint, str], Checkpoint]


@dataclass(frozen=True)
class Report:
    """One call of report(), with defaults filled in and all checks that do not depend on the run."""

    metrics: dict[str, Any]
    checkpoint: Checkpoint | None
    dir_name: str | None
    mode: CheckpointUploadMode
    delete_local: bool | None  # None: the mode's default
    upload_fn: UploadFunction | None
    validation: bool | ValidationTaskConfig

    def __post_init__(self) -> None:
        if not isinstance(self.metrics, dict):
            raise TypeError(f"report(metrics=...) must be a dict, got {type(self.metrics).__name__}")
        if self.checkpoint is not None and not isinstance(self.checkpoint, Checkpoint):
            raise TypeError(
                f"report(checkpoint=...) must be a trireme.Checkpoint, got {type(self.checkpoint).__name__}; "
                "create one with Checkpoint.from_directory(path)"
            )
        if not isinstance(self.mode, CheckpointUploadMode):
            modes = ", ".join(f"CheckpointUploadMode.{mode.name}" for mode in CheckpointUploadMode)
            raise ValueError(f"report(checkpoint_upload_mode={self.mode!r}): expected one of {modes}")
        if self.upload_fn is not None and not callable(self.upload_fn):
            raise TypeError(f"report(checkpoint_upload_fn=...) must be a function, got {type(self.upload_fn).__name__}")
        if not isinstance(self.validation, (bool, ValidationTaskConfig)):
            raise TypeError(
                "report(validation=...) must be True, False or a ValidationTaskConfig, got "
                f"{type(self.validation).__name__}"
            )
        if self.validation and self.checkpoint is None:
            raise ValueError("report(validation=...) needs a checkpoint to validate; pass report(checkpoint=...)")


def mode_of_callback(callback: str, mode: CheckpointUploadMode | None) -> CheckpointUploadMode:
    """The mode of a callback that writes files of its own and then reports them; None: SYNC."""
    mode = CheckpointUploadMode.SYNC if mode is None else mode
    if mode not in (CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC):
        raise ValueError(f"{callback}(checkpoint_upload_mode={mode!r}): expected SYNC or ASYNC")
    return mode


def check_within_run(checkpoint: Checkpoint, run: Location, what: str) -> None:
    """Checks that a checkpoint which report() does not copy is in the run folder."""
    where = checkpoint._where()
    if where.filesystem == run.filesystem:
        paths = (where.path, run.path)
        mine, folder = map(os.path.realpath, paths) if run.local else paths
        if os.path.dirname(mine) == folder:
            return
    raise ValueError(
        f"{what} must be a folder directly inside the run folder {run}, got {where}; "
        "get_context().get_storage().build_checkpoint_path_from_name(name) returns such a path"
    )


def deletes_local(report: Report, run: Location) -> bool:
    """Whether report() deletes the directory afterwards. Raises if that would delete the run folder or part of it."""
    assert report.checkpoint is not None
    where = report.checkpoint._where()
    asked = report.delete_local
    if asked is None:
        asked = report.checkpoint._temporary or report.mode.default_delete_local_checkpoint_after_upload()
    if not asked or not where.local or not run.local:
        return asked and where.local
    mine, folder = os.path.realpath(where.path), os.path.realpath(run.path)
    if os.path.commonpath([mine, folder]) == mine:
        raise ValueError(
            f"report(delete_local_checkpoint_after_upload=True) would delete the run folder {folder}, which "
            f"is inside the checkpoint's directory {mine}"
        )
    if os.path.commonpath([mine, folder]) == folder:
        if report.delete_local is None:
            return False
        raise ValueError(
            f"report(delete_local_checkpoint_after_upload=True) would delete {mine}, which is part of the run folder "
            f"{folder}"
        )
    return True
