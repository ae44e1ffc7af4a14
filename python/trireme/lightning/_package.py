"""Which Lightning the script uses: `lightning`, or the older name `pytorch_lightning`. Their classes are unrelated."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType

from trireme._extras import require_package
from trireme._preload import frameworks_of_main, needs_of

TESTED = ("2.5.", "2.6.")


@dataclass(frozen=True)
class Package:
    pytorch: str
    fabric: str

    def module(self, name: str = "") -> ModuleType:
        return importlib.import_module(f"{self.pytorch}.{name}" if name else self.pytorch)

    def fabric_module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{self.fabric}.{name}")


LIGHTNING = Package("lightning.pytorch", "lightning.fabric")
PYTORCH_LIGHTNING = Package("pytorch_lightning", "lightning_fabric")


def preload() -> list[str]:
    """What the warm process imports: the one that the script names, otherwise the one that is installed."""
    named = frameworks_of_main()
    if any(found.pytorch in named for found in (LIGHTNING, PYTORCH_LIGHTNING)):
        return named
    return [*needs_of("lightning" if find_spec("lightning") else "pytorch_lightning"), *named]


def package() -> Package:
    """The one that is imported; `lightning` if it is both or none."""
    for found in (LIGHTNING, PYTORCH_LIGHTNING):
        if found.pytorch in sys.modules:
            return checked(found)
    for found in (LIGHTNING, PYTORCH_LIGHTNING):
        if find_spec(found.pytorch.split(".")[0]) is not None:
            return checked(found)
    raise ModuleNotFoundError(
        'trireme.lightning needs PyTorch Lightning, which is not installed: pip install "trireme[lightning]"'
    )


def package_of(trainer: object) -> Package | None:
    """The package that the class of a trainer, or its base class, comes from."""
    modules = {base.__module__ for base in type(trainer).__mro__ if base.__name__ == "Trainer"}
    for found in (LIGHTNING, PYTORCH_LIGHTNING):
        if any(module.startswith(f"{found.pytorch}.") for module in modules):
            return found
    return None


def checked(found: Package) -> Package:
    require_package(found.pytorch.partition(".")[0], TESTED, adapter="lightning")
    return found
