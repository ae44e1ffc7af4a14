"""PyTorch Lightning in a TorchTrainer: strategies on the worker's process group, and reports at Lightning's hooks.

Works with `lightning` and with `pytorch_lightning`: the classes derive from the one that the script has imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trireme._runtime import warm_up
from trireme.lightning._package import preload

if TYPE_CHECKING:
    from trireme.lightning._fabric import prepare_fabric
    from trireme.lightning._prepare import prepare_trainer
    from trireme.lightning._report import ReportCallback
    from trireme.lightning._strategies import (
        DDPStrategy,
        DeepSpeedStrategy,
        FSDPStrategy,
        LightningEnvironment,
        ModelParallelStrategy,
    )

__all__ = [
    "CHECKPOINT_NAME",
    "DDPStrategy",
    "DeepSpeedStrategy",
    "FSDPStrategy",
    "LightningEnvironment",
    "ModelParallelStrategy",
    "ReportCallback",
    "prepare_fabric",
    "prepare_trainer",
]

CHECKPOINT_NAME = "checkpoint.ckpt"

# Ray Train's names for the same classes.
_ALIASES = {
    "RayDDPStrategy": "DDPStrategy",
    "RayDeepSpeedStrategy": "DeepSpeedStrategy",
    "RayFSDPStrategy": "FSDPStrategy",
    "RayLightningEnvironment": "LightningEnvironment",
    "RayTrainReportCallback": "ReportCallback",
}


def __getattr__(name: str) -> Any:
    """Imports Lightning on first use, which takes seconds."""
    if name in _ALIASES:
        name = _ALIASES[name]
    if name == "prepare_trainer":
        from trireme.lightning._prepare import prepare_trainer

        return prepare_trainer
    if name == "prepare_fabric":
        from trireme.lightning._fabric import prepare_fabric

        return prepare_fabric
    if name == "ReportCallback":
        from trireme.lightning._report import report_callback_class

        return report_callback_class()
    if name in __all__:
        from trireme.lightning._strategies import classes

        return getattr(classes(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ALIASES})


# The warm process imports Lightning in parallel with the setup of the user's script.
warm_up(preload())
