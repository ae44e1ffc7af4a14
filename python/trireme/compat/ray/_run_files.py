"""The files that Ray writes into the folder of a run, next to Trireme's own."""

from __future__ import annotations

import json
import os
from typing import Any

from trireme._checkpoint import Checkpoint
from trireme._result import _read
from trireme._storage import Location, write_whole
from trireme.callbacks import RunContext, UserCallback
from trireme.compat.ray._names import RAY_VERSION
from trireme.compat.ray._storage import SNAPSHOT

_MARKER = ".validate_storage_marker"


class FolderFiles(UserCallback):
    """Writes files of the run folder, local or remote."""

    def __init__(self, filesystem: Any) -> None:
        self.filesystem = filesystem

    def write(self, context: RunContext, name: str, content: bytes) -> None:
        place = Location(context.storage_path, self.filesystem).join(name)
        files = place.files()
        if files is None:
            write_whole(place.path, content)
        else:
            files.write(place.path, content)

    def read(self, context: RunContext, name: str) -> bytes:
        """Empty if there is no such file."""
        place = Location(context.storage_path, self.filesystem).join(name)
        files = place.files()
        if files is not None:
            return bytes(files.read(place.path)) if files.exists(place.path) else b""
        if not os.path.exists(place.path):
            return b""
        with open(place.path, "rb") as file:
            return file.read()


class SecondVersionFiles(FolderFiles):
    """The marker of the storage, and the snapshot of the checkpoints that Ray's Result.from_path() reads."""

    def before_run(self, run_context: RunContext) -> None:
        self.write(run_context, _MARKER, b"")

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        if checkpoint is not None:
            self._snapshot(run_context)

    def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
        self._snapshot(run_context)

    def _snapshot(self, context: RunContext) -> None:
        retained = _read(Location(context.path))["checkpoints"]
        entries = [
            {"version": 0, "checkpoint_dir_name": os.path.basename(each["path"]), "metrics": each["metrics"]}
            for each in retained
        ]
        newest = max(range(len(retained)), key=lambda at: retained[at]["index"], default=None)
        snapshot = {
            "ray_version": RAY_VERSION,
            "checkpoint_results": entries,
            "checkpoint_report_indices": [each["index"] for each in retained],
            "latest_checkpoint_result": None if newest is None else entries[newest],
            "pending_training_results": [],
            "pending_validation_specs": [],
            "current_report_index": 0 if newest is None else retained[newest]["index"] + 1,
            "validated_checkpoint_dir_names": [],
            "timed_out_validation_checkpoint_dir_names": [],
            "failed_validation_checkpoint_dir_names": [],
        }
        self.write(context, SNAPSHOT, as_json(snapshot).encode())


def as_json(value: Any, **style: Any) -> str:
    """NaN and infinity become null, as in Ray; other objects become text."""
    return json.dumps(_finite(value), default=str, **style)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {str(name): _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
