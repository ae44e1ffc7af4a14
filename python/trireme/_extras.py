"""Packages that come with an extra: an error that names the extra, and one warning for an untested version."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec


@cache
def require_package(package: str, tested: tuple[str, ...]) -> None:
    """For `trireme.<package>`, whose extra has the same name. tested: beginnings of versions."""
    if find_spec(package) is None:
        raise ModuleNotFoundError(
            f'trireme.{package} needs the package {package}, which is not installed: pip install "trireme[{package}]"'
        )
    installed = version(package)
    if not installed.startswith(tested):
        warnings.warn(
            f"trireme.{package} was tested with {package} {', '.join(f'{each}*' for each in tested)}, and {installed} "
            "is installed",
            stacklevel=3,
        )
