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

Refusal = Callable[[Any], RuntimeError | None]  # gets the model


def prepare_keras(context: TrainContext, framework: str) -> None:
    """Called in every attempt by the backend of a trainer. framework: "tensorflow", "torch" or "jax"."""
    for backend, (module, trainer) in _TRAINERS.items():
        prepare: Callable[[ModuleType], None]
        if backend == framework:
            prepare = functools.partial(_prepare, framework, context)
        else:
            refusal = _of_backend(f"Keras with the backend {backend!r}", backend, framework, context)
            prepare = functools.partial(_check_fit, trainer, context, refusal)
        after_import(module, prepare)
    module, trainer = _LEGACY
    if framework == "tensorflow":
        after_import(module, functools.partial(_prepare_legacy, context))
    else:
        refusal = _of_backend("tf_keras", "tensorflow", framework, context)
        after_import(module, functools.partial(_check_fit, trainer, context, refusal))


def refuse_separate_models_under_horovod(context: TrainContext) -> None:
    """Models train together if Horovod has wrapped their optimizer, or in a train_step() of the script."""
    for backend, (module, trainer) in {**_TRAINERS, "": _LEGACY}.items():
        after_import(module, functools.partial(_check_fit_under_horovod, backend, trainer, context))


def _check_fit_under_horovod(backend: str, trainer: str, context: TrainContext, module: ModuleType) -> None:
    def refusal(model: Any) -> RuntimeError | None:
        own_step = getattr(model.train_step, "__func__", None) is not getattr(module, trainer).train_step
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # of mixed precision
        if own_step or hasattr(optimizer, "_allreduce_grads"):
            return None
        if not backend:
            fix = "pass compile() an optimizer of horovod.tensorflow.keras.DistributedOptimizer()"
            return separate_models("tf_keras without Horovod's optimizer", context, fix)
        return separate_models("Keras 3 in a HorovodTrainer", context, f"use {_TRIREME[backend]}")

    _check_fit(trainer, context, refusal, module)


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


def _of_backend(what: str, backend: str, framework: str, context: TrainContext) -> Refusal:
    fix = f"use {_TRIREME[backend]}, or set KERAS_BACKEND={framework} in the environment before keras is imported"
    return lambda _: separate_models(what, context, fix)


def _check_distribution(context: TrainContext, module: ModuleType) -> None:
    def refusal(_: Any) -> RuntimeError | None:
        if module.distribution_lib.distribution() is not None:
            return None
        return separate_models(
            "Keras on JAX without a distribution",
            context,
            "before you create the model, call "
            "keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))",
        )

    _check_fit("JAXTrainer", context, refusal, module)


def _check_fit(trainer: str, context: TrainContext, refusal: Refusal, module: ModuleType) -> None:
    """trainer: the class with fit()."""

    def fit(original: Any, self: Any, *arguments: Any, **options: Any) -> Any:
        if context.get_world_size() > 1 and (error := refusal(self)):
            raise error
        return original(self, *arguments, **options)

    wrap(getattr(module, trainer), "fit", fit)


def separate_models(what: str, context: TrainContext, fix: str) -> RuntimeError:
    return RuntimeError(
        f"{what}: each of the {count_of(context.get_world_size(), 'worker')} would train a model of its own; {fix}"
    )
