"""Ray Train adapters that Trireme does not have yet: importing one raises an error that names an alternative."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_PACKAGE = __name__.rpartition(".")[0]
_FRAMEWORKS = {
    "horovod": "Horovod",
    "jax": "JAX",
    "keras": "Keras",
    "tensorflow": "TensorFlow",
}


class _Finder(MetaPathFinder):
    """The last finder: sees only modules that no other finder has found."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        package, _, module = name.rpartition(".")
        if package != _PACKAGE or module not in _FRAMEWORKS:
            return
        from trireme._core import version

        # Without `name`: otherwise the import system replaces the message with "cannot import name".
        raise ModuleNotFoundError(
            f"{name} does not exist: Trireme {version} has no adapter for {_FRAMEWORKS[module]}; run the framework in "
            "trireme.DataParallelTrainer, or in trireme.torch.TorchTrainer if it uses torch"
        )


def explain_missing_adapters() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
