"""Trireme: train models on many workers, in Python and in C++."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = ("callbacks", "collective", "data")
# The command, and what runs on the nodes of a cluster, import this package too, and start earlier without its modules.
_NAMES_OF = {
    "_checkpoint": "Checkpoint",
    "_config": "CheckpointConfig ConfigError DataConfig FailureConfig LoggingConfig RunConfig ScalingConfig",
    "_context": "TrainContext",
    "_errors": "ControllerError PreemptionError TrainingFailedError WorkerGroupError",
    "_preemption": "PreemptionInfo",
    "_report": "CheckpointConsistencyMode CheckpointUploadMode ReportedCheckpoint ReportedCheckpointStatus",
    "_result": "Result",
    "_runtime": "init set_capacity shutdown",
    "_session": "get_all_reported_checkpoints get_checkpoint get_context get_dataset_shard get_preemption_info report",
    "_state": "load_state save_state",
    "_trainer": "DataParallelTrainer",
    "_validation": "ValidationConfig ValidationFn ValidationTaskConfig",
    "callbacks": "UserCallback",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    value: Any
    if name in _MODULES:
        value = import_module(f"trireme.{name}")
    elif name == "__version__":
        value = import_module("trireme._core").version
    elif name in _MODULE_OF:
        value = getattr(import_module(f"trireme.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'trireme' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


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
