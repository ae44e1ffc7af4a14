"""LightGBM on many workers: a training function with the network's addresses, or the trainer's own loop.

Importing this module does not import lightgbm. Accessing a class that needs it does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trireme._runtime import warm_up
from trireme.lightgbm._config import LightGBMConfig
from trireme.lightgbm._network import get_network_params
from trireme.lightgbm._pandas import normalize_pandas_for_lightgbm
from trireme.lightgbm._trainer import LightGBMTrainer

if TYPE_CHECKING:
    from trireme.lightgbm._checkpoint import LightGBMCheckpoint
    from trireme.lightgbm._predict import predict
    from trireme.lightgbm._report import ReportCallback
    from trireme.lightgbm._report import ReportCallback as RayTrainReportCallback

__all__ = [
    "LightGBMCheckpoint",
    "LightGBMConfig",
    "LightGBMTrainer",
    "RayTrainReportCallback",
    "ReportCallback",
    "get_network_params",
    "normalize_pandas_for_lightgbm",
    "predict",
]

# Modules of the names that import lightgbm, and the names there.
_LATER = {
    "LightGBMCheckpoint": ("_checkpoint", "LightGBMCheckpoint"),
    "RayTrainReportCallback": ("_report", "ReportCallback"),
    "ReportCallback": ("_report", "ReportCallback"),
    "predict": ("_predict", "predict"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LATER[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


# The warm process imports lightgbm in parallel with the setup of the user's script.
warm_up(list(LightGBMConfig.preload))
