"""Keras in the workers of a TensorflowTrainer, TorchTrainer or JaxTrainer: reports and checkpoints of fit().

Importing this module does not import keras. Accessing a name that needs it does.
"""

from typing import TYPE_CHECKING, Any

from trireme._late_names import late_names
from trireme._preload import frameworks_of_main
from trireme._runtime import warm_up

if TYPE_CHECKING:
    from trireme.keras._model import completed_epochs, load_model

    ReportCheckpointCallback = Any

__all__ = ["ReportCheckpointCallback", "completed_epochs", "load_model"]

_late, _names = late_names(
    __name__, {"completed_epochs": "_model", "load_model": "_model"}, requires=("keras", "tf_keras")
)


def __getattr__(name: str) -> Any:
    """Imports Keras on first use, which takes seconds."""
    if name == "ReportCheckpointCallback":
        from trireme.keras._report import report_callback_class

        return report_callback_class()
    return _late(name)


def __dir__() -> list[str]:
    return sorted({*_names(), *__all__})


# The warm process imports what the script names in parallel with its setup.
warm_up(frameworks_of_main())
