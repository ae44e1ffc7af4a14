"""The trainers of both libraries: a training function of the user, or the trainer's own loop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from trireme import _core
from trireme._boosting._described import described, with_groups
from trireme._boosting._lean_import import LEAN_PRELOAD
from trireme._boosting._start_loop import start_loop
from trireme._config import DataConfig
from trireme._result import Result
from trireme._trainer import DataParallelTrainer, TrainerOptions
from trireme.backend import BackendConfig

EVALS = "pass the datasets to evaluate as datasets={name: ...}; each is reported as '<name>-<metric>'"


class LoopOptions(TrainerOptions, total=False):
    """The arguments of a trainer's own loop."""

    params: dict[str, Any] | None
    label_column: str | None
    num_boost_round: int | None
    weight_column: str | None
    group_column: str | None
    categorical_columns: list[str] | None
    evaluate_train: bool | None
    early_stopping_rounds: int | None
    callbacks: list[Any] | None


class BoostingTrainer(DataParallelTrainer):
    """The base of XGBoostTrainer and LightGBMTrainer."""

    _library: ClassVar[str] = ""
    _options: ClassVar[type] = LoopOptions
    # Arguments of the library's train() that the trainer passes itself, and what to use instead.
    _refused: ClassVar[Mapping[str, str]] = {}
    # Parameters that may be a function, and the arguments for other functions.
    _function_params: ClassVar[tuple[str, ...]] = ()
    _function_arguments: ClassVar[str] = ""

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None,
        backend_config: BackendConfig,
        options: Mapping[str, Any],
    ) -> None:
        common = {name: value for name, value in options.items() if name in TrainerOptions.__annotations__}
        own_loop = {name: value for name, value in options.items() if name not in common}
        self._check_names(own_loop)
        given = [name for name, value in own_loop.items() if value is not None]
        self._own_loop: dict[str, Any] | None = None
        # Whether the workers run no code of the user.
        self._lean = False
        function = train_loop_per_worker
        if function is not None and given:
            raise TypeError(
                f"{type(self).__name__}: train_loop_per_worker and {', '.join(given)} exclude each other: pass a "
                "training function, or the arguments of the trainer's own loop"
            )
        if function is None:
            if not given:
                raise TypeError(
                    f"{type(self).__name__} needs a training function, or params, label_column and datasets"
                )
            if common.get("train_loop_config") is not None:
                raise TypeError("train_loop_config is for a training function; pass params={...} instead")
            self._own_loop = loop = self._checked_arguments(own_loop)
            self._lean = not loop["callbacks"] and not any(map(callable, (*loop.values(), *loop["params"].values())))
            function = start_loop
        super().__init__(function, backend_config=backend_config, **common)

    def fit(self) -> Result:
        if self._own_loop is None:
            return super().fit()
        config = self._loop_config(self._own_loop)
        self._lean = self._lean and not any(dataset.plan().has_functions for dataset in self.datasets.values())
        self.backend_config = copy.copy(self.backend_config)  # the given one may belong to several trainers
        vars(self.backend_config)["_lean"] = self._lean
        restarts = self.scaling_config.max_workers > 0  # not in local mode
        kept = _core.TemporaryFolder() if restarts and keeps_rows(config) else None  # until the end of the run
        self.train_loop_config = {**config, "kept": kept.path if kept is not None else ""}
        return super().fit()

    def _backend_preload(self) -> tuple[str, ...]:
        return LEAN_PRELOAD if self._lean else super()._backend_preload()

    def _check_names(self, given: Mapping[str, Any]) -> None:
        accepted = [name for name in self._options.__annotations__ if name not in TrainerOptions.__annotations__]
        for name in given:
            if name in self._refused:
                raise _core.ConfigError(f"{name}: {self._refused[name]}")
            if name not in accepted:
                raise TypeError(
                    f"{type(self).__name__}() got an unexpected argument {name!r}; those of its own loop are "
                    f"{', '.join(accepted)}"
                )

    def _checked_arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        params = given.get("params")
        if params is not None and not isinstance(params, dict):
            raise TypeError(f"params must be a dict, got {type(params).__name__}: {params!r}")
        for name, value in (params or {}).items():
            if callable(value) and name not in self._function_params:
                raise _core.ConfigError(f"params[{name!r}] is a function: pass {self._function_arguments} instead")
        for name in ("label_column", "weight_column", "group_column"):
            if given.get(name) is not None and not isinstance(given[name], str):
                raise TypeError(f"{name} must be the name of a column, got {given[name]!r}")
        columns = given.get("categorical_columns")
        if columns is not None and not (isinstance(columns, list) and all(isinstance(each, str) for each in columns)):
            raise TypeError(f"categorical_columns must be a list of names of columns, got {columns!r}")
        rounds = given.get("num_boost_round")
        every = dict.fromkeys(self._options.__annotations__)
        return {**every, **given, "params": params or {}, "num_boost_round": 10 if rounds is None else rounds}

    def _loop_config(self, given: dict[str, Any]) -> dict[str, Any]:
        """Checks the job in the core, as C++ programs do, before anything starts."""
        from trireme.data._trainer_datasets import _dataset_of

        # Once: a factory may return another dataset on the next call.
        self.datasets = {name: _dataset_of(name, dataset) for name, dataset in self.datasets.items()}
        if given["group_column"] and self.datasets:
            self.dataset_config = self._undivided(self.datasets)
        elif self._library == "lightgbm" and self.datasets:
            self.dataset_config = self._undivided([name for name in self.datasets if name != "train"])
        scaling = self.scaling_config
        most = max(scaling.max_workers, 1)
        group = given["group_column"] or ""
        job = {
            "library": self._library,
            # LightGBM's name for an objective that is a function.
            "params": {name: "none" if callable(value) else value for name, value in given["params"].items()},
            "num_boost_round": given["num_boost_round"],
            "label_column": given["label_column"] or "",
            "weight_column": given["weight_column"] or "",
            "group_column": group,
            "categorical_columns": given["categorical_columns"] or [],
            "early_stopping_rounds": given["early_stopping_rounds"],
            "external_memory": bool(given.get("external_memory")),
            "min_workers": max(scaling.min_workers, 1),
            "max_workers": most,
            "cpus_per_worker": float((scaling.resources_per_worker or {}).get("CPU", 1)),
            "use_gpu": bool(scaling.use_gpu),
            "datasets": {
                name: with_groups(name, described(dataset.plan()), dataset, group, most)
                for name, dataset in self.datasets.items()
            },
        }
        checked = _core.check_boosting_job(job)
        for line in checked["corrections"]:
            print(f"warning: {line}", flush=True)
        checkpoints = self.run_config.checkpoint_config
        at_end = checkpoints.checkpoint_at_end
        return {
            **given,
            "library": self._library,
            # The core has only lists; XGBoost's monotone_constraints must be a tuple.
            "params": {
                name: tuple(value) if isinstance(given["params"].get(name), tuple) else value
                for name, value in checked["params"].items()
            },
            "objective": next((value for value in given["params"].values() if callable(value)), None),
            "features": checked["features"],
            "categorical": checked["categorical"],
            "unrepeatable": checked["unrepeatable"],
            "train": "train",
            "datasets": list(self.datasets),
            "checkpoint_frequency": checkpoints.checkpoint_frequency,
            "checkpoint_at_end": True if at_end is None else at_end,
        }

    def _undivided(self, names: Any) -> DataConfig:
        """The configuration with these datasets complete on every worker."""
        config = self.dataset_config or DataConfig()
        divided = config.datasets_to_split
        known = list(self.datasets) if divided == "all" else list(divided)
        return config.replace(datasets_to_split=[name for name in known if name not in set(names)])

    def _spec(self, *arguments: Any) -> dict[str, Any]:
        spec = super()._spec(*arguments)
        if self._own_loop is not None:
            spec["owns_loop"] = True
        return spec


def keeps_rows(config: dict[str, Any]) -> bool:
    """Whether workers keep what they have made of their rows, for the next attempt: if a resumed run needs it, and of
    numbers in memory only."""
    files = config.get("external_memory") or config["params"].get("tree_method") == "approx"
    return bool(config["checkpoint_frequency"]) and not (files or config["group_column"] or config["categorical"])
