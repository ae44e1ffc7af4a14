"""The trainers of both libraries: a training function of the user, or the trainer's own loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from trireme import _core
from trireme._checkpoint import Checkpoint
from trireme._config import DataConfig, RunConfig, ScalingConfig
from trireme._result import Result
from trireme._trainer import DataParallelTrainer
from trireme.backend import BackendConfig

_OWN_LOOP = ("params", "label_column", "num_boost_round", "weight_column", "group_column", "train_kwargs")


class BoostingTrainer(DataParallelTrainer):
    """The base of XGBoostTrainer and LightGBMTrainer."""

    _library: ClassVar[str] = ""
    # Arguments of the library's train() that the trainer passes itself, and what to use instead.
    _refused: ClassVar[Mapping[str, str]] = {}
    _accepted: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any] | None,
        *,
        train_loop_config: dict[str, Any] | None,
        backend_config: BackendConfig,
        scaling_config: ScalingConfig | None,
        run_config: RunConfig | None,
        datasets: dict[str, Any] | None,
        dataset_config: DataConfig | None,
        resume_from_checkpoint: Checkpoint | None,
        metadata: dict[str, Any] | None,
        validation_config: Any,
        own_loop: dict[str, Any],
    ) -> None:
        given = {name: value for name, value in own_loop.items() if value}
        self._own_loop: dict[str, Any] | None = None
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
            if train_loop_config is not None:
                raise TypeError("train_loop_config is for a training function; pass params={...} instead")
            self._own_loop = self._checked_arguments(own_loop)
            function = self._loop()
        super().__init__(
            function,
            train_loop_config=train_loop_config,
            backend_config=backend_config,
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
            validation_config=validation_config,
        )

    def fit(self) -> Result:
        if self._own_loop is not None:
            self.train_loop_config = self._loop_config(self._own_loop)
        return super().fit()

    @staticmethod
    def _loop() -> Callable[..., Any]:
        raise NotImplementedError

    def _checked_arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        params = given["params"]
        if params is not None and not isinstance(params, dict):
            raise TypeError(f"params must be a dict, got {type(params).__name__}: {params!r}")
        for name in ("label_column", "weight_column", "group_column"):
            if given[name] is not None and not isinstance(given[name], str):
                raise TypeError(f"{name} must be the name of a column, got {given[name]!r}")
        for name in given["train_kwargs"]:
            if name in self._refused:
                raise _core.ConfigError(f"{name}: {self._refused[name]}")
            if name not in self._accepted:
                raise TypeError(
                    f"{type(self).__name__}() got an unexpected argument {name!r}; those of {self._library}.train() "
                    f"that it accepts are {', '.join(self._accepted)}"
                )
        rounds = 10 if given["num_boost_round"] is None else given["num_boost_round"]
        return {**given, "params": params or {}, "num_boost_round": rounds}

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
        functions = {name: value for name, value in given["params"].items() if callable(value)}
        job = {
            "library": self._library,
            "params": {name: value for name, value in given["params"].items() if name not in functions},
            "num_boost_round": given["num_boost_round"],
            "label_column": given["label_column"] or "",
            "weight_column": given["weight_column"] or "",
            "group_column": given["group_column"] or "",
            "min_workers": max(scaling.min_workers, 1),
            "max_workers": max(scaling.max_workers, 1),
            "cpus_per_worker": float((scaling.resources_per_worker or {}).get("CPU", 1)),
            "use_gpu": bool(scaling.use_gpu),
            "datasets": {name: _described(dataset) for name, dataset in self.datasets.items()},
        }
        checked = _core.check_boosting_job(job)
        for line in checked["corrections"]:
            print(f"warning: {line}", flush=True)
        checkpoints = self.run_config.checkpoint_config
        at_end = checkpoints.checkpoint_at_end
        return {
            **given,
            "params": {**checked["params"], **functions},
            "features": checked["features"],
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


def _described(dataset: Any) -> dict[str, Any]:
    planned = dataset.plan()
    return {"rows": planned.rows, "columns": {field.name: _kind(field.type) for field in planned.schema}}


def _kind(kind: Any) -> str:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return "category"
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    ):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    return str(kind)
