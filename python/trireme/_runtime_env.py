"""The environment, working directory and sys.path of workers."""

from __future__ import annotations

import os
import sys
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
    code: list[str]  # for nodes that do not see them


def check_runtime_env(asked: dict[str, Any], name: str = "RunConfig.worker_runtime_env") -> dict[str, Any]:
    """Returns it with absolute paths; raises ConfigError, with this name, if something is invalid or missing."""
    checked: dict[str, Any] = {}
    for key, value in asked.items():
        if key not in _KEYS:
            raise _core.ConfigError(
                f"{name} has no key {key!r} (keys: {', '.join(_KEYS)}); workers run in the "
                "driver's Python environment; install packages there"
            )
        if value is None:
            continue
        if key == "env_vars":
            checked[key] = _variables(name, value)
        elif key == "working_dir":
            checked[key] = _existing(f"{name}['{key}']", value, os.path.isdir)
        elif not isinstance(value, (list, tuple)):
            raise _core.ConfigError(f"{name}['{key}']: expected a list of paths, got {value!r}")
        else:
            checked[key] = [_existing(f"{name}['{key}']", module, os.path.exists) for module in value]
    return checked


def worker_start(asked: dict[str, Any]) -> WorkerStart:
    """The driver's environment, working directory and sys.path, overridden by the runtime environment."""
    env = {**os.environ, **asked.get("env_vars", {})}
    front = [asked["working_dir"]] if "working_dir" in asked else []
    # A folder is a package and a file is a module: `import name` needs its parent folder on sys.path.
    front += [os.path.dirname(module) for module in asked.get("py_modules", [])]
    code = [asked["working_dir"]] if "working_dir" in asked else []
    return WorkerStart(
        env={name: text for name, text in env.items() if _is_text(name + text)},
        cwd=asked.get("working_dir", os.getcwd()),
        sys_path=list(dict.fromkeys([*front, *absolute_sys_path()])),
        code=[*code, *asked.get("py_modules", [])],
    )


def script_folder() -> str:
    """The folder of the user's script, which comes first on sys.path; empty if there is none, as in a notebook."""
    if not sys.path or not sys.path[0]:
        return ""
    folder = os.path.abspath(sys.path[0])
    installed = any(os.path.commonpath([folder, prefix]) == prefix for prefix in (sys.prefix, sys.base_prefix))
    return "" if installed or not os.path.isdir(folder) else folder


def for_the_record(asked: dict[str, Any]) -> dict[str, Any]:
    """The version that is stored in the run folder, without values of variables, which may be secrets."""
    return {key: sorted(value) if key == "env_vars" else value for key, value in asked.items()}


def _variables(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for item in value.items() for text in item):
        raise _core.ConfigError(f"{name}['env_vars']: expected dict[str, str], got {value!r}")
    return dict(value)


def _existing(where: str, value: Any, exists: Any) -> str:
    if isinstance(value, types.ModuleType):
        value = value.__path__[0] if hasattr(value, "__path__") else value.__file__
    if not isinstance(value, (str, os.PathLike)):
        raise _core.ConfigError(f"{where}: expected a path, got {value!r}")
    path = os.path.abspath(os.path.expanduser(os.fspath(value)))
    if not exists(path):
        raise _core.ConfigError(f"{where}: {path} does not exist on this machine")
    return path


def _is_text(text: str) -> bool:
    """Bytes that are not UTF-8 are surrogates in os.environ, which JSON cannot encode."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
