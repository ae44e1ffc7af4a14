"""What Tune's loggers write into the folder of a trial: parameters, result.json, progress.csv, TensorBoard's events."""

from __future__ import annotations

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
from trireme._storage import Location
from trireme._user_exception import dump_exception
from trireme.callbacks import RunContext
from trireme.compat.ray._result import _flat
from trireme.compat.ray._run_files import FolderFiles, as_json
from trireme.compat.ray._tensorboard import TrialEvents
from trireme.compat.ray._trial import Trial

RESULTS, PROGRESS = "result.json", "progress.csv"


class FirstVersionFiles(FolderFiles):
    """Keeps the rows for the result, too. A folder that is not local gets the files at the end."""

    def __init__(self, filesystem: Any, trial: Trial, events: TrialEvents | None) -> None:
        super().__init__(filesystem)
        self._trial = trial
        self._began = self._last = time.time()
        self._restored = 0  # rows of the run before restore()
        # TUNE_DISABLE_AUTO_CALLBACK_LOGGERS is Ray's.
        self._loggers = os.environ.get("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "0") != "1"
        self._events = events if self._loggers else None

    def before_run(self, run_context: RunContext) -> None:
        if run_context.resumed:
            # Nothing if the driver died before it wrote the file; a killed one may leave half a line.
            lines = self.read(run_context, RESULTS).splitlines(keepends=True)
            self._trial.rows[:] = [json.loads(line) for line in lines if line.endswith(b"\n")]
        self._restored = len(self._trial.rows)
        if not self._loggers:
            return
        self.write(run_context, "params.json", as_json(self._trial.config, indent=2, sort_keys=True).encode())
        self.write(run_context, "params.pkl", _ship.dumps(self._trial.config))
        if Location(run_context.storage_path, self.filesystem).local:
            for name in (RESULTS, PROGRESS):
                open(os.path.join(run_context.path, name), "a").close()

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
            "config": self._trial.config,
            "time_since_restore": now - self._began,
            "iterations_since_restore": len(self._trial.rows) + 1 - self._restored,
        }
        self._last = now
        self._trial.rows.append(row)
        if self._events is not None:
            self._events.write(run_context.path, row)
        if self._loggers and Location(run_context.storage_path, self.filesystem).local:
            _append(run_context.path, RESULTS, as_json(row) + "\n")
            _append(run_context.path, PROGRESS, _csv(self._trial.rows[0], [row], header=len(self._trial.rows) == 1))

    def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
        if error is not None:
            self.write(run_context, "error.txt", f"{error}\n".encode())
            # As in Ray, the exception of the training function.
            if (pickled := dump_exception(error.__cause__ or error)) is not None:
                self.write(run_context, "error.pkl", pickled)
        if self._events is not None:
            self._events.close(self._trial)
        if self._loggers and not Location(run_context.storage_path, self.filesystem).local:
            rows = self._trial.rows
            self.write(run_context, RESULTS, "".join(as_json(row) + "\n" for row in rows).encode())
            self.write(run_context, PROGRESS, _csv(rows[0], rows, header=True).encode() if rows else b"")
            if self._events is not None:
                self._events.store(run_context.path, lambda name, content: self.write(run_context, name, content))


def _append(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "a", encoding="utf-8", newline="") as file:
        file.write(text)


def _csv(first: dict[str, Any], rows: list[dict[str, Any]], header: bool) -> str:
    """As in Tune, the columns are those of the first row of the run, without its configuration."""
    with io.StringIO(newline="") as text:
        writer = csv.DictWriter(text, list(_without_config(first)), extrasaction="ignore")
        if header:
            writer.writeheader()
        writer.writerows(map(_without_config, rows))
        return text.getvalue()


def _without_config(row: dict[str, Any]) -> dict[str, Any]:
    return _flat({name: value for name, value in row.items() if name != "config"})
