"""Which Keras the script uses: Keras 3, or the legacy package tf_keras. Their classes are unrelated."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from trireme._extras import require_package

_TESTED = {"keras": ("3.15.",), "tf_keras": ("2.21.",)}
_LEGACY = "TF_USE_LEGACY_KERAS"


def package() -> ModuleType:
    """tf_keras if TensorFlow is told to use it, or if the script has imported it and not Keras 3."""
    only_legacy = "tf_keras" in sys.modules and "keras" not in sys.modules
    return checked("tf_keras" if only_legacy or os.environ.get(_LEGACY) in ("1", "true", "True") else "keras")


@cache
def checked(name: str) -> ModuleType:
    if name == "tf_keras" and find_spec(name) is None:
        raise ModuleNotFoundError(
            f"trireme.keras needs tf_keras, which {_LEGACY} asks for and which is not installed: pip install --no-deps "
            "tf_keras"
        )
    require_package(name, tested=_TESTED[name], adapter="keras")
    return import_module(name)


def backend() -> str:
    """tensorflow, torch or jax."""
    found = package()
    return "tensorflow" if found.__name__ == "tf_keras" else str(found.backend.backend())
