"""Metrics for TensorBoard: `tensorboard --logdir <storage_path>` shows every run below it."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

from trireme.callbacks import RunContext
from trireme.integrations._tracker import Entry, Tracker, numbers


def _writer_class() -> Any:
    for package in ("tensorboardX", "torch.utils.tensorboard"):
        try:
            return importlib.import_module(package).SummaryWriter
        except ImportError:
            continue
    raise ImportError("TensorBoardCallback needs tensorboardX: pip install trireme[tensorboard]")


class TensorBoardCallback(Tracker):
    """Writes rank 0's metrics to `log_dir`, by default to the folder `tensorboard` in the run folder."""

    name = "TensorBoard"
    replaces_steps = True

    def __init__(self, log_dir: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        _writer_class()
        self._log_dir = None if log_dir is None else os.path.abspath(os.path.expanduser(log_dir))
        self._folder = ""
        self._config: dict[str, Any] = {}
        self._writer: Any = None
        self._written = -1

    def open(self, run_context: RunContext) -> int:
        self._folder = self._log_dir or os.path.join(run_context.path, "tensorboard")
        os.makedirs(self._folder, exist_ok=True)
        self._config = {} if run_context.resumed else run_context.train_loop_config or {}
        self._writer, self._written = None, -1
        return 0

    def log(self, entries: list[Entry]) -> None:
        for entry in entries:
            writer = self._writer_at(entry.step)
            for key, value in numbers(entry.metrics):
                writer.add_scalar(key, value, global_step=entry.step, walltime=entry.time)
            self._written = entry.step
        if self._writer is not None:
            self._writer.flush()

    def close(self, error: BaseException | None) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _writer_at(self, step: int) -> Any:
        """A restart repeats steps: purge_step makes TensorBoard discard the first ones."""
        if self._writer is not None and step > self._written:
            return self._writer
        self.close(None)
        # File names have a resolution of one second, and a file of the same name would be overwritten.
        suffix = f".{time.time_ns()}"
        self._writer = _writer_class()(self._folder, purge_step=step, filename_suffix=suffix)
        if self._config:
            lines = [f"    {key}: {value!r}" for key, value in self._config.items()]
            self._writer.add_text("train_loop_config", "\n".join(lines), global_step=step)
            self._config = {}
        return self._writer

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_writer": None}


TBXLoggerCallback = TensorBoardCallback
