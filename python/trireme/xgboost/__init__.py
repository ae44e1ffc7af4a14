"""XGBoost on many workers: a training function with the communicator set up, or the trainer's own loop.

Importing this module does not import xgboost. Accessing a class that needs it does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trireme._runtime import warm_up
from trireme.xgboost._config import XGBoostConfig
from trireme.xgboost._trainer import XGBoostTrainer

if TYPE_CHECKING:
    from trireme.xgboost._checkpoint import XGBoostCheckpoint
    from trireme.xgboost._predict import predict
    from trireme.xgboost._report import ReportCallback
    from trireme.xgboost._report import ReportCallback as RayTrainReportCallback

__all__ = [
    "RayTrainReportCallback",
    "ReportCallback",
    "XGBoostCheckpoint",
    "XGBoostConfig",
    "XGBoostTrainer",
    "predict",
]

# Modules of the names that import xgboost, and the names there.
_LATER = {
    "RayTrainReportCallback": ("_report", "ReportCallback"),
    "ReportCallback": ("_report", "ReportCallback"),
    "XGBoostCheckpoint": ("_checkpoint", "XGBoostCheckpoint"),
    "predict": ("_predict", "predict"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


# The warm process imports xgboost in parallel with the setup of the user's script.
warm_up(list(XGBoostConfig.preload))
