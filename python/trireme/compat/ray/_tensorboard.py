"""Events for TensorBoard in the folder of a trial, with the names of Tune's logger: ray/tune/<metric>."""

from __future__ import annotations

import glob
import importlib
import importlib.util
import math
import os
from collections.abc import Callable
from typing import Any

from trireme.compat.ray._callbacks import LoggerCallback
from trireme.compat.ray._refusal import warn_once
from trireme.compat.ray._result import _flat
from trireme.compat.ray._trial import Trial

_NOT_METRICS = ("config", "pid", "timestamp", "time_total_s", "training_iteration")


class TBXLoggerCallback(LoggerCallback):
    """The first version writes the events anyway if tensorboardX is installed, as in Ray. With this callback they are
    also written if only torch.utils.tensorboard is there."""

    def __init__(self) -> None:
        if _package() is None:
            raise ImportError("TBXLoggerCallback needs tensorboardX: pip install trireme[tensorboard]")


class TrialEvents:
    """Imports its package at the first report: it would delay the start of the workers."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._writer: Any = None
        self._last: dict[str, Any] = {}

    @classmethod
    def of(cls, callbacks: list[Any], v1: bool) -> TrialEvents | None:
        asked = any(isinstance(callback, TBXLoggerCallback) for callback in callbacks)
        package = _package()
        return cls(package) if package and (asked or (v1 and package == "tensorboardX")) else None

    def write(self, folder: str, row: dict[str, Any]) -> None:
        if self._writer is None:
            self._writer = importlib.import_module(self._package).SummaryWriter(folder, flush_secs=30)
        step = row.get("timesteps_total") or row["training_iteration"]
        flat = _flat({name: value for name, value in row.items() if name not in _NOT_METRICS})
        self._last = {}
        for name, value in flat.items():
            tag = f"ray/tune/{name}"
            if isinstance(value, (int, float)) and not math.isnan(value):
                self._writer.add_scalar(tag, value, global_step=step)
                self._last[tag] = value
            elif isinstance(value, list) and value:
                try:
                    self._writer.add_histogram(tag, value, global_step=step)
                except (TypeError, ValueError):
                    warn_once(f"TensorBoard: {name} is a list that has no histogram")
        self._writer.flush()

    def close(self, trial: Trial) -> None:
        if self._writer is None:
            return
        if trial.params and self._last:
            plain = {name: value for name, value in trial.params.items() if isinstance(value, (str, bool, int, float))}
            for summary in importlib.import_module(f"{self._package}.summary").hparams(
                hparam_dict=plain, metric_dict=self._last
            ):
                self._writer.file_writer.add_summary(summary)
        self._writer.close()

    @staticmethod
    def store(folder: str, write: Callable[[str, bytes], None]) -> None:
        for path in glob.glob(os.path.join(folder, "events.out.tfevents.*")):
            with open(path, "rb") as file:
                write(os.path.basename(path), file.read())


def _package() -> str | None:
    for package, module in (("tensorboardX", "tensorboardX"), ("torch.utils.tensorboard", "tensorboard")):
        if importlib.util.find_spec(module) and (package == module or importlib.util.find_spec("torch")):
            return package
    return None
