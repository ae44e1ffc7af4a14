"""The runtime_env of ray.init(), RunConfig and ray.remote: workers run in the driver's Python environment."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from trireme.compat.ray._refusal import refusal, warn_once

_WITHOUT_EFFECT = ("config", "excludes", "nsight", "eager_install")
_for_all: dict[str, Any] = {}  # of ray.init(), without the variables, which the driver has set


class RuntimeEnv(dict[str, Any]):
    """A runtime_env by keywords."""


def set_for_all(given: dict[str, Any]) -> None:
    _for_all.clear()
    _for_all.update(given)


def merged(given: dict[str, Any]) -> dict[str, Any]:
    """With what ray.init() has set for the script."""
    return {**_for_all, **given}


def plain(asked: Any) -> dict[str, Any]:
    """The variables, folder and modules; refuses what would need another environment."""
    given = {name: value for name, value in dict(asked or {}).items() if name not in _WITHOUT_EFFECT}
    for name in ("pip", "uv"):
        if packages := given.pop(name, None):
            _check_installed(name, packages)
    for name in ("conda", "container", "image_uri", "java_jars", "py_executable"):
        if given.pop(name, None):
            raise refusal(
                f"runtime_env[{name!r}]",
                "workers run in the driver's Python environment; start the script in the other",
            )
    return given


def _check_installed(kind: str, asked: Any) -> None:
    packages = asked.get("packages", []) if isinstance(asked, dict) else asked
    if isinstance(packages, str):  # a file of requirements
        packages = Path(packages).read_text(encoding="utf-8").splitlines()
    missing = [package for package in packages if not _installed(package)]
    if missing:
        raise refusal(
            f"runtime_env[{kind!r}] with packages that are not installed ({', '.join(missing)})",
            "workers run in the driver's Python environment; install the packages there",
        )
    warn_once(f"runtime_env[{kind!r}] installs nothing: workers use the packages of the driver's Python environment")


def _installed(requirement: str) -> bool:
    name = re.match(r"\s*([A-Za-z0-9][\w.-]*)", requirement)
    if name is None:  # an empty line, a comment or an option of pip
        return True
    try:
        version(name[1])
    except PackageNotFoundError:
        return False
    return True
