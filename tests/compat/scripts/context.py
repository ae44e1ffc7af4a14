"""Every getter of the context, and the derived values of the configuration classes."""

import os

import ray.train
from compat_record import STORAGE, described, record
from ray.train import CheckpointConfig, FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train_func():
    context = ray.train.get_context()
    storage = context.get_storage()
    mine = [
        context.get_world_rank(),
        context.get_local_rank(),
        context.get_node_rank(),
        context.get_world_size(),
        context.get_local_world_size(),
    ]
    name = storage.build_checkpoint_path_from_name("x")
    variables = {key: os.environ[key] for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")}
    return {
        "mine": mine,
        "experiment": context.get_experiment_name(),
        "folder": storage.experiment_dir_name,
        "path": storage.storage_fs_path,
        "extracted": storage.extract_checkpoint_dir_name_from_path(name),
        "checkpoint": ray.train.get_checkpoint(),
        "variables": variables,
        "given": os.environ.get("GIVEN"),
        "filesystem": storage.storage_filesystem.type_name,
    }


def refused(make):
    try:
        make()
    except Exception as error:
        return type(error).__name__ in ("ValueError", "ConfigError")
    return None


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="context",
            storage_path=STORAGE,
            worker_runtime_env={"env_vars": {"GIVEN": "yes"}},
            logging_config=LoggingConfig(log_level="warning"),
        ),
    ).fit()
    scaling = ScalingConfig(num_workers=3, use_gpu=True, resources_per_worker={"CPU": 2, "GPU": 1, "custom": 0.5})
    run_config = RunConfig()
    try:
        ray.train.get_context()
        outside = ""
    except RuntimeError:
        outside = "RuntimeError"
    record(
        result=described(result),
        scaling=[
            scaling.num_cpus_per_worker,
            scaling.num_gpus_per_worker,
            scaling.additional_resources_per_worker,
            scaling.total_resources,
            scaling.elasticity_enabled,
        ],
        gpu=[ScalingConfig(use_gpu=True).num_cpus_per_worker, ScalingConfig(use_gpu=True).num_gpus_per_worker],
        elastic=[ScalingConfig(num_workers=(2, 4)).min_workers, ScalingConfig(num_workers=(2, 4)).max_workers],
        run=[run_config.name, run_config.callbacks, run_config.worker_runtime_env, str(run_config.storage_path)[-12:]],
        defaults=[
            FailureConfig().max_failures,
            FailureConfig().controller_failure_limit,
            CheckpointConfig().num_to_keep,
            CheckpointConfig().checkpoint_score_order,
            LoggingConfig(log_level="debug").log_level,
            TorchConfig().timeout_s,
            TorchConfig().init_method,
        ],
        refused=[
            refused(lambda: CheckpointConfig(num_to_keep=0)),
            refused(lambda: CheckpointConfig(checkpoint_score_order="best")),
            refused(lambda: ScalingConfig(num_workers=-1)),
            refused(lambda: ScalingConfig(num_workers=(3, 2))),
            refused(lambda: ScalingConfig(resources_per_worker={"GPU": 1})),
            refused(lambda: LoggingConfig(log_level="loud")),
        ],
        outside=outside,
    )
