"""Contexts of MLIR, made in the warm process: JAX makes one for each function that it compiles, which takes a quarter
of the time until a function whose compiled form is kept can run."""

from __future__ import annotations

from typing import Any

import jax
from jax._src.interpreters import mlir

from trireme._patches import wrap
from trireme.jax._config import TESTED

# A small network compiles 29 functions before its first step. 1.5 MB each, shared by all workers.
_COUNT = 32


def prepare() -> None:
    """Each is used once, as without this. They are as good in a forked process: they have neither threads nor files."""
    contexts = [mlir.make_ir_context() for _ in range(_COUNT)]

    def make_ir_context(original: Any) -> Any:
        try:
            return contexts.pop()
        except IndexError:
            return original()

    wrap(mlir, "make_ir_context", make_ir_context)


if jax.__version__.startswith(TESTED):
    prepare()
