"""Ray's callback classes, on top of the calls that Trireme makes in the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        pass

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        pass

    def on_trial_restore(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        pass

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        pass

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        pass

    def on_checkpoint(
        self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Checkpoint, **info: Any
    ) -> None:
        pass

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        pass

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        pass

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
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
        self.setup(stop=None, num_samples=1, total_num_samples=1)
        if run_context.resumed:
            self.on_trial_restore(iteration=0, trials=[trial], trial=trial)
        self.on_trial_start(iteration=0, trials=[trial], trial=trial)

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        trial = self._trial
        if not metrics:
            return
        at = {"iteration": len(trial.rows), "trials": [trial], "trial": trial}
        self.on_step_begin(at["iteration"], [trial])  # type: ignore[arg-type]
        self.on_trial_result(**at, result=dict(trial.rows[-1]))  # type: ignore[arg-type]
        if checkpoint is not None:
            trial.checkpoint = checkpoint
            self.on_trial_save(**at)  # type: ignore[arg-type]
            self.on_checkpoint(**at, checkpoint=checkpoint)  # type: ignore[arg-type]
        self.on_step_end(at["iteration"], [trial])  # type: ignore[arg-type]

    def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
        trial = self._trial
        trial.status = "TERMINATED" if error is None else "ERROR"
        ended = self.on_trial_complete if error is None else self.on_trial_error
        ended(iteration=len(trial.rows), trials=[trial], trial=trial)


class ExperimentEnd(UserCallback):
    """The last callback: the experiment ends after all callbacks have seen the end of its trial."""

    def __init__(self, callbacks: list[TuneCallback]) -> None:
        self._callbacks = callbacks

    def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
        for callback in self._callbacks:
            callback.on_experiment_end(trials=[callback._trial])


class LoggerCallback(TuneCallback):
    """ray.tune.logger.LoggerCallback."""

    def log_trial_start(self, trial: Trial) -> None:
        pass

    def log_trial_restore(self, trial: Trial) -> None:
        pass

    def log_trial_save(self, trial: Trial) -> None:
        pass

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


class ControllerCallback(UserCallback):
    """Called in the driver, which is Trireme's controller."""

    def after_controller_start(self, train_run_context: RunContext) -> None:
        pass

    def after_controller_finish(self, result: Any) -> None:
        pass

    def before_run(self, run_context: RunContext) -> None:
        self.after_controller_start(run_context)


class ReportCallback(UserCallback):
    """after_report(training_report, metrics): called for every report, with the metrics of all ranks."""


class WorkerCallback(UserCallback):
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

    @contextmanager
    def on_checkpoint_sync(self) -> Iterator[None]:
        yield

    @contextmanager
    def on_checkpoint_transfer(self) -> Iterator[None]:
        yield


class WorkerGroupCallback(UserCallback):
    """Its hooks get Ray's worker group, which Trireme does not have in the driver."""

    def __init_subclass__(cls) -> None:
        for name in vars(cls):
            if name.startswith(("after_worker_group", "before_worker_group", "on_worker_group", "after_replica")):
                raise refusal(
                    f"{cls.__name__}.{name}()",
                    "use UserCallback in the driver (before_run, after_report, after_run) or WorkerCallback in workers",
                )


def worker_callbacks(callbacks: list[Any]) -> tuple[WorkerCallback, ...]:
    return tuple(callback for callback in callbacks if isinstance(callback, WorkerCallback))
