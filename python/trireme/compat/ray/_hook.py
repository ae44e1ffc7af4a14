"""The import hook: `ray` and its submodules are made from the tables of this package."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trireme.compat.ray import _usage, _version
from trireme.compat.ray._banner import banner
from trireme.compat.ray._members import refuse_dataset_members
from trireme.compat.ray._names import Name
from trireme.compat.ray._refusal import NotInTrireme, refusal, unknown
from trireme.compat.ray._table import MODULES

# Set in the driver; its workers and their helper processes install the hook if it is set.
VARIABLE = "TRIREME_RAY_COMPAT"
_STAND_IN = "__trireme__"  # marks our modules in sys.modules


def install() -> None:
    """From now on, in this process and in the workers that it starts, `import ray` gives Trireme's modules."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    real = sys.modules.get("ray")
    if real is not None:
        raise ImportError(
            f"real Ray ({getattr(real, '__file__', 'ray')}) is already imported, so Trireme cannot replace it: objects "
            "of both would mix. Write `import trireme.compat.ray` before the first `import ray`, also those of other "
            "modules, or start the script with `trireme run --ray-compat script.py`"
        )
    from trireme.compat.ray._checkpoint import extend_checkpoint

    sys.meta_path.insert(0, _Finder())
    extend_checkpoint()
    if not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = "1"
        _Loader.in_driver = True


class _Finder(MetaPathFinder):
    """Before all others: an installed Ray must not be found."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "ray" and not name.startswith("ray."):
            return None
        entry = _find(name)
        if entry is None:
            # Also for `from ray.train import Name`, which looks for a module if there is no such name.
            raise NotInTrireme(_unknown(name), name=name)
        return ModuleSpec(name, _Loader(), is_package=True)


class _Loader(Loader):
    in_driver = False  # whose first import of Ray is announced

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _RayModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        entry = MODULES[module.__name__]
        if module.__name__ == "ray" and self.in_driver:
            print(banner(), flush=True)
        if entry.v1:
            _version.note_v1(module.__name__)
        if module.__name__ == "ray.data":
            refuse_dataset_members()
        module.__dict__[_STAND_IN] = True
        module.__dict__["__all__"] = [name for name, each in entry.names.items() if each.how != "refused"]
        module.__doc__ = f"Trireme's replacement of {module.__name__}; see docs/ray_compat.md."


class _RayModule(ModuleType):
    """Looks a name up in the table on first use, because some replacements import a framework."""

    def __getattr__(self, name: str) -> Any:
        value = _lookup(self.__name__, name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *MODULES[self.__name__].names, *_children(self.__name__)})


def _find(name: str) -> object | None:
    """The module's entry; raises for a refused module or one inside it."""
    parts = name.split(".")
    for end in range(2, len(parts) + 1):
        entry = MODULES.get(".".join(parts[:end]))
        if entry is not None and entry.refused:
            refused = ".".join(parts[:end])
            _usage.note(refused, Name("refused", note=entry.advice))
            raise refusal(f"the module {refused}", entry.advice)
    return MODULES.get(name)


def _lookup(module: str, name: str) -> Any:
    full_name = f"{module}.{name}"
    entry = MODULES[module].names.get(name)
    if entry is None:
        if full_name in MODULES and not name.startswith("__"):
            return import_module(full_name)
        # An AttributeError: pickle and inspect try names in all modules. `from ray import name` asks the finder next,
        # which raises an error with the same text.
        raise AttributeError(_unknown(full_name))
    _usage.note(full_name, entry)
    if entry.how == "refused":
        raise refusal(full_name, entry.note)
    if entry.v1:
        _version.note_v1(full_name)
    target, _, attribute = entry.target.partition(":")
    try:
        found = import_module(target)
        return getattr(found, attribute) if attribute else found
    except ModuleNotFoundError as error:
        if error.name is None and target.startswith("trireme."):
            raise refusal(full_name, str(error)) from error
        raise ModuleNotFoundError(
            f"{full_name} is served by {entry.target.replace(':', '.')}, which cannot be imported: {error}",
            name=error.name,
        ) from error


def _unknown(full_name: str) -> str:
    module, _, name = full_name.rpartition(".")
    if module not in MODULES:
        return unknown(full_name, MODULES, full_name)
    return unknown(full_name, [*MODULES[module].names, *_children(module)], name)


def _children(module: str) -> list[str]:
    return [name[len(module) + 1 :] for name in MODULES if name.rpartition(".")[0] == module]
