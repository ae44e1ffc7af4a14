"""Hugging Face Transformers in a TorchTrainer: reports at every save of the HF Trainer, and datasets of the run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trireme._preload import frameworks_of_main, needs_of
from trireme._runtime import warm_up

if TYPE_CHECKING:
    from trireme.transformers._prepare import prepare_trainer
    from trireme.transformers._report import ReportCallback

__all__ = ["CHECKPOINT_NAME", "ReportCallback", "prepare_trainer"]

CHECKPOINT_NAME = "checkpoint"

_LATER = {
    "RayTrainReportCallback": ("_report", "ReportCallback"),  # Ray Train's name
    "ReportCallback": ("_report", "ReportCallback"),
    "prepare_trainer": ("_prepare", "prepare_trainer"),
}


def __getattr__(name: str) -> Any:
    """Imports transformers on first use, which takes seconds."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    try:
        return getattr(import_module(f"{__name__}.{module}"), attribute)
    except ModuleNotFoundError as error:
        if error.name not in ("transformers", "accelerate"):
            raise
        raise ModuleNotFoundError(
            f'trireme.transformers needs {error.name}, which is not installed: pip install "trireme[transformers]"'
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


# The warm process imports the HF Trainer in parallel with the setup of the user's script.
warm_up([*needs_of("transformers"), *frameworks_of_main()])
