"""Ray's configuration classes: Trireme's, with the fields that only Ray has."""

from __future__ import annotations

import datetime
import os
import posixpath
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import trireme
from trireme._storage import resolve
from trireme.callbacks import UserCallback
from trireme.compat.ray import _runtime_env
from trireme.compat.ray._refusal import refusal, warn_once
from trireme.compat.ray._storage import StorageContext
from trireme.compat.ray._version import is_v1, note_v1


class ScalingConfig(trireme.ScalingConfig):
    def __init__(
        self,
        trainer_resources: dict[str, float] | None = None,
        num_workers: int | tuple[int, int] = 1,
        use_gpu: bool = False,
        resources_per_worker: dict[str, float] | None = None,
        placement_strategy: str = "PACK",
        accelerator_type: str | None = None,
        label_selector: Any = None,
        use_tpu: bool = False,
        topology: str | None = None,
        elastic_resize_monitor_interval_s: float = 60.0,
    ) -> None:
        if trainer_resources is not None:
            note_v1("ScalingConfig(trainer_resources=...)")
        if use_tpu or topology:
            raise refusal("ScalingConfig(use_tpu=..., topology=...)", "TPUs are not supported; use_gpu=True uses GPUs")
        if isinstance(label_selector, list):
            if any(selector != label_selector[0] for selector in label_selector):
                raise refusal("ScalingConfig(label_selector=[...])", "use one dict, which applies to all workers")
            label_selector = label_selector[0] if label_selector else None
        if use_gpu and resources_per_worker is not None and not resources_per_worker.get("GPU", 1):
            resources_per_worker = {**resources_per_worker, "GPU": 1}  # as in Ray
        super().__init__(
            trainer_resources=trainer_resources,
            num_workers=num_workers,
            use_gpu=use_gpu,
            resources_per_worker=resources_per_worker,
            placement_strategy=placement_strategy,
            accelerator_type=accelerator_type,
            label_selector=label_selector,
            elastic_resize_monitor_interval_s=elastic_resize_monitor_interval_s,
        )

    use_tpu = False
    topology = None
    num_tpus_per_worker = 0

    @property
    def _bundle(self) -> dict[str, float]:
        """Ray Train reserves no CPU for a worker with a GPU."""
        if self.resources_per_worker is None and self.use_gpu:
            return {"GPU": 1}
        bundle: dict[str, float] = super()._bundle  # type: ignore[misc]
        return bundle

    @property
    def _resources_per_worker_not_none(self) -> dict[str, float]:
        return dict(self._bundle)

    @property
    def _trainer_resources_not_none(self) -> dict[str, float]:
        """The first version's coordinator takes a CPU, the second one's takes none."""
        if self.trainer_resources is not None:
            return {name: amount for name, amount in self.trainer_resources.items() if amount}
        return {"CPU": 1} if is_v1() else {}

    def as_placement_group_factory(self) -> Any:
        from trireme.compat.ray._placement import PlacementGroupFactory

        workers = [dict(self._bundle) for _ in range(self.max_workers)]
        first = self._trainer_resources_not_none
        bundles = [first, *workers] if first else workers
        return PlacementGroupFactory(bundles, strategy=self.placement_strategy)

    def resolved(self) -> ScalingConfig:
        """With the resources of this version of Ray Train written out, for the core."""
        resolved: ScalingConfig = self.replace(
            trainer_resources=self._trainer_resources_not_none, resources_per_worker=dict(self._bundle)
        )
        return resolved


class FailureConfig(trireme.FailureConfig):
    """A run is restarted as often as max_failures allows, even if the same error comes back, as in Ray."""

    _of_tune = False  # for a Tuner, which both versions have

    def __init__(
        self,
        max_failures: int = 0,
        fail_fast: Any = None,
        controller_failure_limit: int = -1,
        max_preemption_failures: int = -1,
        relax_collectives_on_preemption: bool = False,
        preemption_grace_s: float | None = None,
        **ours: Any,
    ) -> None:
        if fail_fast is not None:
            if not self._of_tune:
                note_v1("FailureConfig(fail_fast=...)")
            if fail_fast and max_failures:
                raise ValueError("fail_fast cannot be combined with max_failures: set one of them")
            if isinstance(fail_fast, str) and fail_fast.lower() != "raise":
                raise ValueError(f"fail_fast={fail_fast!r}: expected a bool or 'raise'")
        if relax_collectives_on_preemption:
            warn_once("FailureConfig(relax_collectives_on_preemption=True) has no effect: collectives keep all ranks")
        ours.setdefault("repeated_error_limit", 0)
        if preemption_grace_s:
            ours["preemption_grace_s"] = preemption_grace_s
        super().__init__(
            max_failures=max_failures,
            controller_failure_limit=controller_failure_limit,
            max_preemption_failures=max_preemption_failures,
            **ours,
        )
        self.fail_fast = fail_fast  # of the trials of a Tuner


class CheckpointConfig(trireme.CheckpointConfig):
    def __init__(
        self,
        num_to_keep: int | None = None,
        checkpoint_score_attribute: str | None = None,
        checkpoint_score_order: str = "max",
        checkpoint_frequency: int | None = None,
        checkpoint_at_end: bool | None = None,
        **ours: Any,
    ) -> None:
        if checkpoint_frequency is not None or checkpoint_at_end is not None:
            note_v1("CheckpointConfig(checkpoint_frequency=..., checkpoint_at_end=...)")
        super().__init__(
            num_to_keep=num_to_keep,
            checkpoint_score_attribute=checkpoint_score_attribute,
            checkpoint_score_order=checkpoint_score_order,
            checkpoint_frequency=checkpoint_frequency or 0,
            checkpoint_at_end=checkpoint_at_end,
            **ours,
        )


class SyncConfig:
    """Accepted for scripts of the first version: report() stores checkpoints itself."""

    def __init__(
        self,
        sync_period: int = 300,
        sync_timeout: int = 1800,
        sync_artifacts: bool = False,
        sync_artifacts_on_checkpoint: bool = True,
        **older: Any,
    ) -> None:
        note_v1("SyncConfig")
        if sync_artifacts:
            warn_once("SyncConfig(sync_artifacts=True) has no effect: store files in a checkpoint")
        self.sync_period = sync_period
        self.sync_timeout = sync_timeout
        self.sync_artifacts = sync_artifacts
        self.sync_artifacts_on_checkpoint = sync_artifacts_on_checkpoint


class RunConfig(trireme.RunConfig):
    _of_tune = False  # for a Tuner, which both versions have

    def __init__(
        self,
        name: str | None = None,
        storage_path: str | os.PathLike[str] | None = None,
        storage_filesystem: Any = None,
        failure_config: trireme.FailureConfig | None = None,
        checkpoint_config: trireme.CheckpointConfig | None = None,
        sync_config: Any = None,
        verbose: Any = None,
        stop: Any = None,
        callbacks: list[Any] | None = None,
        progress_reporter: Any = None,
        log_to_file: Any = False,
        worker_runtime_env: Any = None,
        logging_config: trireme.LoggingConfig | None = None,
        local_dir: str | None = None,
        **ours: Any,
    ) -> None:
        self._note_older(
            sync_config=sync_config,
            verbose=verbose,
            stop=stop,
            progress_reporter=progress_reporter,
            local_dir=local_dir,
            log_to_file=log_to_file or None,
            callbacks=next((each for each in callbacks or () if hasattr(each, "on_trial_result")), None),
        )
        if log_to_file:
            warn_once("RunConfig(log_to_file=...) has no effect: the logs folder of the run has every worker's output")
        if progress_reporter is not None:
            warn_once("RunConfig(progress_reporter=...) has no effect: the run has its own progress line")
        if sync_config is not None:
            warn_once("RunConfig(sync_config=...) has no effect: report() stores checkpoints itself")
        stopper = _Stop(stop) if stop is not None else None
        if storage_path is None:
            storage_path = local_dir or os.environ.get("RAY_STORAGE") or None
        if storage_path is None and storage_filesystem is None:
            storage_path = os.environ.get("TRIREME_RESULTS") or os.path.expanduser("~/ray_results")
        super().__init__(
            name=name,
            storage_path=storage_path,
            storage_filesystem=storage_filesystem,
            failure_config=failure_config or FailureConfig(),
            checkpoint_config=checkpoint_config or CheckpointConfig(),
            callbacks=[*(callbacks or []), *_callbacks_of_environment()],
            worker_runtime_env=_runtime_env.plain(worker_runtime_env),
            logging_config=logging_config,
            **ours,
        )
        self.verbose = verbose
        self.stop = stop
        self.sync_config = sync_config
        self.progress_reporter = progress_reporter
        self.log_to_file = log_to_file
        self._stopper = stopper
        if self.name is None and not is_v1() and not self._of_tune:
            self.name = f"ray_train_run-{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"

    @classmethod
    def _note_older(cls, **given: Any) -> None:
        for name, value in given.items():
            if value is not None and not cls._of_tune:
                note_v1(f"RunConfig({name}=...)")

    @property
    def storage_context(self) -> StorageContext:
        return StorageContext(self.storage_path or "", self.name or "", self.storage_filesystem)


class TuneFailureConfig(FailureConfig):
    """ray.tune.FailureConfig"""

    _of_tune = True


class TuneRunConfig(RunConfig):
    """ray.tune.RunConfig"""

    _of_tune = True


class _Stop:
    """RunConfig(stop=...): after which report of rank 0 the run is complete."""

    def __init__(self, asked: Any) -> None:
        self._asked = asked
        if not isinstance(asked, Mapping) and not callable(asked):
            raise TypeError(f"RunConfig(stop={asked!r}): expected a dict of metrics, a function or a Stopper")

    def reached(self, trial: str, metrics: dict[str, Any]) -> bool:
        if isinstance(self._asked, Mapping):
            return any(name in metrics and metrics[name] >= bound for name, bound in self._asked.items())
        decide: Callable[[str, dict[str, Any]], Any] = self._asked
        stop_all = getattr(self._asked, "stop_all", None)
        return bool(decide(trial, metrics)) or bool(stop_all and stop_all())


def _callbacks_of_environment() -> list[UserCallback]:
    """RAY_TRAIN_CALLBACKS="package.module.Class,..." """
    made: list[UserCallback] = []
    for name in os.environ.get("RAY_TRAIN_CALLBACKS", "").split(","):
        if not name:
            continue
        module, _, attribute = name.strip().rpartition(".")
        try:
            callback = getattr(import_module(module), attribute)()
        except Exception as error:
            raise ValueError(f"Failed to import callback from '{name}': {error}") from error
        if not isinstance(callback, UserCallback):
            raise ValueError(f"Failed to import callback from '{name}': it is not a callback of Ray Train")
        made.append(callback)
    return made


def first_version_folder(config: Any, trainer: str, trial: str) -> Any:
    """The first version stores a run in a folder of its trial, inside the folder of the experiment."""
    where = resolve(config.storage_path or "", config.storage_filesystem, "RunConfig.storage_path")
    name = config.name or f"{trainer}_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"
    # A path inside a filesystem is resolved again by the run.
    inside = posixpath.join(str(where) if config.storage_filesystem is None else config.storage_path, name)
    return config.replace(name=trial, storage_path=inside)
