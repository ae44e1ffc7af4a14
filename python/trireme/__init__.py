"""Trireme: train models on many workers, in Python and in C++."""

from trireme import collective
from trireme._checkpoint import Checkpoint
from trireme._config import (
    CheckpointConfig,
    ConfigError,
    DataConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
)
from trireme._context import TrainContext
from trireme._core import version as __version__
from trireme._errors import ControllerError, PreemptionError, TrainingFailedError, WorkerGroupError
from trireme._preemption import PreemptionInfo
from trireme._report import (
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
)
from trireme._result import Result
from trireme._runtime import init, set_capacity, shutdown
from trireme._session import (
    get_all_reported_checkpoints,
    get_checkpoint,
    get_context,
    get_dataset_shard,
    get_preemption_info,
    report,
)
from trireme._state import load_state, save_state
from trireme._trainer import DataParallelTrainer
from trireme._validation import ValidationConfig, ValidationFn, ValidationTaskConfig
from trireme.callbacks import UserCallback

TRAIN_DATASET_KEY = "train"


def __getattr__(name: str) -> object:
    """Import trireme.data, and with it pyarrow, on first use."""
    if name == "data":
        import importlib

        return importlib.import_module("trireme.data")
    raise AttributeError(f"module 'trireme' has no attribute {name!r}")


__all__ = [
    "TRAIN_DATASET_KEY",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointConsistencyMode",
    "CheckpointUploadMode",
    "ConfigError",
    "ControllerError",
    "DataConfig",
    "DataParallelTrainer",
    "FailureConfig",
    "LoggingConfig",
    "PreemptionError",
    "PreemptionInfo",
    "ReportedCheckpoint",
    "ReportedCheckpointStatus",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "TrainContext",
    "TrainingFailedError",
    "UserCallback",
    "ValidationConfig",
    "ValidationFn",
    "ValidationTaskConfig",
    "WorkerGroupError",
    "__version__",
    "collective",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "get_preemption_info",
    "init",
    "load_state",
    "report",
    "save_state",
    "set_capacity",
    "shutdown",
]
