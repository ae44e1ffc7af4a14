"""Import a boosting library without its estimators, in workers that run no code of the user.

scikit-learn and pandas, which only the estimators and data frames need, take most of the time of the import. The warm
process does not import the library for such workers: all workers, also those of the next `fit()`, are forked from it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# What both libraries import if it is installed.
_OPTIONAL = ("sklearn", "pandas", "dask", "matplotlib", "graphviz")
# What they need of other packages.
LEAN_PRELOAD = ("scipy.sparse", "narwhals", "trireme._boosting._kept", "trireme.data._trainer_datasets")


def import_lean(library: str) -> None:
    """Does nothing if it is imported already."""
    if library in sys.modules:
        return
    with _hidden(), contextlib.suppress(ImportError):
        import_module(library)
        return
    # This version needs one of them. The caller imports it with everything.
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{library}.")]:
        del sys.modules[name]


@contextlib.contextmanager
def _hidden() -> Iterator[None]:
    """Importing these packages raises ImportError, unless they are imported already."""
    absent = [name for name in _OPTIONAL if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in absent:
            if sys.modules[name] is None:
                del sys.modules[name]


def when_imported(library: str, action: Callable[[], None]) -> None:
    """Calls it when this process begins to import the library, or now if it has."""
    if library in sys.modules:
        action()
    elif not any(isinstance(finder, _Watch) and finder.library == library for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch(library, action))


class _Watch(MetaPathFinder):
    def __init__(self, library: str, action: Callable[[], None]) -> None:
        self.library = library
        self._action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == self.library:
            sys.meta_path.remove(self)
            self._action()
        return None
