"""Adapters that Ray Train has and this version does not have yet: importing one says that, and what to do instead."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_PACKAGE = __name__.rpartition(".")[0]
_FRAMEWORKS = {
    "horovod": "Horovod",
    "huggingface": "Hugging Face Transformers",
    "jax": "JAX",
    "keras": "Keras",
    "lightgbm": "LightGBM",
    "lightning": "PyTorch Lightning",
    "tensorflow": "TensorFlow",
    "xgboost": "XGBoost",
}


class _Finder(MetaPathFinder):
    """Asked last, for what nobody else has found."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        package, _, module = name.rpartition(".")
        if package != _PACKAGE or module not in _FRAMEWORKS:
            return
        from trireme._core import version

        # Without a `name`: the import system hides an absent submodule behind "cannot import name" otherwise.
        raise ModuleNotFoundError(
            f"{name} does not exist in Trireme {version}: there is no adapter for {_FRAMEWORKS[module]} yet; run the "
            "framework inside trireme.DataParallelTrainer, or inside trireme.torch.TorchTrainer if it uses torch"
        )


def explain_missing_adapters() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
