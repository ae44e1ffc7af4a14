"""The session of a worker in compatibility mode: report() and the names of checkpoints as in Ray."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any, cast

from trireme._checkpoint import Checkpoint
from trireme._context import TrainContext
from trireme._report import CheckpointUploadMode, Report
from trireme._session import TrainSession, current_session, set_session
from trireme.compat.ray._backends import WorkerGroup
from trireme.compat.ray._context import RayTrainContext
from trireme.compat.ray._settings import RunSettings
from trireme.compat.ray._storage import default_checkpoint_name


class Stopped(BaseException):
    """RunConfig(stop=...) has ended the training function. Not an Exception, which user code may handle."""


class RaySession:
    """Around the worker's session, so that reports of all adapters follow Ray as well."""

    def __init__(self, inner: TrainSession, settings: RunSettings) -> None:
        self._inner = inner
        self.settings = settings
        self.context: TrainContext = RayTrainContext.around(inner.context, settings)
        self._reports = 0
        self._began = time.monotonic()
        self._shards = settings.configured.shards(inner.context, self._core) if settings.configured else None
        self._checkpoints = 0  # of all ranks, also before this attempt: for the first version's names

    def __getattr__(self, name: str) -> Any:
        """The rest is the worker's session, also its connection, which some adapters use."""
        return getattr(self._inner, name)

    @property
    def datasets(self) -> Any:  # WorkerDatasets, ConfiguredShards or None
        return self._shards or self._inner.datasets

    def report(self, report: Report) -> None:
        _check_metrics(report.metrics)
        with ExitStack() as around:
            for callback in self.settings.worker_callbacks:
                around.enter_context(callback.on_report())
            report, stop = self._agreed(report)
            self._inner.report(_stored(report))
            if self.settings.v1 and self.settings.barrier:
                # As in the first version, a rank that fails after its report does not lose the checkpoint of another.
                self.barrier()
        if stop:
            raise Stopped

    def _agreed(self, report: Report) -> tuple[Report, bool]:
        """All ranks meet, store their checkpoint under the name of rank 0, and stop when it does. Ranks that do not
        meet agree without a message: on Trireme's own name, which derives from the number of the report."""
        self._reports += 1
        stop = self._stops(report)
        if not self.settings.barrier:
            return report, stop
        meets_others = self.settings.v1 and self.context.get_world_size() > 1
        stored = f"ray_checkpoint/{self.context._attempt}/{self._reports}"
        if meets_others and report.checkpoint is not None:
            self._core.store_set(stored, b"1")
        name = report.dir_name or (self._numbered() if self.settings.v1 else default_checkpoint_name())
        name, stop = self.broadcast_from_rank_zero((name, stop))
        if report.checkpoint is not None or (meets_others and self._core.store_check([stored])):
            self._checkpoints += 1
        if report.checkpoint is None or report.mode is CheckpointUploadMode.NO_UPLOAD:
            return report, stop
        return replace(report, dir_name=name), stop

    def _stops(self, report: Report) -> bool:
        if self.settings.stop is None:
            return False
        passed = time.monotonic() - self._began
        added = {"training_iteration": self._reports, "time_total_s": passed}
        return bool(self.settings.stop.reached(self.settings.trial_id, {**added, **report.metrics}))

    def _numbered(self) -> str:
        """The first version counts checkpoints, also those of earlier attempts."""
        if not self._checkpoints and (newest := self._inner.get_checkpoint()) is not None:
            digits = os.path.basename(newest.path).rpartition("_")[2]
            inside = os.path.dirname(newest.path) == (self.context._path or "")
            self._checkpoints = int(digits) + 1 if inside and digits.isdigit() else 0
        return f"checkpoint_{self._checkpoints:06d}"


class InRaySession:
    """The training function that is sent to the workers: runs the user's function in a RaySession."""

    def __init__(self, function: Callable[..., Any], settings: RunSettings) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self._settings = settings

    def __call__(self, *arguments: Any) -> Any:
        settings = self._settings
        inner = current_session("fit")
        set_session(cast("TrainSession", RaySession(inner, settings)))
        if settings.collective_timeout_s is not None and (core := getattr(inner, "_core", None)) is not None:
            core.set_collective_timeout(settings.collective_timeout_s)
        for callback in settings.worker_callbacks:
            callback.after_init_train_context()
        group = self._group(inner)
        if group is not None:
            group.run_hooks([each.after_worker_group_start for each in settings.group_callbacks])
            group.run_hooks([each.after_worker_group_training_start for each in settings.group_callbacks])
        try:
            with settings.around() if settings.around is not None else nullcontext():
                value = self.function(*arguments)
        except Stopped:
            value = None
        finally:
            for callback in settings.worker_callbacks:
                callback.before_worker_shutdown()
        if group is not None:
            group.run_hooks([each.before_worker_group_shutdown for each in settings.group_callbacks])
        if settings.v1:
            return None
        _check_metrics(value)
        return value

    def _group(self, inner: TrainSession) -> WorkerGroup | None:
        if not self._settings.group_callbacks or not hasattr(inner, "_core"):
            return None
        return WorkerGroup(inner.context, inner._core, "callbacks")


def _stored(report: Report) -> Report:
    """Raises what goes wrong before Trireme knows of the report: the script may handle it and train on, as in Ray."""
    checkpoint, function = report.checkpoint, report.upload_fn
    if checkpoint is None or report.mode is CheckpointUploadMode.NO_UPLOAD:
        return report
    if function is None:
        if checkpoint._state is None and (where := checkpoint._where()).local and not os.path.exists(where.path):
            raise FileNotFoundError(f"report(): the checkpoint's folder {where.path} does not exist")
        return report
    if report.mode is not CheckpointUploadMode.SYNC or report.dir_name is None:
        return report
    stored = function(checkpoint, report.dir_name)
    if not isinstance(stored, Checkpoint):
        raise ValueError(f"checkpoint_upload_fn must return a ray.train.Checkpoint, got {type(stored).__name__}")
    return replace(report, upload_fn=lambda checkpoint, name: stored)


def _check_metrics(value: Any) -> None:
    """As Ray: tensors keep memory of a device alive, and need torch to be read."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        raise ValueError(
            "Passing objects containing Torch tensors as metrics or return value is not supported: convert them, for "
            "example with tensor.item(), or store them in a checkpoint"
        )
    if isinstance(value, dict):
        for item in value.values():
            _check_metrics(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_metrics(item)
