"""XGBoost on many workers: a training function with the communicator set up, or the trainer's own loop.

Importing this module does not import xgboost. Accessing a class that needs it does.
"""

from typing import TYPE_CHECKING

from trireme._boosting._lean_import import LEAN_PRELOAD, when_imported
from trireme._late_names import late_names
from trireme._runtime import warm_up
from trireme.xgboost._config import XGBoostConfig
from trireme.xgboost._trainer import XGBoostTrainer

if TYPE_CHECKING:
    from trireme.xgboost._checkpoint import XGBoostCheckpoint
    from trireme.xgboost._matrix import quantile_dmatrix
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
    "quantile_dmatrix",
]

# These import xgboost.
__getattr__, __dir__ = late_names(
    __name__,
    {
        "RayTrainReportCallback": "_report:ReportCallback",
        "ReportCallback": "_report",
        "XGBoostCheckpoint": "_checkpoint",
        "predict": "_predict",
        "quantile_dmatrix": "_matrix",
    },
)

# The warm process imports this in parallel with the setup of the user's script: what the trainer's own loop needs, and
# xgboost itself if the script does.
warm_up(list(LEAN_PRELOAD))
when_imported("xgboost", lambda: warm_up(list(XGBoostConfig.preload)))
