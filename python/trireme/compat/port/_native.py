"""Which name of Trireme a script uses in place of a name of Ray."""

from __future__ import annotations

from trireme.compat.ray._names import Name
from trireme.compat.ray._table import MODULES
from trireme.compat.ray._trainers import _ADAPTERS

_COMPAT = "trireme.compat.ray."
# Adapters whose native counterpart has the same purpose.
_COUNTERPARTS = {
    "_configs:CheckpointConfig": "trireme:CheckpointConfig",
    "_configs:FailureConfig": "trireme:FailureConfig",
    "_configs:RunConfig": "trireme:RunConfig",
    "_configs:ScalingConfig": "trireme:ScalingConfig",
    "_data_config:DataConfig": "trireme:DataConfig",
    "_result:RayResult": "trireme:Result",
    "_context:RayTrainContext": "trireme:TrainContext",
    "_reporting:get_dataset_shard": "trireme:get_dataset_shard",
    "_reporting:air_report": "trireme:report",
    "_cluster:init": "trireme:init",
    "_cluster:shutdown": "trireme:shutdown",
    "_trainers:DataParallelTrainer": "trireme:DataParallelTrainer",
    "_loggers:MLflowLoggerCallback": "trireme.integrations.mlflow:MLflowLoggerCallback",
    "_loggers:WandbLoggerCallback": "trireme.integrations.wandb:WandbLoggerCallback",
    "_tensorboard:TBXLoggerCallback": "trireme.integrations.tensorboard:TBXLoggerCallback",
    "_data_classes:FileBasedDatasource": "trireme.data.datasource:FileBasedDatasource",
    "_data_classes:PathPartitionFilter": "trireme.data.datasource:PathPartitionFilter",
    **{f"_data_classes:{name}": f"trireme.data.aggregate:{name}" for name in ("AbsMax", "Max", "Min", "Unique")},
    **{f"_trainers:{name}": f"{module}:{name}" for name, module in _ADAPTERS.items()},
}
# Functions of ray.air.session that are methods of the context.
_GETTERS = ("get_world", "get_local", "get_node", "get_experiment", "get_trial", "get_metadata")

# Parameters without an effect in Trireme, which are deleted, with the reason.
DELETED = {
    "trireme.RunConfig": {
        "sync_config": "report() stores checkpoints itself",
        "verbose": "logging_config=LoggingConfig(log_level=...) sets what a run prints",
        "progress_reporter": "a run has its own progress line",
        "log_to_file": "the logs folder of the run has every worker's output",
    },
    "trireme.FailureConfig": {"fail_fast": "a failed run ends at once unless max_failures allows a restart"},
    "trireme.DataConfig": {"enable_shard_locality": "every worker reads its own rows"},
}
RENAMED = {"trireme.RunConfig": {"local_dir": "storage_path"}}
# Parameters that Trireme's classes do not have, and what to do.
PARAMETERS = {
    "trireme.RunConfig": {
        "stop": "return from the training function instead",
    },
    "trireme.ScalingConfig": {
        "use_tpu": "TPUs are not supported",
        "topology": "TPUs are not supported",
    },
    "trireme.DataConfig": {
        "execution_options": "use memory_budget and num_threads",
    },
}
# What the first version of Ray Train adds to every report.
ADDED_METRICS = {
    "training_iteration": "len(result.metrics_dataframe) is the number of reports",
    "iterations_since_restore": "len(result.metrics_dataframe) is the number of reports",
    "config": "use the trainer's train_loop_config",
    **dict.fromkeys(("trial_id", "experiment_tag"), "result.path is the folder of the run"),
    **dict.fromkeys(
        ("time_total_s", "time_this_iter_s", "time_since_restore", "timestamp", "date"),
        "result.metrics_history() has the time of every report",
    ),
    **dict.fromkeys(("pid", "hostname", "node_ip", "done"), "the events of the run have it (docs/event_log.md)"),
    **dict.fromkeys(("checkpoint_dir_name", "should_checkpoint"), "result.best_checkpoints has the checkpoints"),
}
# Methods that compatibility mode adds to checkpoints.
CHECKPOINT_METHODS = {
    "to_bytes": "store the folder: checkpoint.to_directory()",
    "from_bytes": "use Checkpoint.from_directory()",
    "to_uri": "use RunConfig(storage_path=...), or copy the folder with pyarrow.fs",
    "from_uri": "use Checkpoint(uri)",
    "get_internal_representation": "use checkpoint.path",
    "get_preprocessor": "use trireme.torch.TorchCheckpoint, or pickle the preprocessor into the checkpoint",
    "set_preprocessor": "use trireme.torch.TorchCheckpoint, or pickle the preprocessor into the checkpoint",
}
INIT_PARAMETERS = ("num_cpus", "num_gpus", "resources")


def native(full_name: str) -> str | None:
    """'trireme.torch:TorchTrainer' for 'ray.train.torch.TorchTrainer'; None: nothing replaces it."""
    module, _, name = full_name.rpartition(".")
    entry = MODULES[module].names.get(name) if module in MODULES else None
    if entry is None or entry.how == "refused":
        return None
    target = _target(entry)
    if target is None and name.startswith(_GETTERS) and entry.target.startswith(f"{_COMPAT}_reporting"):
        return f"trireme:get_context().{name}"
    return target


def _target(entry: Name) -> str | None:
    if entry.target.startswith(_COMPAT):
        return _COUNTERPARTS.get(entry.target.removeprefix(_COMPAT))
    return entry.target


def advice(full_name: str) -> str:
    """For a name that has no counterpart."""
    module, _, name = full_name.rpartition(".")
    for known in (full_name, module):
        if known in MODULES and MODULES[known].refused:
            return MODULES[known].advice
    entry = MODULES[module].names.get(name) if module in MODULES else None
    if entry is not None and entry.how == "refused":
        return entry.note
    if module == "ray.tune" or module.startswith("ray.tune."):
        return "Trireme has no tuner of its own: keep `trireme run --ray-compat`, or call fit() for each configuration"
    if module in ("ray", "ray.util", "ray.util.queue", "ray.exceptions", "ray.actor"):
        return "keep `trireme run --ray-compat`, or use multiprocessing: Trireme has no tasks and actors of its own"
    return "Trireme has no name for it; keep `trireme run --ray-compat` for this script"


def split(qualified: str) -> tuple[str, str] | None:
    """The name of Ray at the beginning of a dotted expression, and the rest: ('ray.train.report', '')."""
    parts = qualified.split(".")
    for end in range(len(parts), 1, -1):
        module = ".".join(parts[: end - 1])
        if module in MODULES and parts[end - 1] in MODULES[module].names:
            return ".".join(parts[:end]), ".".join(parts[end:])
    return None
