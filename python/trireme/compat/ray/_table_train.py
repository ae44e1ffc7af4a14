"""ray.train and its submodules."""

from __future__ import annotations

from trireme.compat.ray._names import Module, Name, adapted, inside, module, refused, refused_module, same

_RAY = "trireme.compat.ray"

_CONFIGS = adapted(
    f"{_RAY}._configs",
    "CheckpointConfig FailureConfig RunConfig ScalingConfig SyncConfig",
    "fields of both versions; those without an effect warn once",
)
_DATA_CONFIG = adapted(f"{_RAY}._data_config", "DataConfig", "equal parts as in Ray; rank 0 runs an own configure()")
_RESULT = adapted(f"{_RAY}._result", "Result=RayResult", "metrics and rows as in the version that the script uses")
_CHECKPOINT = same("trireme", "Checkpoint")
_ERRORS = same("trireme", "ControllerError PreemptionError TrainingFailedError WorkerGroupError")
_NCCL = refused("NCCLHangError", "a hang is reported as configured: FailureConfig(hang_timeout_s=..., on_hang=...)")
_REPORT = adapted("trireme", "report", "waits for all ranks; TRIREME_COMPAT_REPORT=free: never waits")
_WORKER = {
    **_REPORT,
    **same("trireme", "get_checkpoint get_all_reported_checkpoints get_preemption_info"),
    **adapted("trireme", "get_context", "also the getters of trials"),
    **adapted(f"{_RAY}._reporting", "get_dataset_shard", "order of the rows: docs/data_order.md"),
}
_REPORT_TYPES = same(
    "trireme", "CheckpointConsistencyMode CheckpointUploadMode ReportedCheckpoint ReportedCheckpointStatus"
)
_VALIDATION = same("trireme", "ValidationConfig ValidationFn ValidationTaskConfig")
_TRAIN_CONTEXT = adapted(f"{_RAY}._context", "TrainContext=RayTrainContext", "also the getters of trials")
_BACKEND = adapted(f"{_RAY}._backends", "Backend BackendConfig", "the hooks run on rank 0, not in the controller")
_TRAINER_NOTE = "fit() follows the version that the script uses"


def _trainer(names: str, *, v1: bool = False) -> dict[str, Name]:
    return adapted(f"{_RAY}._trainers", names, _TRAINER_NOTE, v1=v1)


_TORCH = "trireme.torch"
_TORCH_NAMES = {
    **_trainer("TorchTrainer"),
    **same(
        _TORCH,
        "TorchConfig TorchCheckpoint get_device get_devices prepare_model prepare_data_loader enable_reproducibility",
    ),
    **adapted(_TORCH, "accelerate backward prepare_optimizer", "", v1=True),
    **refused(
        "TorchWorkerProfiler TorchPredictor",
        "use torch.profiler in the training function, and the model for prediction",
    ),
}
_CALLBACK_BASES = adapted(
    f"{_RAY}._callbacks",
    "ControllerCallback WorkerCallback TrainContextCallback WorkerGroupCallback ReportCallback ExecutionGroupCallback "
    "ReplicaGroupCallback=WorkerGroupCallback",
    "hooks with a worker group run on rank 0; those that are never called are refused",
)

_PACKAGES: dict[str, Module] = {
    "ray.train": module(
        _CONFIGS,
        _DATA_CONFIG,
        _RESULT,
        _CHECKPOINT,
        _ERRORS,
        _NCCL,
        _WORKER,
        _REPORT_TYPES,
        _VALIDATION,
        _TRAIN_CONTEXT,
        same("trireme", "LoggingConfig PreemptionInfo TRAIN_DATASET_KEY UserCallback"),
        {"BackendConfig": _BACKEND["BackendConfig"]},
        refused("Trainer", "Ray has removed it; use ray.train.torch.TorchTrainer"),
    ),
    "ray.train.torch": module(
        _TORCH_NAMES,
        refused("TorchXLAConfig", "AWS Neuron is not supported; TorchConfig supports CPUs and CUDA"),
    ),
    "ray.train.torch.torch_trainer": module(_trainer("TorchTrainer"), v1=True),
    "ray.train.torch.torch_checkpoint": module(same(_TORCH, "TorchCheckpoint")),
    "ray.train.torch.config": module(
        same(_TORCH, "TorchConfig"),
        refused("_TorchBackend", "derive from ray.train.backend.Backend, or pass a TorchConfig"),
    ),
    "ray.train.torch.train_loop_utils": module(_TORCH_NAMES),
    "ray.train.torch.xla": module(
        refused("TorchXLAConfig", "AWS Neuron is not supported; TorchConfig supports CPUs and CUDA")
    ),
    "ray.train.lightning": module(
        same(
            "trireme.lightning",
            "RayDDPStrategy RayFSDPStrategy RayDeepSpeedStrategy RayLightningEnvironment RayTrainReportCallback "
            "prepare_trainer",
        ),
        refused(
            "LightningTrainer LightningConfigBuilder", "Ray has removed it; use TorchTrainer with a Lightning Trainer"
        ),
    ),
    "ray.train.huggingface": module(
        refused(
            "TransformersTrainer HuggingFaceTrainer AccelerateTrainer",
            "Ray has removed it; use TorchTrainer with the library in the training function",
        )
    ),
    "ray.train.huggingface.transformers": module(
        same("trireme.transformers", "RayTrainReportCallback prepare_trainer"),
        refused("TransformersTrainer", "Ray has removed it; use TorchTrainer with a transformers.Trainer"),
    ),
    "ray.train.tensorflow": module(
        _trainer("TensorflowTrainer"),
        same("trireme.tensorflow", "TensorflowConfig TensorflowCheckpoint prepare_dataset_shard"),
    ),
    "ray.train.tensorflow.keras": module(same("trireme.keras", "ReportCheckpointCallback")),
    "ray.train.horovod": module(_trainer("HorovodTrainer", v1=True), same("trireme.horovod", "HorovodConfig")),
    "ray.train.xgboost": module(
        _trainer("XGBoostTrainer"),
        same("trireme.xgboost", "XGBoostConfig XGBoostCheckpoint RayTrainReportCallback"),
        refused("XGBoostPredictor", "use trireme.xgboost.predict(), or the Booster of XGBoostCheckpoint.get_model()"),
    ),
    "ray.train.lightgbm": module(
        _trainer("LightGBMTrainer"),
        same("trireme.lightgbm", "LightGBMConfig LightGBMCheckpoint RayTrainReportCallback get_network_params"),
        same("trireme.lightgbm", "normalize_pandas_for_lightgbm"),
        refused(
            "LightGBMPredictor", "use trireme.lightgbm.predict(), or the Booster of LightGBMCheckpoint.get_model()"
        ),
    ),
    "ray.train.jax": module(_trainer("JaxTrainer"), same("trireme.jax", "JaxConfig")),
    "ray.train.collective": module(same("trireme.collective", "barrier broadcast_from_rank_zero")),
    "ray.train.backend": module(_BACKEND),
    "ray.train.base_trainer": module(_trainer("BaseTrainer"), same("trireme", "TrainingFailedError"), v1=True),
    "ray.train.trainer": module(_trainer("BaseTrainer"), _BACKEND, v1=True),
    "ray.train.data_parallel_trainer": module(_trainer("DataParallelTrainer"), v1=True),
    "ray.train.context": module(_TRAIN_CONTEXT, {"get_context": _WORKER["get_context"]}),
    "ray.train.session": module(_WORKER, v1=True),
    "ray.train.constants": module(same("trireme", "TRAIN_DATASET_KEY")),
    "ray.train.error": module(same("trireme", "TrainingFailedError SessionMisuseError=TrainingFailedError")),
    "ray.train.v2": module(),
    "ray.train.v2.api": module(),
    "ray.train.v2.api.callback": module(
        same("trireme", "UserCallback"), adapted(f"{_RAY}._callbacks", "RayTrainCallback", "a base class")
    ),
    "ray.train.v2.api.config": module(_CONFIGS, same("trireme", "LoggingConfig")),
    "ray.train.v2.api.context": module(
        _TRAIN_CONTEXT,
        adapted(
            f"{_RAY}._context",
            "DistributedTrainContext=RayTrainContext LocalTrainContext=RayTrainContext",
            "one class for both",
        ),
    ),
    "ray.train.v2.api.data_parallel_trainer": module(_trainer("DataParallelTrainer")),
    "ray.train.v2.api.exceptions": module(_ERRORS, _NCCL),
    "ray.train.v2.api.preemption": module(same("trireme", "PreemptionInfo")),
    "ray.train.v2.api.report_config": module(_REPORT_TYPES),
    "ray.train.v2.api.reported_checkpoint": module(_REPORT_TYPES),
    "ray.train.v2.api.result": module(_RESULT),
    "ray.train.v2.api.train_fn_utils": module(_WORKER),
    "ray.train.v2.api.validation_config": module(_VALIDATION),
    "ray.train.v2.jax": module(_trainer("JaxTrainer"), same("trireme.jax", "JaxConfig")),
    "ray.train.v2.torch": module(_trainer("TorchTrainer")),
    "ray.train.v2.torch.torch_trainer": module(_trainer("TorchTrainer")),
    "ray.train.v2.torch.torchft_config": module(
        refused(
            "TorchftConfig",
            "replica groups are not supported; FailureConfig(warm_restart=True) replaces only the failed workers",
        )
    ),
    "ray.train.v2.xgboost": module(_trainer("XGBoostTrainer"), same("trireme.xgboost", "XGBoostConfig")),
    "ray.train.v2.lightgbm": module(_trainer("LightGBMTrainer"), same("trireme.lightgbm", "LightGBMConfig")),
    "ray.train.v2.tensorflow": module(_trainer("TensorflowTrainer")),
    "ray.train.v2.horovod": module(_trainer("HorovodTrainer", v1=True)),
    # Ray has removed these.
    "ray.train.accelerate": refused_module("use TorchTrainer with accelerate.Accelerator in the training function"),
    "ray.train.batch_predictor": refused_module("load the model in a class and pass it to Dataset.map_batches()"),
    "ray.train.gbdt_trainer": refused_module("use ray.train.xgboost.XGBoostTrainer or ray.train.lightgbm"),
    "ray.train.mosaic": refused_module("use TorchTrainer with Composer in the training function"),
    "ray.train.predictor": refused_module("load the model in a class and pass it to Dataset.map_batches()"),
    "ray.train.rl": refused_module("Trireme has no reinforcement learning; run this script with Ray"),
    "ray.train.sklearn": refused_module("call scikit-learn in a training function of one worker"),
    "ray.train.v2._internal": module(),
    "ray.train.v2._internal.execution": module(),
    "ray.train.v2._internal.execution.callback": module(_CALLBACK_BASES),
    "ray.train.v2._internal.execution.storage": module(
        adapted(f"{_RAY}._storage", "StorageContext", "without Ray's checks of a cluster's storage")
    ),
    "ray.train._internal": module(),
    "ray.train._internal.storage": module(adapted(f"{_RAY}._storage", "StorageContext", "")),
}

TRAIN: dict[str, Module] = {
    **_PACKAGES,
    **inside("ray.train.collective", _PACKAGES["ray.train.collective"], "collectives"),
    **inside("ray.train.horovod", _PACKAGES["ray.train.horovod"], "config horovod_trainer"),
    **inside("ray.train.lightgbm", _PACKAGES["ray.train.lightgbm"], "config lightgbm_checkpoint lightgbm_trainer v2"),
    **inside(
        "ray.train.tensorflow",
        _PACKAGES["ray.train.tensorflow"],
        "config tensorflow_checkpoint tensorflow_trainer train_loop_utils",
    ),
    **inside("ray.train.xgboost", _PACKAGES["ray.train.xgboost"], "config v2 xgboost_checkpoint xgboost_trainer"),
    **inside("ray.train.torch.xla", _PACKAGES["ray.train.torch.xla"], "config"),
    **inside("ray.train.v2.horovod", _PACKAGES["ray.train.v2.horovod"], "horovod_trainer"),
    **inside("ray.train.v2.jax", _PACKAGES["ray.train.v2.jax"], "config jax_trainer"),
    **inside("ray.train.v2.lightgbm", _PACKAGES["ray.train.v2.lightgbm"], "lightgbm_trainer"),
    **inside("ray.train.v2.tensorflow", _PACKAGES["ray.train.v2.tensorflow"], "tensorflow_trainer"),
    **inside("ray.train.v2.torch", _PACKAGES["ray.train.torch"], "train_loop_utils"),
    **inside("ray.train.v2.xgboost", _PACKAGES["ray.train.v2.xgboost"], "config xgboost_trainer"),
}
