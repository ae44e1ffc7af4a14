"""Settings for datasets in this process, and in the workers of the trainers that it starts. Names as in Ray Data."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from trireme import _core


@dataclass
class ExecutionResources:
    """Limits for reading and preparing data; None: unlimited. Trireme uses cpu and object_store_memory."""

    cpu: float | None = None
    gpu: float | None = None
    object_store_memory: float | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0):
                raise _core.ConfigError(
                    f"ExecutionResources: {name} = {value!r}: expected a number, 0 or more, or None"
                )

    @classmethod
    def zero(cls) -> ExecutionResources:
        return cls(0, 0, 0, 0)

    @classmethod
    def for_limits(
        cls,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ) -> ExecutionResources:
        return cls(cpu, gpu, object_store_memory, memory)

    def copy(
        self,
        cpu: float | None = None,
        gpu: float | None = None,
        memory: float | None = None,
        object_store_memory: float | None = None,
    ) -> ExecutionResources:
        """With these changes."""
        given = {"cpu": cpu, "gpu": gpu, "memory": memory, "object_store_memory": object_store_memory}
        return replace(self, **{name: value for name, value in given.items() if value is not None})


@dataclass
class ExecutionOptions:
    """How trainers read datasets; see DataConfig for the settings of one trainer, which take precedence.

    resource_limits: for all workers of a trainer together. cpu: threads that read data. object_store_memory: bytes of
    data that is loaded ahead. The other fields are accepted for scripts that were written for Ray: Trireme always
    preserves the order, and every worker reads its own rows.
    """

    resource_limits: ExecutionResources = field(default_factory=ExecutionResources)
    exclude_resources: ExecutionResources = field(default_factory=ExecutionResources)
    locality_with_output: Any = False
    preserve_order: bool = True
    actor_locality_enabled: bool = True
    verbose_progress: bool = True
    label_selector: dict[str, str] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if value is None and name in ("resource_limits", "exclude_resources"):
            value = ExecutionResources()
        super().__setattr__(name, value)

    def is_resource_limits_default(self) -> bool:
        return self.resource_limits == ExecutionResources()

    def validate(self) -> None:
        for name in ("resource_limits", "exclude_resources"):
            value = getattr(self, name)
            if not isinstance(value, ExecutionResources):
                raise _core.ConfigError(f"ExecutionOptions: {name} = {value!r}: expected ExecutionResources(...)")
            value.__post_init__()


@dataclass
class RandomSeedConfig:
    """The seed of random_shuffle(seed=RandomSeedConfig(1)) and similar. A shuffle has a new order in every epoch."""

    seed: int | None = None
    reseed_after_execution: bool = True
    use_timestamp_as_default: bool = False


@dataclass
class DataContext:
    """enable_progress_bars: print a line if counting rows takes long. execution_options: limits for trainers.

    set_config() stores settings of your own. Functions of datasets and the training function find the driver's
    settings in get_current().
    """

    enable_progress_bars: bool = True
    execution_options: ExecutionOptions = field(default_factory=ExecutionOptions)
    _configs: dict[str, Any] = field(default_factory=dict)

    _current: ClassVar[DataContext | None] = None

    @classmethod
    def get_current(cls) -> DataContext:
        """The settings of this process; changes take effect immediately."""
        if DataContext._current is None:
            DataContext._current = cls()
        return DataContext._current

    @classmethod
    @contextlib.contextmanager
    def current(cls, context: DataContext) -> Iterator[DataContext]:
        """`with DataContext.current(context):` these settings apply in this process."""
        before, DataContext._current = DataContext._current, context
        try:
            yield context
        finally:
            DataContext._current = before

    @classmethod
    def _set_current(cls, context: DataContext) -> None:
        DataContext._current = context

    def get_config(self, key: str, default: Any = None) -> Any:
        return self._configs.get(key, default)

    def set_config(self, key: str, value: Any) -> None:
        """Stores a setting. It is sent to workers, so it must be possible to pickle it."""
        self._configs[key] = value

    def remove_config(self, key: str) -> None:
        self._configs.pop(key, None)

    def copy(self) -> DataContext:
        return copy.deepcopy(self)
