"""Ray's callback classes, on top of the calls that Trireme makes in the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trireme._checkpoint import Checkpoint
from trireme.callbacks import RunContext, UserCallback
from trireme.compat.ray._refusal import refusal
from trireme.compat.ray._trial import Trial


class TuneCallback(UserCallback):
    """ray.tune.Callback: the hooks of the first version, called for the one trial that a trainer is."""

    _trial: Trial

    def bind(self, trial: Trial) -> None:
        self._trial = trial

    def setup(self, stop: Any = None, num_samples: int | None = None, **info: Any) -> None:
        pass

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        pass

    on_step_end = on_step_begin

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        pass

    on_trial_restore = on_trial_save = on_trial_start
    on_trial_complete = on_trial_recover = on_trial_error = on_trial_start

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        pass

    def on_checkpoint(
        self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Checkpoint, **info: Any
    ) -> None:
        pass

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        pass

    def get_state(self) -> dict[str, Any] | None:
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        pass

    # From Trireme.

    def before_run(self, run_context: RunContext) -> None:
        trial = self._trial
        trial.local_path, trial.status = run_context.path, "RUNNING"
        if trial.index == 0:
            count = len(trial.siblings)
            self.setup(stop=None, num_samples=count, total_num_samples=count)
        if run_context.resumed:
            self.on_trial_restore(iteration=0, trials=trial.siblings, trial=trial)
        self.on_trial_start(iteration=0, trials=trial.siblings, trial=trial)

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        trial = self._trial
        if not metrics:
            return
        at = {"iteration": len(trial.rows), "trials": trial.siblings, "trial": trial}
        self.on_step_begin(at["iteration"], trial.siblings)  # type: ignore[arg-type]
        self.on_trial_result(**at, result=dict(trial.rows[-1]))  # type: ignore[arg-type]
        if checkpoint is not None:
            trial.checkpoint = checkpoint
            self.on_trial_save(**at)  # type: ignore[arg-type]
            self.on_checkpoint(**at, checkpoint=checkpoint)  # type: ignore[arg-type]
        self.on_step_end(at["iteration"], trial.siblings)  # type: ignore[arg-type]

    def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
        trial = self._trial
        trial.status = "TERMINATED" if error is None else "ERROR"
        ended = self.on_trial_complete if error is None else self.on_trial_error
        ended(iteration=len(trial.rows), trials=trial.siblings, trial=trial)


class ExperimentEnd(UserCallback):
    """The last callback: the experiment ends after all callbacks have seen the end of its trial."""

    def __init__(self, callbacks: list[TuneCallback]) -> None:
        self._callbacks = callbacks

    def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
        for callback in self._callbacks:
            if callback._trial.experiment is None:  # the Tuner calls it after its last trial
                callback.on_experiment_end(trials=[callback._trial])


class LoggerCallback(TuneCallback):
    """ray.tune.logger.LoggerCallback."""

    def log_trial_start(self, trial: Trial) -> None:
        pass

    log_trial_restore = log_trial_save = log_trial_start

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        pass

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        pass

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_save(trial)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self.log_trial_end(trial, failed=True)


class RayTrainCallback(UserCallback):
    """A callback of Ray's controller. `Called` passes on what Trireme calls in the driver."""

    # The hooks that Trireme never calls, with what to use in place of them.
    _never_called: tuple[str, ...] = ()
    _advice = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__mro__:
            for name in vars(base).get("_never_called", ()):
                if name in vars(cls):
                    raise refusal(f"{cls.__name__}.{name}()", base._advice)  # type: ignore[attr-defined]


class ControllerCallback(RayTrainCallback):
    """Called in the driver, which is Trireme's controller."""

    _never_called = (
        "on_controller_start_worker_group",
        "after_controller_state_update",
        "before_controller_execute_failure_decision",
        "before_controller_execute_resize_decision",
        "before_controller_abort",
    )
    _advice = "use UserCallback.after_exception(), or read the events of the run (docs/event_log.md)"

    def after_controller_start(self, train_run_context: RunContext) -> None:
        pass

    async def before_controller_shutdown(self) -> None:
        pass

    def after_controller_finish(self, result: Any) -> None:
        pass


@dataclass(frozen=True)
class TrainingReport:
    """What all ranks have reported: the checkpoint, and the metrics of rank 0."""

    checkpoint: Checkpoint | None
    metrics: dict[str, Any]
    validation: Any = False


class ReportCallback(RayTrainCallback):
    def after_report(  # type: ignore[override]
        self, training_report: TrainingReport, metrics: list[dict[str, Any]]
    ) -> None:
        """Called for every report, with the metrics of all ranks."""


class WorkerCallback(RayTrainCallback):
    """Called in every worker, before and after the training function. It is sent to the workers."""

    def after_init_train_context(self) -> None:
        pass

    def before_worker_shutdown(self) -> None:
        pass

    @contextmanager
    def on_report(self) -> Iterator[None]:
        yield


class TrainContextCallback(WorkerCallback):
    """on_report() surrounds every report of a worker."""

    _never_called = ("on_checkpoint_sync", "on_checkpoint_transfer")
    _advice = "use on_report(): report() names and stores the checkpoint in it"


class ExecutionGroupCallback(RayTrainCallback):
    """Called on rank 0 of every attempt, with the group of workers, before and after the training function. Like the
    workers of Ray's controller, rank 0 has a copy of the callback."""

    _never_called = (
        "before_init_train_context",
        "on_worker_group_start",
        "before_worker_group_start",
        "on_worker_group_shutdown",
        "after_worker_group_shutdown",
        "after_worker_group_poll_status",
        "before_worker_group_abort",
        "after_worker_group_abort",
        "after_replica_group_start",
        "before_replica_group_shutdown",
    )
    _advice = (
        "use after_worker_group_start() and before_worker_group_shutdown(), which run on rank 0, or UserCallback in "
        "the driver"
    )

    def after_execution_group_start(self, execution_group: Any) -> None:
        pass

    def before_execution_group_shutdown(self, execution_group: Any) -> None:
        pass


class WorkerGroupCallback(ExecutionGroupCallback):
    def after_worker_group_start(self, worker_group: Any) -> None:
        self.after_execution_group_start(worker_group)

    def after_worker_group_training_start(self, worker_group: Any) -> None:
        pass

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        self.before_execution_group_shutdown(worker_group)


class Called(UserCallback):
    """A RayTrainCallback with the hooks of Trireme."""

    def __init__(self, callback: RayTrainCallback) -> None:
        self._callback = callback

    def before_run(self, run_context: RunContext) -> None:
        if isinstance(self._callback, ControllerCallback):
            self._callback.after_controller_start(run_context)

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        if isinstance(self._callback, ReportCallback) and metrics:
            self._callback.after_report(TrainingReport(checkpoint, metrics[0]), metrics)

    def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
        if isinstance(self._callback, ControllerCallback):
            asyncio.run(self._callback.before_controller_shutdown())


def called(callback: UserCallback) -> UserCallback:
    return Called(callback) if isinstance(callback, RayTrainCallback) else callback


def worker_callbacks(callbacks: list[Any]) -> tuple[WorkerCallback, ...]:
    return tuple(callback for callback in callbacks if isinstance(callback, WorkerCallback))


def group_callbacks(callbacks: list[Any]) -> tuple[WorkerGroupCallback, ...]:
    return tuple(callback for callback in callbacks if isinstance(callback, WorkerGroupCallback))
