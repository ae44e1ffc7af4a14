"""The trainer: checks everything first, then runs the training function on the workers and waits for the result."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from trireme import _core, _ship
from trireme._checkpoint import Checkpoint, local_path
from trireme._config import DataConfig, RunConfig, ScalingConfig
from trireme._context import TrainContext
from trireme._display import Display
from trireme._errors import ControllerError, TrainingFailedError, worker_group_error
from trireme._interrupt import InterruptGuard
from trireme._local import run_here
from trireme._result import Result, committed_checkpoints
from trireme._runtime import runtime, warm_up
from trireme._runtime_env import for_the_record, worker_start
from trireme.backend import BackendConfig
from trireme.callbacks import CallbackCaller, RunContext

_PUMP_S = 0.1  # how long Ctrl-C and the live line may wait


class DataParallelTrainer:
    """Runs one function on many workers. Frameworks' trainers derive from this one."""

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        backend_config: BackendConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: Any = None,
    ) -> None:
        if datasets:
            raise NotImplementedError("datasets=... is not available yet; load the data in the training function")
        if validation_config is not None:
            raise NotImplementedError("validation_config=... is not available yet; validate in the training function")
        self.train_loop_per_worker = train_loop_per_worker
        self.train_loop_config = _checked("train_loop_config", train_loop_config, dict)
        self.backend_config = _checked("backend_config", backend_config, BackendConfig) or BackendConfig()
        self.scaling_config = _scaled_by_command_line(
            _checked("scaling_config", scaling_config, ScalingConfig) or ScalingConfig()
        )
        self.run_config = _checked("run_config", run_config, RunConfig) or RunConfig()
        self.dataset_config = _checked("dataset_config", dataset_config, DataConfig)
        self.resume_from_checkpoint = _checked("resume_from_checkpoint", resume_from_checkpoint, Checkpoint)
        self.metadata = _checked("metadata", metadata, dict) or {}
        _check_json("metadata", self.metadata)
        if self.scaling_config.max_workers > 0:
            # Modules of the user wait for the run, which knows the folders that they are in.
            warm_up(list(self.backend_config.preload))

    def fit(self) -> Result:
        """Run to the end. Raises TrainingFailedError where the run did not finish."""
        arguments = _ship.call_arguments(self.train_loop_per_worker, self.train_loop_config)
        if self.scaling_config.max_workers == 0:
            context = TrainContext(self.run_config.name or type(self).__name__, _metadata=self.metadata)
            return run_here(self.train_loop_per_worker, arguments, context, self.resume_from_checkpoint)
        run = _core.Run(runtime(), self._spec(arguments))
        try:
            outcome, committed = self._follow(run)
        finally:
            run.close()
        _raise_failure(outcome)
        return _result(outcome, committed)

    def _follow(self, run: _core.Run) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Shows what happens until the run is over; returns how it ended and the checkpoints it committed."""
        caller = CallbackCaller(self.run_config.callbacks, self._run_context(run.id), run.path)
        committed: list[dict[str, Any]] = []
        run.start()
        with Display(self.run_config.logging_config.log_level) as display, InterruptGuard(run) as guard:
            for events in _events(run):
                display.show(events)
                for event in events:
                    if event["event"] == "checkpoint_committed":
                        committed.append(event)
                    _call_back(caller, run, event)
            outcome = run.outcome()
            display.show_result(outcome)
        if guard.interrupted:
            raise KeyboardInterrupt
        return outcome, committed

    def _preload(self) -> list[str]:
        asked = [name for name in os.environ.get("TRIREME_RUN_PRELOAD", "").split(",") if name]
        return list(dict.fromkeys([*self.backend_config.preload, *self.run_config.preload, *asked]))

    def _run_context(self, run_id: str) -> RunContext:
        return RunContext(
            run_id=run_id,
            run_config=self.run_config,
            scaling_config=self.scaling_config,
            train_loop_config=self.train_loop_config,
            backend_config=self.backend_config,
            dataset_config=self.dataset_config,
        )

    def _spec(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """What the core needs to know; everything that can be refused in Python is refused here."""
        run_config = self.run_config.to_dict()
        if run_config.pop("storage_filesystem") is not None:
            raise NotImplementedError(
                "RunConfig(storage_filesystem=...) is not available yet; use a local storage_path"
            )
        del run_config["callbacks"]
        if run_config["storage_path"] is not None:
            run_config["storage_path"] = local_path(run_config["storage_path"])
        start = worker_start(run_config["worker_runtime_env"])
        run_config["worker_runtime_env"] = for_the_record(run_config["worker_runtime_env"])
        payload = _ship.pack(self.train_loop_per_worker, arguments, self.backend_config, start.sys_path)
        return {
            "trainer": type(self).__name__,
            "scaling_config": self.scaling_config.to_dict(),
            "run_config": run_config,
            "payload": payload,
            "python": {"preload": self._preload(), "sys_path": start.sys_path, "argv": sys.argv},
            "cwd": start.cwd,
            "env": start.env,
            "resume_from_checkpoint": self.resume_from_checkpoint.path if self.resume_from_checkpoint else None,
            "metadata": self.metadata,
            "every_report": bool(self.run_config.callbacks),
        }


def _checked(name: str, value: Any, kind: type) -> Any:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}: {value!r}")
    return value


def _check_json(name: str, value: dict[str, Any]) -> None:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be JSON: {error}") from error


def _scaled_by_command_line(config: ScalingConfig) -> ScalingConfig:
    """`trireme run --num-workers` speaks to every trainer of the script."""
    asked = os.environ.get("TRIREME_RUN_NUM_WORKERS")
    if not asked or os.environ.get("TRIREME_WORKER") == "1":
        return config
    try:
        numbers = [int(number) for number in asked.split(",")]
    except ValueError:
        raise _core.ConfigError(f"TRIREME_RUN_NUM_WORKERS={asked!r}: expected a number, or MIN,MAX") from None
    scaled = config.replace(num_workers=numbers[0] if len(numbers) == 1 else tuple(numbers))
    print(f"num_workers={scaled.num_workers} from the command line, in place of {config.num_workers}", flush=True)
    return scaled


def _events(run: _core.Run) -> Iterator[list[dict[str, Any]]]:
    while not run.finished:
        yield run.next(_PUMP_S)


def _call_back(caller: CallbackCaller, run: _core.Run, event: dict[str, Any]) -> None:
    try:
        caller.handle(event)
    except Exception as error:
        run.stop(f"{type(error).__name__} in a callback: {error}", hard=True)
        run.outcome()  # nothing of the run is left when the user sees the error
        raise ControllerError(error) from error


def _raise_failure(outcome: dict[str, Any]) -> None:
    if outcome["outcome"] == "finished":
        return
    if outcome["outcome"] == "stopped":
        raise TrainingFailedError(
            f"the run was stopped ({outcome['error'] or 'on request'}); fit() with the same name and storage_path "
            "continues it"
        )
    if outcome["failures"]:
        error = worker_group_error(outcome["failures"], outcome["path"])
        raise error from error.__cause__
    raise ControllerError(RuntimeError(outcome["error"]))


def _result(outcome: dict[str, Any], committed: list[dict[str, Any]]) -> Result:
    value = outcome["return_value"]
    if value is not None:
        import cloudpickle

        value = cloudpickle.loads(value)
    return Result(
        metrics=outcome["metrics"],
        checkpoint=Checkpoint(outcome["checkpoint"]) if outcome["checkpoint"] else None,
        error=None,
        path=outcome["path"],
        best_checkpoints=committed_checkpoints(committed, outcome["path"]),
        return_value=value,
    )
