"""What workers start with beside the driver's own environment, folder and sys.path."""

from __future__ import annotations

import os
import types
from dataclasses import dataclass
from typing import Any

from trireme import _core
from trireme._ship import absolute_sys_path

_KEYS = ("env_vars", "working_dir", "py_modules")


@dataclass(frozen=True)
class WorkerStart:
    env: dict[str, str]
    cwd: str
    sys_path: list[str]


def check_runtime_env(asked: dict[str, Any]) -> dict[str, Any]:
    """The same with absolute paths; ConfigError where something is wrong or missing."""
    checked: dict[str, Any] = {}
    for key, value in asked.items():
        if key not in _KEYS:
            raise _core.ConfigError(
                f"RunConfig.worker_runtime_env has no key {key!r} (keys: {', '.join(_KEYS)}); workers run in the "
                "driver's own Python environment, so install packages there"
            )
        if value is None:
            continue
        if key == "env_vars":
            checked[key] = _variables(value)
        elif key == "working_dir":
            checked[key] = _existing(key, value, os.path.isdir)
        elif not isinstance(value, (list, tuple)):
            raise _core.ConfigError(f"RunConfig.worker_runtime_env['{key}']: expected a list of paths, got {value!r}")
        else:
            checked[key] = [_existing(key, module, os.path.exists) for module in value]
    return checked


def worker_start(asked: dict[str, Any]) -> WorkerStart:
    """The driver's environment, folder and sys.path, with what was asked for laid over."""
    env = {**os.environ, **asked.get("env_vars", {})}
    front = [asked["working_dir"]] if "working_dir" in asked else []
    # A folder is a package and a file is a module: `import its_name` works with the folder around it.
    front += [os.path.dirname(module) for module in asked.get("py_modules", [])]
    return WorkerStart(
        env={name: text for name, text in env.items() if _is_text(name + text)},
        cwd=asked.get("working_dir", os.getcwd()),
        sys_path=list(dict.fromkeys([*front, *absolute_sys_path()])),
    )


def for_the_record(asked: dict[str, Any]) -> dict[str, Any]:
    """The run folder tells what was asked for; values of variables may be secrets."""
    return {key: sorted(value) if key == "env_vars" else value for key, value in asked.items()}


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for item in value.items() for text in item):
        raise _core.ConfigError(f"RunConfig.worker_runtime_env['env_vars']: expected dict[str, str], got {value!r}")
    return dict(value)


def _existing(key: str, value: Any, exists: Any) -> str:
    if isinstance(value, types.ModuleType):
        value = value.__path__[0] if hasattr(value, "__path__") else value.__file__
    if not isinstance(value, (str, os.PathLike)):
        raise _core.ConfigError(f"RunConfig.worker_runtime_env['{key}']: expected a path, got {value!r}")
    path = os.path.abspath(os.path.expanduser(os.fspath(value)))
    if not exists(path):
        raise _core.ConfigError(f"RunConfig.worker_runtime_env['{key}']: {path} does not exist on this machine")
    return path


def _is_text(text: str) -> bool:
    """Bytes that are not UTF-8 reach os.environ as surrogates, which no JSON can carry."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
