"""The files that Ray writes into the folder of a run, next to Trireme's own."""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import json
import os
import socket
import time
from typing import Any

from trireme import _ship
from trireme._checkpoint import Checkpoint
from trireme._result import _read
from trireme._storage import Location, write_whole
from trireme._user_exception import dump_exception
from trireme.callbacks import RunContext, UserCallback
from trireme.compat.ray._names import RAY_VERSION
from trireme.compat.ray._result import _flat
from trireme.compat.ray._storage import SNAPSHOT
from trireme.compat.ray._trial import Trial

_MARKER = ".validate_storage_marker"


class _Folder(UserCallback):
    """Writes files of the run folder, local or remote."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def _write(self, context: RunContext, name: str, content: bytes) -> None:
        place = Location(context.storage_path, self._filesystem).join(name)
        files = place.files()
        if files is None:
            write_whole(place.path, content)
        else:
            files.write(place.path, content)


class SecondVersionFiles(_Folder):
    """The marker of the storage, and the snapshot of the checkpoints that Ray's Result.from_path() reads."""

    def before_run(self, run_context: RunContext) -> None:
        self._write(run_context, _MARKER, b"")

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
        self._write(context, SNAPSHOT, _json(snapshot).encode())


class FirstVersionFiles(_Folder):
    """What Tune's loggers write into the folder of a trial; keeps the rows for the result."""

    def __init__(self, filesystem: Any, trial: Trial) -> None:
        super().__init__(filesystem)
        self._trial = trial
        self._began = self._last = time.time()
        self._restored = 0  # rows of the run before restore()

    def before_run(self, run_context: RunContext) -> None:
        if run_context.resumed:
            self._trial.rows[:] = _earlier_rows(run_context.path)
        self._restored = len(self._trial.rows)
        with contextlib.suppress(TypeError, ValueError):  # a configuration may hold any object
            self._write(run_context, "params.json", json.dumps(self._trial.config).encode())
        self._write(run_context, "params.pkl", _ship.dumps(self._trial.config))

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        if not metrics:
            return
        now = run_context.report_time or time.time()
        row = {
            **metrics[0],
            "timestamp": int(now),
            "checkpoint_dir_name": os.path.basename(checkpoint.path) if checkpoint else None,
            **({"should_checkpoint": True} if checkpoint else {}),
            "done": False,
            "training_iteration": len(self._trial.rows) + 1,
            "trial_id": self._trial.trial_id,
            "date": f"{datetime.datetime.fromtimestamp(now):%Y-%m-%d_%H-%M-%S}",
            "time_this_iter_s": now - self._last,
            "time_total_s": now - self._began,
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "node_ip": "127.0.0.1",
            "config": {"train_loop_config": self._trial.config},
            "time_since_restore": now - self._began,
            "iterations_since_restore": len(self._trial.rows) + 1 - self._restored,
        }
        self._last = now
        self._trial.rows.append(row)
        # A folder that is not local gets the file at the end.
        if Location(run_context.storage_path, self._filesystem).local:
            with open(os.path.join(run_context.path, "result.json"), "a", encoding="utf-8") as file:
                file.write(_json(row) + "\n")

    def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
        if error is not None:
            self._write(run_context, "error.txt", f"{error}\n".encode())
            if (pickled := dump_exception(error)) is not None:
                self._write(run_context, "error.pkl", pickled)
        self._write(run_context, "result.json", "".join(_json(row) + "\n" for row in self._trial.rows).encode())
        self._write(run_context, "progress.csv", _csv([_flat(row) for row in self._trial.rows]).encode())


def _earlier_rows(folder: str) -> list[dict[str, Any]]:
    """What the run reported before it was restored; nothing if its driver died before it wrote the file."""
    path = os.path.join(folder, "result.json")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        # A killed driver may leave half a line.
        return [json.loads(line) for line in file if line.endswith("\n")]


def _json(value: Any) -> str:
    """NaN and infinity become null, as in Ray; other objects become text."""
    return json.dumps(_finite(value), default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {str(name): _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _csv(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    with io.StringIO(newline="") as text:
        # Tune's columns are those of the first row.
        writer = csv.DictWriter(text, list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()
