"""Names of a package that are imported on first use, because the framework behind them takes seconds to import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def late_names(
    package: str, names: Mapping[str, str], requires: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    names: the module of each name, or "module:attribute" where the attribute has another name. requires: packages whose
    absence is reported with the extra of `package`.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = names[name].partition(":")
        try:
            return getattr(import_module(f"{package}.{module}"), attribute or name)
        except ModuleNotFoundError as error:
            if error.name not in requires:
                raise
            extra = package.rpartition(".")[2]
            raise ModuleNotFoundError(
                f'{package} needs {error.name}, which is not installed: pip install "trireme[{extra}]"'
            ) from error

    def names_and_globals() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return get, names_and_globals
