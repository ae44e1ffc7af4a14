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
    **{f"_trainers:{name}": f"{module}:{name}" for name, module in _ADAPTERS.items()},
}
# Functions of ray.air.session that are methods of the context.
_GETTERS = ("get_world", "get_local", "get_node", "get_experiment", "get_trial", "get_metadata")

# Parameters that Trireme's classes do not have, and what to do.
PARAMETERS = {
    "trireme.RunConfig": {
        "sync_config": "delete it: report() stores checkpoints itself",
        "verbose": "use logging_config=LoggingConfig(log_level=...)",
        "stop": "return from the training function instead",
        "progress_reporter": "use callbacks=[...] with a UserCallback",
        "log_to_file": "delete it: the logs folder of the run has every worker's output",
        "local_dir": "use storage_path",
    },
    "trireme.FailureConfig": {"fail_fast": "delete it: max_failures=0 is the default"},
    "trireme.ScalingConfig": {
        "use_tpu": "TPUs are not supported",
        "topology": "TPUs are not supported",
    },
    "trireme.DataConfig": {
        "execution_options": "use memory_budget and num_threads",
        "enable_shard_locality": "delete it: every worker reads its own rows",
    },
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
