"""fit() in compatibility mode: the configuration, the wrapped training function, the files of the run, the result."""

from __future__ import annotations

import copy
import os
import posixpath
from collections.abc import Callable
from typing import Any, Self
from weakref import WeakKeyDictionary

from trireme import _restore
from trireme._errors import TrainingFailedError
from trireme._result import Result
from trireme._storage import Location, import_arrow, resolve
from trireme._trainer import DataParallelTrainer
from trireme.compat.ray import _driver, _runtime_env
from trireme.compat.ray._backends import served
from trireme.compat.ray._callbacks import ExperimentEnd, TuneCallback, called, group_callbacks, worker_callbacks
from trireme.compat.ray._configs import RunConfig, ScalingConfig, first_version_folder
from trireme.compat.ray._data_config import Configured, DataConfig
from trireme.compat.ray._result import RayResult, around, first_version, second_version
from trireme.compat.ray._run_files import SecondVersionFiles
from trireme.compat.ray._session import InRaySession
from trireme.compat.ray._settings import RunSettings, reports_wait, seconds
from trireme.compat.ray._tensorboard import TrialEvents
from trireme.compat.ray._trial import Trial
from trireme.compat.ray._trial_files import FirstVersionFiles
from trireme.compat.ray._version import is_v1, note_v1

# What the script has passed to each trainer. Not an attribute: a run stores those.
_GIVEN: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
# Imported before workers are forked.
_PRELOAD = ["trireme.compat.ray._session", "trireme.compat.ray._reporting"]


class RayFit(DataParallelTrainer):
    """The part that all trainers of compatibility mode share; the framework's trainer follows in their bases."""

    _trial_folder: str | None = None  # of a restored trainer of the first version

    def __init__(self, train_loop_per_worker: Callable[..., Any] | None = None, **options: Any) -> None:
        for name in ("resume_from_checkpoint", "metadata"):
            if options.get(name) is not None:
                note_v1(f"{type(self).__name__}({name}=...)")
        _GIVEN[self] = {"train_loop_per_worker": train_loop_per_worker, **options}
        options.pop("preprocessor", None)
        if options.get("run_config") is None:
            options["run_config"] = RunConfig()
        if options.get("scaling_config") is None:
            options["scaling_config"] = ScalingConfig()
        if options.get("dataset_config") is None and options.get("datasets"):
            options["dataset_config"] = DataConfig()
        super().__init__(train_loop_per_worker, **options)  # type: ignore[arg-type]

    def fit(self) -> RayResult:
        """Run the training and return its result as this version of Ray Train does."""
        return self._fit(is_v1(), Trial(type(self).__name__, {"train_loop_config": dict(self.train_loop_config or {})}))

    def _given(self) -> dict[str, Any]:
        """For a trainer with other arguments."""
        return _GIVEN[self]

    def _fit(self, v1: bool, trial: Trial) -> RayResult:
        prepared = copy.copy(self)
        callbacks = list(self.run_config.callbacks)
        if self.scaling_config.max_workers:
            _driver.prepare_run()
            of_tune = [callback for callback in callbacks if isinstance(callback, TuneCallback)]
            callbacks = [*self._file_callbacks(v1, trial, of_tune), *map(called, callbacks), ExperimentEnd(of_tune)]
        prepared.run_config = self._run_config(v1, trial, callbacks)
        trial.experiment_dir_name = self._experiment_name(v1, prepared.run_config)
        if isinstance(self.scaling_config, ScalingConfig):
            prepared.scaling_config = self.scaling_config.resolved()
        prepared.backend_config = served(self.backend_config)
        configured = Configured.of(self.dataset_config, self.datasets, v1) if self.scaling_config.max_workers else None
        if configured is not None:
            prepared.datasets = {}
        prepared.train_loop_per_worker = self._wrapped(v1, trial, configured)
        try:
            result = super(RayFit, prepared).fit()
        except TrainingFailedError as error:
            if v1:  # has one class of errors
                raise TrainingFailedError(str(error)) from error.__cause__
            raise
        return self._result(v1, result, trial)

    def _file_callbacks(self, v1: bool, trial: Trial, of_tune: list[TuneCallback]) -> list[Any]:
        filesystem = self._storage().filesystem
        for callback in of_tune:
            callback.bind(trial)
        if v1 or of_tune:
            first = FirstVersionFiles(filesystem, trial, TrialEvents.of(self.run_config.callbacks, v1))
            return [first] if v1 else [first, SecondVersionFiles(filesystem)]
        return [SecondVersionFiles(filesystem)]

    def _run_config(self, v1: bool, trial: Trial, callbacks: list[Any]) -> Any:
        changes: dict[str, Any] = {
            "callbacks": callbacks,
            "preload": [*_PRELOAD, *self.run_config.preload],
            "worker_runtime_env": _runtime_env.merged(self.run_config.worker_runtime_env or {}),
        }
        if timeout := seconds("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"):
            changes["start_timeout_s"] = timeout
        config = self.run_config.replace(**changes)
        if not v1 or self._trial_folder is not None:
            return config
        return first_version_folder(config, type(self).__name__, trial.folder_name)

    def _experiment_name(self, v1: bool, config: Any) -> str:
        name = posixpath.basename(config.storage_path.rstrip("/")) if v1 and config.storage_path else config.name
        return str(name or "")

    def _wrapped(self, v1: bool, trial: Trial, configured: Configured | None) -> InRaySession:
        function = self.train_loop_per_worker
        if isinstance(function, InRaySession):  # of a restored trainer
            function = function.function
        settings = RunSettings(
            v1=v1,
            barrier=reports_wait(),
            experiment_name=trial.experiment_dir_name,
            trial_name=trial.trial_name,
            trial_id=trial.trial_id,
            trial_resources=dict(self.scaling_config._bundle),  # type: ignore[attr-defined]
            worker_callbacks=worker_callbacks(self.run_config.callbacks),
            stop=getattr(self.run_config, "_stopper", None),
            around=getattr(self.backend_config, "train_func_context", None),
            collective_timeout_s=seconds("RAY_TRAIN_COLLECTIVE_TIMEOUT_S"),
            configured=configured,
            group_callbacks=group_callbacks(self.run_config.callbacks),
        )
        return InRaySession(function, settings)

    def _result(self, v1: bool, result: Result, trial: Trial) -> RayResult:
        if result.path is None:  # local mode: values pass as they are
            return around(result)
        made = first_version(result, trial.rows, trial.experiment_tag) if v1 else second_version(result)
        for callback in self.run_config.callbacks:
            if finished := getattr(callback, "after_controller_finish", None):
                finished(made)
        return made

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        return super().can_restore(_run_folder(path, storage_filesystem), storage_filesystem)

    @classmethod
    def restore(cls, path: str | os.PathLike[str], *args: Any, **options: Any) -> Self:
        """path: the folder of the experiment, or of its trial."""
        note_v1(f"{cls.__name__}.restore()")
        folder = _run_folder(path, options.get("storage_filesystem"))
        restored = super().restore(folder, *args, **options)
        restored._trial_folder = folder
        return restored

    def _datasets_for_restore(self, given: dict[str, Any] | None) -> dict[str, Any] | None:
        if given is not None and set(given) != set(self.datasets):
            raise ValueError(
                f"restore(datasets={{{', '.join(given)}}}): this run used {', '.join(self.datasets) or 'no datasets'}; "
                "pass datasets with the same names"
            )
        return super()._datasets_for_restore(given)


def _run_folder(path: str | os.PathLike[str], filesystem: Any) -> str:
    """The newest folder with a stored trainer: `path`, or a trial's folder inside it."""
    where = resolve(path, filesystem)
    given = os.fspath(path)
    if _restore.stored(where):
        return given
    # An experiment's folder holds those of its trials, whose names end with their time. Other runs are not meant.
    trials = [name for name in _folders(where) if "_00000_0_" in name and _restore.stored(where.join(name))]
    if not trials:
        return given
    base, mark, options = given.partition("?")
    return f"{base.rstrip('/')}/{max(trials, key=lambda name: name[-19:])}{mark}{options}"


def _folders(where: Location) -> list[str]:
    if where.local:
        return [entry.name for entry in os.scandir(where.path) if entry.is_dir()] if os.path.isdir(where.path) else []
    fs = import_arrow("Trainer.restore()")
    found = where.filesystem.get_file_info(fs.FileSelector(where.path, allow_not_found=True))
    return [each.base_name for each in found if each.type == fs.FileType.Directory]
