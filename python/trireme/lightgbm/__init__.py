"""LightGBM on many workers: a training function with the network's addresses, or the trainer's own loop.

Importing this module does not import lightgbm. Accessing a class that needs it does.
"""

from typing import TYPE_CHECKING

from trireme._boosting._lean_import import LEAN_PRELOAD, when_imported
from trireme._late_names import late_names
from trireme._runtime import warm_up
from trireme.lightgbm._config import LightGBMConfig
from trireme.lightgbm._network import get_network_params
from trireme.lightgbm._pandas import normalize_pandas_for_lightgbm
from trireme.lightgbm._trainer import LightGBMTrainer

if TYPE_CHECKING:
    from trireme.lightgbm._checkpoint import LightGBMCheckpoint
    from trireme.lightgbm._dataset import dataset
    from trireme.lightgbm._predict import predict
    from trireme.lightgbm._report import ReportCallback
    from trireme.lightgbm._report import ReportCallback as RayTrainReportCallback

__all__ = [
    "LightGBMCheckpoint",
    "LightGBMConfig",
    "LightGBMTrainer",
    "RayTrainReportCallback",
    "ReportCallback",
    "dataset",
    "get_network_params",
    "normalize_pandas_for_lightgbm",
    "predict",
]

# These import lightgbm.
__getattr__, __dir__ = late_names(
    __name__,
    {
        "LightGBMCheckpoint": "_checkpoint",
        "RayTrainReportCallback": "_report:ReportCallback",
        "ReportCallback": "_report",
        "dataset": "_dataset",
        "predict": "_predict",
    },
)

# The warm process imports this in parallel with the setup of the user's script: what the trainer's own loop needs, and
# lightgbm itself if the script does.
warm_up(list(LEAN_PRELOAD))
when_imported("lightgbm", lambda: warm_up(list(LightGBMConfig.preload)))
