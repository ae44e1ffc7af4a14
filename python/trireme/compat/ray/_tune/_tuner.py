"""ray.tune.Tuner: trials of a trainer or of a function, one after the other."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import secrets
from collections.abc import Callable
from typing import Any, NoReturn

from trireme._errors import TrainingFailedError
from trireme._storage import Location, resolve
from trireme.compat.ray._callbacks import TuneCallback
from trireme.compat.ray._configs import RunConfig, ScalingConfig
from trireme.compat.ray._fit import RayFit
from trireme.compat.ray._refusal import refusal
from trireme.compat.ray._result import RayResult, first_version
from trireme.compat.ray._trial import Trial
from trireme.compat.ray._tune._function import run_function
from trireme.compat.ray._tune._grid import ResultGrid
from trireme.compat.ray._tune._space import tag, variants
from trireme.compat.ray._version import is_v1, note_v1

_ADVICE = (
    "trials run one after the other, as a grid or random search. Use Optuna around trainer.fit() for other algorithms"
)


class TuneError(Exception):
    pass


class FIFOScheduler:
    """The default: trials run in their order."""


class BasicVariantGenerator:
    """The default: points of the grid, and random values."""

    def __init__(
        self,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: Any = None,
    ) -> None:
        if points_to_evaluate or constant_grid_search:
            raise refusal(
                "BasicVariantGenerator(points_to_evaluate=..., constant_grid_search=True)",
                "use grid_search() for the configurations that must be tried",
            )
        self.random_state = random_state


class TuneConfig:
    def __init__(
        self,
        mode: str | None = None,
        metric: str | None = None,
        search_alg: Any = None,
        scheduler: Any = None,
        num_samples: int = 1,
        max_concurrent_trials: int | None = None,
        time_budget_s: Any = None,
        reuse_actors: bool = False,
        trial_name_creator: Callable[[Trial], str] | None = None,
        trial_dirname_creator: Callable[[Trial], str] | None = None,
        chdir_to_trial_dir: Any = None,
    ) -> None:
        if mode not in (None, "min", "max"):
            raise ValueError(f"TuneConfig(mode={mode!r}): expected 'min' or 'max'")
        if not isinstance(num_samples, int) or num_samples < 1:
            raise refusal(f"TuneConfig(num_samples={num_samples!r})", "pass the number of samples, 1 or more")
        if not isinstance(scheduler, (FIFOScheduler, type(None))):
            raise refusal(f"TuneConfig(scheduler={type(scheduler).__name__}(...))", _ADVICE)
        if not isinstance(search_alg, (BasicVariantGenerator, type(None))):
            raise refusal(f"TuneConfig(search_alg={type(search_alg).__name__}(...))", _ADVICE)
        if time_budget_s is not None:
            raise refusal("TuneConfig(time_budget_s=...)", "choose num_samples, or RunConfig(stop=...) for each trial")
        self.mode, self.metric, self.num_samples = mode, metric, num_samples
        self.search_alg, self.scheduler = search_alg, scheduler
        self.max_concurrent_trials, self.reuse_actors = max_concurrent_trials, reuse_actors
        self.trial_name_creator, self.trial_dirname_creator = trial_name_creator, trial_dirname_creator


class Tuner:
    def __init__(
        self,
        trainable: RayFit | Callable[..., Any] | None = None,
        *,
        param_space: dict[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: Any = None,  # a RunConfig
    ) -> None:
        if trainable is None:
            raise TuneError("You need to provide a trainable to tune.")
        if isinstance(trainable, (str, type)):
            raise refusal(f"Tuner({trainable!r})", "pass a trainer or a function; tune.Trainable classes are not run")
        if param_space is not None and not isinstance(param_space, dict):
            raise ValueError(f"Tuner(param_space=...) must be a dict, got {type(param_space).__name__}")
        if isinstance(trainable, RayFit):
            note_v1("Tuner(trainer)")
            if not is_v1():
                raise TuneError(
                    "Tuner(trainer) is of Ray Train's first version, but RAY_TRAIN_V2_ENABLED=1 selects the second: "
                    "pass a function that creates the trainer and calls fit(), or unset the variable"
                )
            if param_space and "run_config" in param_space:
                raise ValueError("`run_config` cannot be tuned: pass it to Tuner(run_config=...)")
            run_config = run_config or trainable.run_config
        elif not callable(trainable):
            raise TuneError(f"Improper 'run' - not string nor trainable: {trainable!r}")
        self._trainable, self._space = trainable, param_space or {}
        self._tune_config = tune_config or TuneConfig()
        self._run_config = run_config or RunConfig()
        self._grid: ResultGrid | None = None

    def fit(self) -> ResultGrid:
        """Run all trials. One that fails has an error in its result; the others run."""
        name = _name(self._trainable)
        experiment = self._run_config.name
        if experiment is None or experiment.startswith("ray_train_run-"):
            experiment = f"{name}_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"
        config = self._run_config.replace(name=experiment)
        folder = resolve(config.storage_path or "", config.storage_filesystem, "RunConfig.storage_path").join(
            experiment
        )
        trials = self._trials(name)
        results = []
        fail_fast = getattr(config.failure_config, "fail_fast", None)
        for trial in trials:
            print(f"trial {trial.index + 1} of {len(trials)}: {trial} {_shown(trial)}", flush=True)
            results.append(self._run(trial, config, folder))
            error = results[-1].error
            if error and fail_fast == "raise":
                raise error
            if error and fail_fast:
                break
        for callback in config.callbacks:
            if isinstance(callback, TuneCallback):
                callback.on_experiment_end(trials=trials)
        self._grid = ResultGrid(
            trials[: len(results)], results, folder, self._tune_config.metric, self._tune_config.mode
        )
        return self._grid

    def get_results(self) -> ResultGrid:
        if self._grid is None:
            raise RuntimeError(
                "Can't return results as experiment has not been run, yet. Call `Tuner.fit()` to run the experiment "
                "first."
            )
        return self._grid

    @classmethod
    def restore(cls, path: str, *args: Any, **options: Any) -> NoReturn:
        raise refusal("Tuner.restore()", "create the Tuner again with the configurations that are left")

    @classmethod
    def can_restore(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> bool:
        return False

    def _trials(self, name: str) -> list[Trial]:
        seed = getattr(self._tune_config.search_alg, "random_state", None)
        prefix = secrets.token_hex(3)[:5]
        trials: list[Trial] = []
        for index, (values, config) in enumerate(variants(self._space, self._tune_config.num_samples, seed)):
            trial = Trial(name, config, experiment_tag=tag(index, values), trial_id=f"{prefix}_{index:05d}")
            trial.index, trial.experiment = index, trials
            trial.params = {"/".join(map(str, path)): value for path, value in values.items()}
            if creator := self._tune_config.trial_name_creator:
                trial.custom_name = creator(trial)
            if creator := self._tune_config.trial_dirname_creator:
                trial.custom_folder = creator(trial)
            trials.append(trial)
        return trials

    def _run(self, trial: Trial, config: RunConfig, folder: Location) -> RayResult:
        if not isinstance(self._trainable, RayFit):
            trial.experiment_dir_name = folder.parent_and_name()[1]
            return run_function(self._trainable, trial, config, folder.join(trial.folder_name), trial.config)
        trainer = with_parameters_of(self._trainable, trial.config, config)
        try:
            return trainer._fit(True, trial)
        except TrainingFailedError as error:
            made = _failed(trial, folder)
            made.error = error.__cause__ if isinstance(error.__cause__, Exception) else error
            return made


def with_parameters_of(trainer: RayFit, values: dict[str, Any], config: RunConfig) -> RayFit:
    """The trainer with these arguments, merged into its own."""
    given = dict(trainer._given())
    given["run_config"] = config
    for name, value in values.items():
        before = given.get(name)
        if name == "scaling_config" and isinstance(value, dict):
            given[name] = (before or ScalingConfig()).replace(**value)
        else:
            given[name] = _merged(before, value)
    return type(trainer)(**given)


def _merged(before: Any, value: Any) -> Any:
    if isinstance(before, dict) and isinstance(value, dict):
        return {**before, **{name: _merged(before.get(name), each) for name, each in value.items()}}
    return value


def _failed(trial: Trial, folder: Location) -> RayResult:
    where = folder.join(trial.folder_name)
    with contextlib.suppress(RuntimeError):  # it failed before it had a folder
        return first_version(RayResult.from_path(where.path, where.filesystem), trial.rows, trial.experiment_tag)
    return RayResult({}, None, None, where.path)


def with_parameters(trainable: Callable[..., Any], **parameters: Any) -> Callable[..., Any]:
    """The function with these arguments."""
    if isinstance(trainable, type):
        raise refusal("tune.with_parameters(class)", "pass a function")

    @functools.wraps(trainable)
    def with_arguments(config: Any) -> Any:
        return trainable(config, **parameters)

    return with_arguments


def with_resources(trainable: Any, resources: Any) -> Any:
    """Without an effect: the trials run one after the other, in the driver."""
    return trainable


def _name(trainable: Any) -> str:
    return type(trainable).__name__ if isinstance(trainable, RayFit) else getattr(trainable, "__name__", "run")


def _shown(trial: Trial) -> str:
    return ", ".join(f"{name}={value}" for name, value in trial.params.items())
