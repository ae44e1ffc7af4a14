"""A trial of a function: the Tuner calls it in the driver, where it may create trainers."""

from __future__ import annotations

import inspect
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

from trireme import _core
from trireme._checkpoint import Checkpoint
from trireme._context import TrainContext
from trireme._local import LocalSession
from trireme._report import Report
from trireme._session import current_session, report, set_session
from trireme._storage import Location, local_filesystem
from trireme.backend import BackendConfig
from trireme.callbacks import RunContext, UserCallback
from trireme.compat.ray._callbacks import TuneCallback, called
from trireme.compat.ray._configs import RunConfig, ScalingConfig
from trireme.compat.ray._placement import PlacementGroupFactory
from trireme.compat.ray._result import RayResult, _flat, _frame
from trireme.compat.ray._session import Stopped
from trireme.compat.ray._storage import StorageContext
from trireme.compat.ray._tensorboard import TrialEvents
from trireme.compat.ray._trial import Trial
from trireme.compat.ray._trial_files import FirstVersionFiles


class TrialContext(TrainContext):
    """ray.tune.get_context() in the function of a trial."""

    trial: Trial

    def get_trial_name(self) -> str:
        return self.trial.trial_name

    def get_trial_id(self) -> str:
        return self.trial.trial_id

    def get_trial_resources(self) -> Any:
        return PlacementGroupFactory([{"CPU": 1}])


class TrialSession(LocalSession):
    """Stores what the function reports in the folder of its trial."""

    def __init__(self, trial: Trial, folder: Location, config: RunConfig, callbacks: list[UserCallback]) -> None:
        experiment, _ = folder.parent_and_name()
        context = TrialContext(
            os.path.basename(experiment.path), _run_id=trial.trial_id, _path=folder.path, _storage=folder
        )
        object.__setattr__(context, "trial", trial)  # the base is frozen
        super().__init__(context, None)
        self.trial = trial
        self.retained: list[tuple[Checkpoint, dict[str, Any]]] = []
        self._config, self._callbacks = config, callbacks
        self._storage = StorageContext.of(*folder.parent_and_name())
        self._stored = 0
        self.run = RunContext(
            run_id=trial.trial_id,
            run_config=config,
            scaling_config=ScalingConfig(num_workers=0),
            train_loop_config=trial.config,
            backend_config=BackendConfig(),
            dataset_config=None,
            path=folder.path,
            storage_path=folder.path,
        )

    def report(self, report: Report) -> None:
        metrics = _core.check_metrics(report.metrics)
        checkpoint = None
        if report.checkpoint is not None:
            name = report.dir_name or f"checkpoint_{self._stored:06d}"
            self._stored += 1
            self.checkpoint = checkpoint = self._storage.persist_current_checkpoint(report.checkpoint, name)
        for callback in self._callbacks:
            callback.after_report(self.run, [metrics], checkpoint)
        if checkpoint is not None:
            self._retain(checkpoint)
        stopper = getattr(self._config, "_stopper", None)
        if stopper is not None and stopper.reached(self.trial.trial_id, self.trial.last_result):
            raise Stopped

    def _retain(self, checkpoint: Checkpoint) -> None:
        """Deletes the worst checkpoints when there are too many, but not the newest."""
        self.retained.append((checkpoint, self.trial.last_result))
        asked = self._config.checkpoint_config
        if attribute := asked.checkpoint_score_attribute:
            sign = 1 if asked.checkpoint_score_order == "max" else -1

            def score(each: tuple[Checkpoint, dict[str, Any]]) -> float:
                value = _flat(each[1]).get(attribute)
                return sign * value if isinstance(value, (int, float)) and value == value else float("-inf")

            self.retained.sort(key=score)
        for each in self.retained[: -asked.num_to_keep] if asked.num_to_keep else []:
            if each[0] is not checkpoint:
                self.retained.remove(each)
                _delete(each[0])


def run_function(
    function: Callable[..., Any], trial: Trial, config: RunConfig, folder: Location, arguments: dict[str, Any]
) -> RayResult:
    """One trial. An exception of the function is the error of its result, as in Ray."""
    if folder.local:
        os.makedirs(folder.path, exist_ok=True)
    trial.local_path = folder.path
    events = TrialEvents.of(config.callbacks, True) if folder.local else None
    callbacks = [FirstVersionFiles(folder.filesystem, trial, events), *map(called, config.callbacks)]
    for callback in config.callbacks:
        if isinstance(callback, TuneCallback):
            callback.bind(trial)
    session = TrialSession(trial, folder, config, callbacks)
    for callback in callbacks:
        callback.before_run(session.run)
    failures, limit = 0, config.failure_config.max_failures
    started = time.monotonic()
    while True:
        error: Exception | None = None
        before = set_session(session)
        try:
            _report_returned(_call(function, arguments))
        except Stopped:
            pass
        except Exception as raised:
            error = raised
            failures += 1
            if limit < 0 or failures <= limit:
                continue
        finally:
            set_session(before)
        break
    for callback in callbacks:
        callback.after_run(session.run, error)
    how = "finished" if error is None else f"failed ({type(error).__name__}: {error})"
    print(f"{trial}: {how} after {time.monotonic() - started:.1f} s", flush=True)
    ended = {"done": error is None, "experiment_tag": trial.experiment_tag}
    last = {**trial.last_result, **ended} if trial.rows else {}
    made = RayResult(last, session.checkpoint, error, folder.path, _frame([_flat(row) for row in trial.rows]))
    made.best_checkpoints, made._folder = session.retained, folder
    return made


class TuneReportCallback(UserCallback):
    """ray.tune.integration.ray_train: in the RunConfig of a trainer that the function of a trial creates. Reports the
    metrics of rank 0 to the trial."""

    CHECKPOINT_PATH_KEY = "checkpoint_path"

    def __init__(self) -> None:
        if not isinstance(current_session("TuneReportCallback"), TrialSession):
            raise RuntimeError("TuneReportCallback() is created in the function of a trial, which Tuner.fit() calls")

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        if not metrics:
            return
        added = {self.CHECKPOINT_PATH_KEY: checkpoint.path} if checkpoint else {}
        report({**metrics[0], **added})


def _call(function: Callable[..., Any], config: dict[str, Any]) -> Any:
    return function(config) if inspect.signature(function).parameters else function()


def _report_returned(value: Any) -> None:
    """What the function returns is its last report, as in Ray."""
    if isinstance(value, dict) and value:
        report(value)
    elif isinstance(value, (int, float)):
        report({"_metric": value})


def _delete(checkpoint: Checkpoint) -> None:
    where = checkpoint._where()
    if where.local:
        shutil.rmtree(where.path, ignore_errors=True)
    else:
        (where.filesystem or local_filesystem()).delete_dir(where.path)
