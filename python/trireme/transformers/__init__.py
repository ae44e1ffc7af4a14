"""Hugging Face Transformers in a TorchTrainer: reports at every save of the HF Trainer, and datasets of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trireme._late_names import late_names
from trireme._preload import frameworks_of_main, needs_of
from trireme._runtime import warm_up

if TYPE_CHECKING:
    from trireme.transformers._prepare import prepare_trainer
    from trireme.transformers._report import ReportCallback

__all__ = ["CHECKPOINT_NAME", "ReportCallback", "prepare_trainer"]

CHECKPOINT_NAME = "checkpoint"

# These import transformers, which takes seconds. RayTrainReportCallback is Ray Train's name.
__getattr__, __dir__ = late_names(
    __name__,
    {
        "RayTrainReportCallback": "_report:ReportCallback",
        "ReportCallback": "_report",
        "prepare_trainer": "_prepare",
    },
    requires=("transformers", "accelerate"),
)

# The warm process imports the HF Trainer in parallel with the setup of the user's script.
warm_up([*needs_of("transformers"), *frameworks_of_main()])
