"""The trainer: checks its arguments, runs the training function on the workers and waits for the result."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, cast

from trireme import _core, _restore, _ship
from trireme._checkpoint import Checkpoint
from trireme._config import DataConfig, RunConfig, ScalingConfig
from trireme._context import TrainContext
from trireme._display import Display
from trireme._errors import ControllerError, TrainingFailedError, failure_error
from trireme._interrupt import InterruptGuard
from trireme._local import run_here
from trireme._preload import frameworks_imported
from trireme._result import Result, result_of
from trireme._runtime import runtime, warm_up
from trireme._runtime_env import WorkerStart, for_the_record, script_folder, worker_start
from trireme._storage import Location, check_usable, resolve
from trireme._validation import ValidationConfig, ValidationRunner
from trireme.backend import BackendConfig
from trireme.callbacks import CallbackCaller, RunContext

if TYPE_CHECKING:
    from trireme.data._trainer_datasets import DatasetPlans

_PUMP_S = 0.1  # longest delay of Ctrl-C and the live line
_Config = TypeVar("_Config", bound=BackendConfig)


class TrainerOptions(TypedDict, total=False):
    """The arguments of every trainer; those of frameworks add their own."""

    train_loop_config: dict[str, Any] | None
    scaling_config: ScalingConfig | None
    run_config: RunConfig | None
    datasets: dict[str, Any] | None
    dataset_config: DataConfig | None
    resume_from_checkpoint: Checkpoint | None
    metadata: dict[str, Any] | None
    validation_config: ValidationConfig | None


def backend_config(name: str, given: _Config | None, kind: type[_Config]) -> _Config:
    """The framework's configuration from the trainer's argument of that name."""
    if given is not None and not isinstance(given, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, got {type(given).__name__}: {given!r}")
    return given or kind()


class DataParallelTrainer:
    """Runs a training function on many workers. The base class of the trainers for frameworks."""

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
        validation_config: ValidationConfig | None = None,
    ) -> None:
        self.datasets = _checked_datasets(datasets)
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
        self.validation_config = _checked("validation_config", validation_config, ValidationConfig)
        if self.scaling_config.max_workers > 0:
            # User modules are imported later: only the run knows their folders.
            warm_up([*self._backend_preload(), *(["trireme.data._trainer_datasets"] if self.datasets else [])])

    def fit(self) -> Result:
        """Run the training and return its result. Raises TrainingFailedError if the run does not finish."""
        arguments = _ship.call_arguments(self.train_loop_per_worker, self.train_loop_config)
        if self.scaling_config.max_workers == 0:
            context = TrainContext(self.run_config.name or type(self).__name__, _metadata=self.metadata)
            resume, validation = self.resume_from_checkpoint, self.validation_config
            return run_here(self.train_loop_per_worker, arguments, context, resume, validation, self._plans())
        storage = self._storage()
        start = worker_start(self.run_config.worker_runtime_env)
        plans = self._plans()  # kept alive during the run: workers map the shared memory of its tables
        run = _core.Run(runtime(), self._spec(arguments, storage, start, plans), storage.files())
        try:
            outcome = self._follow(run, storage, start)
        finally:
            run.close()
        num_to_keep = self.run_config.checkpoint_config.num_to_keep
        return result_of(outcome, storage.filesystem, self.resume_from_checkpoint, num_to_keep)

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        """Whether restore() can restore a trainer from this run folder."""
        return _restore.stored(resolve(path, storage_filesystem))

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        train_loop_per_worker: Callable[..., Any] | None = None,
        train_loop_config: dict[str, Any] | None = None,
        *,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
        storage_filesystem: Any = None,
    ) -> Self:
        """Load the trainer of an earlier run from its folder; fit() then continues that run. Arguments replace the
        stored values, except for the name and storage in `run_config`.

        The trainer is stored as a pickle, and loading it can run arbitrary code: restore only folders that you trust.
        """
        folder = resolve(path, storage_filesystem)
        made_by, attributes = _restore.load(folder, cls)
        if attributes.pop("_callbacks_lost", False) and run_config is None:
            print("warning: this run's callbacks could not be stored; pass run_config=RunConfig(callbacks=[...])")
        _restore.give_back(attributes, run_config, validation_config, storage_filesystem)
        parent, name = folder.parent_and_name()
        config = run_config or attributes["run_config"]
        config = config.replace(
            name=name, storage_path=parent.path, storage_filesystem=parent.filesystem, resume="must"
        )
        trainer = made_by.__new__(made_by)
        trainer.__dict__.update(attributes)
        DataParallelTrainer.__init__(
            trainer,
            train_loop_per_worker or trainer.train_loop_per_worker,
            train_loop_config=trainer.train_loop_config if train_loop_config is None else train_loop_config,
            backend_config=trainer.backend_config,
            scaling_config=scaling_config or trainer.scaling_config,
            run_config=config,
            datasets=trainer._datasets_for_restore(datasets),
            dataset_config=trainer.dataset_config,
            resume_from_checkpoint=trainer.resume_from_checkpoint,
            metadata=trainer.metadata,
            validation_config=validation_config or trainer.validation_config,
        )
        return cast(Self, trainer)

    def _datasets_for_restore(self, given: dict[str, Any] | None) -> dict[str, Any] | None:
        """Datasets are not stored with a run: their rows may have been in the memory of the earlier driver."""
        names = self.datasets
        if given is None and names:
            known = ", ".join(names)
            raise ValueError(
                f"this run used datasets ({known}), which are not stored: pass them to restore(path, datasets={{...}})"
            )
        return given

    def _follow(self, run: _core.Run, storage: Location, start: WorkerStart) -> dict[str, Any]:
        """Shows the events of the run until it ends. Returns the outcome, or raises."""
        folder = Location(run.storage_path, storage.filesystem)
        caller = CallbackCaller(self.run_config.callbacks, self._run_context(run), folder)
        validations = ValidationRunner(self.validation_config, run.path, folder, start, run.finish_validation)
        error: BaseException | None = None
        try:
            run.start()
            # In parallel with the start of the workers, which takes longer.
            if problem := _restore.store(self, run.path, folder):
                print(f"warning: {problem}", flush=True)
            outcome = self._pump(run, caller, validations)
            _raise_failure(outcome)
            return outcome
        except BaseException as raised:
            error = raised
            raise
        finally:
            validations.close()
            run.close()  # the run's resources are released before callbacks see its end
            caller.end(error)

    def _pump(self, run: _core.Run, caller: CallbackCaller, validations: ValidationRunner) -> dict[str, Any]:
        with Display(self.run_config.logging_config.log_level) as display, InterruptGuard(run) as guard:
            for events in _events(run):
                display.show(events)
                for event in events:
                    if event["event"] == "validation_requested":
                        validations.request(event)
                    _call_back(caller, run, event)
                validations.poll()
            outcome: dict[str, Any] = run.outcome()
            display.show_result(outcome)
        if outcome["outcome"] == "stopped":
            guard.raise_if_ended()
        return outcome

    def _storage(self) -> Location:
        """The location of the run's storage; raises ConfigError if it is not writable."""
        path, filesystem = self.run_config.storage_path, self.run_config.storage_filesystem
        if path is None and filesystem is not None:
            raise _core.ConfigError("RunConfig.storage_filesystem needs storage_path: set a path in that filesystem")
        if path is None:
            path = os.environ.get("TRIREME_RESULTS", "")
            if "://" not in path:
                return Location("")  # the core chooses the default
        location = resolve(path, filesystem, "RunConfig.storage_path")
        check_usable(location, "RunConfig.storage_path")
        return location

    def _plans(self) -> DatasetPlans | None:
        """Plans the datasets: lists their files, counts their rows and rejects invalid ones."""
        if not self.datasets:
            return None
        from trireme.data._trainer_datasets import DatasetPlans

        return DatasetPlans(self.datasets, self.dataset_config, self.scaling_config.max_workers)

    def _backend_preload(self) -> tuple[str, ...]:
        return self.backend_config.preload

    def _preload(self) -> list[str]:
        asked = [name for name in os.environ.get("TRIREME_RUN_PRELOAD", "").split(",") if name]
        data = ["trireme.data._trainer_datasets"] if self.datasets else []
        found = frameworks_imported()
        return list(dict.fromkeys([*self._backend_preload(), *data, *found, *self.run_config.preload, *asked]))

    def _run_context(self, run: _core.Run) -> RunContext:
        return RunContext(
            run_id=run.id,
            run_config=self.run_config.replace(name=run.name),
            path=run.path,
            storage_path=run.storage_path,
            scaling_config=self.scaling_config,
            train_loop_config=self.train_loop_config,
            backend_config=self.backend_config,
            dataset_config=self.dataset_config,
        )

    def _spec(
        self, arguments: tuple[Any, ...], storage: Location, start: WorkerStart, plans: DatasetPlans | None
    ) -> dict[str, Any]:
        """The fields of the core's RunSpec (src/api/run.h). All checks that Python can do happen here."""
        run_config = self.run_config.to_dict()
        del run_config["storage_filesystem"], run_config["callbacks"]
        run_config["storage_path"] = str(storage) or None
        run_config["worker_runtime_env"] = for_the_record(run_config["worker_runtime_env"])
        resume = self.resume_from_checkpoint
        foreign = resume is not None and not resume._where().local
        extras = {
            "backend_config": self.backend_config,
            "storage_filesystem": storage.files(),
            "resume_from_checkpoint": resume if foreign else None,
            "validation_config": self.validation_config.task_config if self.validation_config else None,
            "datasets": plans,
        }
        # The worker forks the host of dataset functions at its start, while it has a single thread.
        host = {"TRIREME_FUNCTION_HOST": "1"} if plans is not None and plans.has_functions else {}
        return {
            "trainer": type(self).__name__,
            "scaling": self.scaling_config.to_dict(),
            "run": run_config,
            "payload": _ship.pack(self.train_loop_per_worker, arguments, extras, start.sys_path),
            "python": {"preload": self._preload(), "sys_path": start.sys_path, "argv": sys.argv},
            "cwd": start.cwd,
            "code": start.code,
            "script_folder": script_folder(),
            "env": {**start.env, **host},
            "storage_path": "" if storage.local else storage.path,
            "resume_from_checkpoint": str(resume._where()) if resume else None,
            "resume_checkpoint_elsewhere": foreign,
            "metadata": self.metadata,
            "share_cuda_visible_devices": bool(self.backend_config.share_cuda_visible_devices),
            "logged_datasets": plans.logged if plans is not None else [],
            "every_report": bool(self.run_config.callbacks),
        }


def _checked(name: str, value: Any, kind: type) -> Any:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}: {value!r}")
    return value


def _checked_datasets(datasets: dict[str, Any] | None) -> dict[str, Any]:
    if not datasets:
        return {}
    from trireme.data._trainer_datasets import check_names

    return check_names(datasets)


def _check_json(name: str, value: dict[str, Any]) -> None:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be JSON: {error}") from error


def _scaled_by_command_line(config: ScalingConfig) -> ScalingConfig:
    """`trireme run --num-workers` applies to every trainer of the script."""
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
        run.outcome()  # waits until the run has ended
        raise ControllerError(error) from error


def _raise_failure(outcome: dict[str, Any]) -> None:
    if outcome["outcome"] == "finished":
        return
    if outcome["outcome"] == "stopped":
        raise TrainingFailedError(
            f"the run was stopped ({outcome['error'] or 'on request'}); fit() with the same name and storage_path "
            "continues it"
        )
    error = failure_error(outcome)
    raise error from error.__cause__
