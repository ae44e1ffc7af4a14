"""Checks of what a training function does with Horovod. None of these functions imports a framework."""

from __future__ import annotations

import sys
from types import MethodType, ModuleType
from typing import Any

from trireme._context import TrainContext
from trireme._patches import wrap


def check_group(basics: ModuleType, context: TrainContext) -> None:
    """basics: horovod.common.basics. Makes hvd.init() raise if Horovod has not found all ranks."""
    kind = basics.HorovodBasics

    def init(original: Any, self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        found, expected = (self.rank(), self.size()), (context.get_world_rank(), context.get_world_size())
        if found != expected and not (arguments or options):
            raise RuntimeError(
                f"Horovod has found rank {found[0]} of {found[1]}, and this worker is rank {expected[0]} of "
                f"{expected[1]}: every worker would train a model of its own; leave the HOROVOD_ variables as Trireme "
                "sets them"
            )

    wrap(kind, "init", init)
    # A module that the warm process has imported has bound the original.
    for name, module in list(sys.modules.items()):
        bound = getattr(module, "init", None) if name.startswith("horovod.") else None
        if isinstance(bound, MethodType) and isinstance(bound.__self__, kind):
            module.init = MethodType(kind.init, bound.__self__)  # type: ignore[attr-defined]


def refuse_keras_3(module: ModuleType) -> None:
    """module: horovod.keras or horovod.tensorflow.keras."""
    keras = getattr(module, "keras", None) or sys.modules["tensorflow"].keras
    installed = str(getattr(keras, "__version__", "2."))  # tf_keras has none here
    if installed.startswith(("1.", "2.")):
        return
    raise ImportError(
        f"{module.__name__} does not work with Keras {installed}: Horovod's optimizer does not keep the weights of the "
        "ranks equal, without an error. Train Keras models with trireme.tensorflow.TensorflowTrainer, or use "
        "hvd.DistributedGradientTape in a loop of your own, or install tf_keras and set TF_USE_LEGACY_KERAS=1"
    )
