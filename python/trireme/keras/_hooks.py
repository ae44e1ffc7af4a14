"""Keras in a worker, with or without trireme.keras: the workers train one model, or fit() raises.

Otherwise a wrong setting makes every worker train a model of its own, without an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from trireme._after_import import after_import
from trireme._context import TrainContext
from trireme._core import count_of
from trireme._patches import wrap

# By Keras' backend: the module and the class with fit().
_TRAINERS = {
    "tensorflow": ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer"),
    "torch": ("keras.src.backend.torch.trainer", "TorchTrainer"),
    "jax": ("keras.src.backend.jax.trainer", "JAXTrainer"),
}
_LEGACY = ("tf_keras.src.engine.training", "Model")
_TRIREME = {"tensorflow": "TensorflowTrainer", "torch": "TorchTrainer", "jax": "JaxTrainer"}


def prepare_keras(context: TrainContext, framework: str) -> None:
    """Called in every attempt by the backend of a trainer. framework: "tensorflow", "torch" or "jax"."""
    for backend, (module, trainer) in _TRAINERS.items():
        prepare: Callable[[ModuleType], None]
        if backend == framework:
            prepare = functools.partial(_prepare, framework, context)
        else:
            prepare = functools.partial(_refuse_fit, f"Keras with the backend {backend!r}", trainer, framework, context)
        after_import(module, prepare)
    module, trainer = _LEGACY
    if framework == "tensorflow":
        after_import(module, functools.partial(_prepare_legacy, context))
    else:
        after_import(module, functools.partial(_refuse_fit, "tf_keras", trainer, framework, context))


def _prepare(framework: str, context: TrainContext, module: ModuleType) -> None:
    if framework == "tensorflow":
        from trireme.keras import _tensorflow

        _tensorflow.prepare(module, context)
    elif framework == "torch":
        from trireme.keras import _torch

        _torch.prepare(module, context)
    else:
        _check_distribution(context, module)


def _prepare_legacy(context: TrainContext, module: ModuleType) -> None:
    from trireme.keras._tensorflow import prepare_legacy

    prepare_legacy(module, context)


def _refuse_fit(what: str, trainer: str, framework: str, context: TrainContext, module: ModuleType) -> None:
    other = _TRIREME["tensorflow" if what == "tf_keras" else what.split("'")[1]]

    def make(original: Any) -> Any:
        def fit(self: Any, *arguments: Any, **options: Any) -> Any:
            if context.get_world_size() > 1:
                raise separate_models(
                    what,
                    context,
                    f"use {other}, or set KERAS_BACKEND={framework} in the environment before keras is imported",
                )
            return original(self, *arguments, **options)

        return fit

    wrap(getattr(module, trainer), "fit", make)


def _check_distribution(context: TrainContext, module: ModuleType) -> None:
    def make(original: Any) -> Any:
        def fit(self: Any, *arguments: Any, **options: Any) -> Any:
            if context.get_world_size() > 1 and module.distribution_lib.distribution() is None:
                raise separate_models(
                    "Keras on JAX without a distribution",
                    context,
                    "before you create the model, call "
                    "keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))",
                )
            return original(self, *arguments, **options)

        return fit

    wrap(module.JAXTrainer, "fit", make)


def separate_models(what: str, context: TrainContext, fix: str) -> RuntimeError:
    return RuntimeError(
        f"{what}: each of the {count_of(context.get_world_size(), 'worker')} would train a model of its own; {fix}"
    )
