"""ray.air, the API of 2022 and 2023."""

from __future__ import annotations

from trireme.compat.ray._names import Module, adapted, module, refused, refused_module, same
from trireme.compat.ray._table_train import _CHECKPOINT, _CONFIGS, _DATA_CONFIG, _RESULT, TRAIN

_REPORTING = "trireme.compat.ray._reporting"
_SESSION = {
    **adapted(_REPORTING, "report=air_report", "waits for all ranks; TRIREME_COMPAT_REPORT=free: never waits"),
    **adapted(_REPORTING, "get_dataset_shard", "None for an unknown name"),
    **same("trireme", "get_checkpoint"),
    **same(
        _REPORTING,
        "get_world_size get_world_rank get_local_rank get_local_world_size get_node_rank get_experiment_name "
        "get_trial_name get_trial_id get_trial_resources get_trial_dir get_metadata get_run_id",
    ),
}
_LOGGERS = "trireme.compat.ray._loggers"
_FROM_DRIVER = "logs rank 0's reports from the driver"

AIR: dict[str, Module] = {
    "ray.air": module(
        _CONFIGS,
        _DATA_CONFIG,
        _RESULT,
        _CHECKPOINT,
        refused("DatasetConfig", "use DataConfig(datasets_to_split=[...])"),
        refused("AcquiredResources ResourceRequest DataBatchType", "Trireme has no equivalent"),
        v1_names=True,  # importing ray.air.integrations imports it as well
    ),
    "ray.air.config": module(_CONFIGS, _DATA_CONFIG, v1=True),
    "ray.air.session": module(_SESSION, v1=True),
    "ray.air.checkpoint": module(_CHECKPOINT, v1=True),
    "ray.air.result": module(_RESULT, v1=True),
    "ray.air.constants": module(same("trireme", "TRAIN_DATASET_KEY"), v1=True),
    "ray.air.data_batch_type": refused_module("it is a type for annotations; use Any"),
    "ray.air.execution": refused_module("pass resources_per_worker to ScalingConfig"),
    "ray.air.util": module(),
    **{
        f"ray.air.util.{name}": refused_module("use Dataset.map_batches(batch_format=...) and pyarrow's tensor types")
        for name in ("data_batch_conversion", "object_extensions", "tensor_extensions")
    },
    "ray.air.util.node": refused_module("this machine is the cluster"),
    "ray.air.util.check_ingest": module(
        refused("DummyTrainer make_local_dataset_iterator", "measure with bench/data, or iterate over the dataset")
    ),
    "ray.air.integrations": module(),
    "ray.air.integrations.wandb": module(
        same("trireme.integrations.wandb", "setup_wandb"),
        adapted(_LOGGERS, "WandbLoggerCallback", _FROM_DRIVER, v1=True),
    ),
    "ray.air.integrations.mlflow": module(
        same("trireme.integrations.mlflow", "setup_mlflow"),
        adapted(_LOGGERS, "MLflowLoggerCallback", _FROM_DRIVER, v1=True),
    ),
    "ray.air.integrations.comet": module(
        refused("CometLoggerCallback", "call comet_ml on rank 0, or use a UserCallback; see docs/trackers.md")
    ),
    "ray.air.integrations.keras": module(same("trireme.keras", "ReportCheckpointCallback")),
    "ray.air.integrations.torch": TRAIN["ray.train.torch"],
}
