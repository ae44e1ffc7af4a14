"""The configuration classes. Their fields, defaults, types and checks are defined in the core."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

from trireme import _core
from trireme._runtime_env import check_runtime_env

ConfigError = _core.ConfigError
_SCHEMA: dict[str, list[dict[str, Any]]] = _core.config_schema()


class _ConfigBase:
    """Fields are set by position or name and checked on construction and on assignment.

    Works with `dataclasses`: fields(), asdict(), replace() and @dataclass subclasses. Subclasses may define their own
    attributes and __init__; added attributes are neither checked nor recorded.
    """

    _removed: ClassVar[dict[str, str]] = {}  # Ray Train fields that Trireme lacks, and their replacements
    _table: ClassVar[str]  # name of the built-in configuration; a user's subclass has its own name
    _fields: ClassVar[dict[str, dict[str, Any]]]

    def __init_subclass__(cls) -> None:
        if _ConfigBase not in cls.__bases__:
            return  # a user's subclass
        fields = _SCHEMA[cls.__name__]
        cls._table = cls.__name__
        cls._fields = {field["name"]: field for field in fields}
        cls.__doc__ = f"{cls.__doc__}\n\n" + "\n".join(f"{f['name']}: {f['type']}\n    {f['doc']}" for f in fields)
        cls.__init__ = _init_of(fields)  # type: ignore[method-assign]
        like = dataclasses.make_dataclass(
            cls.__name__,
            [(name, Any, dataclasses.field(default_factory=partial(_default, cls, name))) for name in cls._fields],
        )
        cls.__dataclass_fields__, cls.__dataclass_params__ = like.__dataclass_fields__, like.__dataclass_params__  # type: ignore[attr-defined]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made.__dict__.update(cls._checked({}))  # defaults for an __init__ that does not call ours
        return made

    @classmethod
    def _checked(cls, given: dict[str, Any]) -> dict[str, Any]:
        """All fields with their final values; raises ConfigError if one is invalid."""
        for field in given:
            if field in cls._removed:
                raise ConfigError(f"{cls._table}({field}=...) is not supported by Trireme; {cls._removed[field]}")
        given = cls._prepare(given)
        python_only = {name for name, field in cls._fields.items() if field["python_only"]}
        plain = {name: _plain(value) for name, value in given.items() if name not in python_only}
        # None for a nested configuration (failure_config=None) means its default, as in Ray Train.
        plain = {name: value for name, value in plain.items() if value is not None or not cls._has_parts(name)}
        checked = _core.check_config(cls._table, plain)
        values = {name: checked.get(name, given.get(name)) for name in cls._fields}
        for name, value in values.items():
            if part := _CLASSES.get(cls._type(name)):
                held = given.get(name)
                values[name] = copy.copy(held) if isinstance(held, part) else part(**value)
        cls._finish(values)
        return values

    @classmethod
    def _type(cls, name: str) -> str:
        return str(cls._fields[name]["type"])

    @classmethod
    def _has_parts(cls, name: str) -> bool:
        return name in cls._fields and (cls._type(name) in _CLASSES or cls._type(name).startswith(("dict", "list")))

    @classmethod
    def _prepare(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Checks values that only Python can hold, before the core checks the rest."""
        return given

    @classmethod
    def _finish(cls, values: dict[str, Any]) -> None:
        """Converts checked values to Python types."""

    def _held(self) -> dict[str, Any]:
        """The fields, without attributes added by a subclass."""
        return {name: self.__dict__[name] for name in self._fields}

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields and _ConfigBase not in type(self).__bases__:
            object.__setattr__(self, name, value)
            return
        self.__dict__.update(self._checked(self._held() | {name: value}))

    def to_dict(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in self._fields}

    def replace(self, **changes: Any) -> Any:
        """Return a copy with some fields changed."""
        made = copy.copy(self)
        made.__dict__.update(self._checked(self._held() | changes))
        return made

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        standard = type(self)._checked({})
        shown = [
            f"{name}={value!r}"
            for name, value in self.__dict__.items()
            if name not in standard or value != standard[name]
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def _init_of(fields: list[dict[str, Any]]) -> Callable[..., None]:
    """An __init__ whose signature lists the fields, for help() and editors."""
    names = [field["name"] for field in fields]

    def __init__(self: _ConfigBase, *args: Any, **kwargs: Any) -> None:
        table = self._table
        if len(args) > len(names):
            raise ConfigError(
                f"{table} expects at most {len(names)} values, got {len(args)} (fields: {', '.join(names)})"
            )
        given = dict(zip(names, args, strict=False))
        for field in kwargs:
            if field in given:
                raise ConfigError(f"{table} got {field!r} twice: by position and by name")
        self.__dict__.update(self._checked(given | kwargs))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(f["name"], kind, default=f["default"], annotation=f["type"]) for f in fields]
    __init__.__signature__ = inspect.Signature([inspect.Parameter("self", kind), *parameters])  # type: ignore[attr-defined]
    return __init__


def _default(cls: type[_ConfigBase], name: str) -> Any:
    return cls._checked({})[name]


def _plain(value: Any) -> Any:
    """Converts to a type that the core accepts: configurations to dicts, paths to text."""
    if isinstance(value, _ConfigBase):
        return value.to_dict()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


class ScalingConfig(_ConfigBase):
    """The number of workers and their resources."""

    _removed: ClassVar[dict[str, str]] = {
        "use_tpu": "TPUs are not supported; use_gpu=True gives every worker a GPU",
        "topology": "TPU slices are not supported",
    }

    @classmethod
    def _finish(cls, values: dict[str, Any]) -> None:
        if isinstance(values["num_workers"], list):
            values["num_workers"] = tuple(values["num_workers"])

    @property
    def elasticity_enabled(self) -> bool:
        return isinstance(self.num_workers, tuple)

    @property
    def min_workers(self) -> int:
        return self.num_workers[0] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def max_workers(self) -> int:
        return self.num_workers[1] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def _bundle(self) -> dict[str, float]:
        given = self.resources_per_worker
        bundle = {"CPU": 1.0} if given is None else {name: amount for name, amount in given.items() if amount}
        if self.use_gpu:
            bundle.setdefault("GPU", 1.0)
        return bundle

    @property
    def num_cpus_per_worker(self) -> float:
        return self._bundle.get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        return self._bundle.get("GPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        return {name: amount for name, amount in self._bundle.items() if name not in ("CPU", "GPU")}

    @property
    def total_resources(self) -> dict[str, float]:
        """The resources of all workers, at the maximum size of an elastic run, without trainer_resources."""
        return {name: amount * self.max_workers for name, amount in self._bundle.items()}


class FailureConfig(_ConfigBase):
    """How a run handles failures and preemptions."""

    _removed: ClassVar[dict[str, str]] = {
        "fail_fast": "use max_failures=0, the default, which ends the run at the first failure"
    }


class CheckpointConfig(_ConfigBase):
    """Which checkpoints to keep."""


class LoggingConfig(_ConfigBase):
    """What a run logs and shows."""

    @classmethod
    def _prepare(cls, given: dict[str, Any]) -> dict[str, Any]:
        level = given.get("log_level")
        return given | {"log_level": level.upper()} if isinstance(level, str) else given


class DataConfig(_ConfigBase):
    """How datasets are divided among the workers."""


class RunConfig(_ConfigBase):
    """The name, storage and other settings of a run."""

    _removed: ClassVar[dict[str, str]] = {
        "sync_config": "report() stores checkpoints itself",
        "verbose": "use logging_config=LoggingConfig(log_level=...)",
        "stop": "return from the training function instead",
        "progress_reporter": "use callbacks=[...] with a UserCallback",
        "log_to_file": "every worker's output is always stored in the logs folder of the run",
        "local_dir": "use storage_path",
    }

    @classmethod
    def _prepare(cls, given: dict[str, Any]) -> dict[str, Any]:
        from trireme.callbacks import UserCallback

        callbacks = given.get("callbacks") or []
        if not isinstance(callbacks, (list, tuple)):
            raise ConfigError(f"RunConfig.callbacks: expected a list of UserCallback objects, got {callbacks!r}")
        for index, callback in enumerate(callbacks):
            if not isinstance(callback, UserCallback):
                got = f"the class {callback.__name__}" if isinstance(callback, type) else type(callback).__name__
                raise ConfigError(f"RunConfig.callbacks[{index}] must be a UserCallback object, got {got}")
        prepared = given | {"callbacks": list(callbacks)}
        if isinstance(given.get("worker_runtime_env"), dict):
            prepared["worker_runtime_env"] = check_runtime_env(given["worker_runtime_env"])
        return prepared


_CLASSES: dict[str, type[_ConfigBase]] = {
    cls.__name__: cls for cls in (ScalingConfig, FailureConfig, CheckpointConfig, LoggingConfig, DataConfig, RunConfig)
}
