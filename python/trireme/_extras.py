"""Optional packages: an error that names the extra, and one warning for an untested version."""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

# The adapters that this process, or the driver of this worker, has warned of.
_WARNED = "TRIREME_WARNED_VERSIONS"


def imported(module: str, message: str) -> Any:
    """The module, or ImportError with the message."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(message) from error


def import_extra(what: str, module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f'{what} needs {package}: pip install "trireme[{extra}]" ({error})') from error


@cache
def require_package(package: str, tested: tuple[str, ...], adapter: str = "") -> None:
    """For `trireme.<adapter>`, by default of the same name as the package, whose extra has its name. tested: beginnings
    of versions.
    """
    adapter = adapter or package
    if find_spec(package) is None:
        raise ModuleNotFoundError(
            f'trireme.{adapter} needs the package {package}, which is not installed: pip install "trireme[{adapter}]"'
        )
    installed = _version_of(package)
    warned = os.environ.get(_WARNED, "").split()
    if not installed.startswith(tested) and adapter not in warned:
        os.environ[_WARNED] = " ".join([*warned, adapter])
        warnings.warn(
            f"trireme.{adapter} was tested with {package} {', '.join(f'{each}*' for each in tested)}, and {installed} "
            "is installed",
            stacklevel=3,
        )


def _version_of(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow

    try:
        return version(package)
    except PackageNotFoundError:  # its distribution has another name, such as tensorflow-cpu
        return str(import_module(package).__version__)
