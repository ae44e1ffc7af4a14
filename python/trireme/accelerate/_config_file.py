"""Files of `accelerate config`: settings of the model are applied, settings of the launcher must fit the workers."""

from __future__ import annotations

import os
from typing import Any

from trireme._context import TrainContext
from trireme._session import current_session

# What `accelerate launch` passes to its processes, except what concerns starting them.
_MODEL_SETTINGS = ("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_", "TORCH_DYNAMO")
_LAUNCHER_SETTINGS = ("ACCELERATE_USE_CPU", "ACCELERATE_CPU_AFFINITY", "ACCELERATE_CONFIG_FILE")


def load_config(path: str | os.PathLike[str] | None = None) -> dict[str, str]:
    """Apply a file of `accelerate config` in this worker, before it creates an Accelerator. Return the variables set.

    Settings of the model are applied as `accelerate launch` does: mixed_precision, fsdp_config, deepspeed_config,
    dynamo_config and others. Settings of the launcher, such as num_processes, raise an error if they contradict the
    workers.

    path: by default the file that `accelerate config` writes.
    """
    from accelerate.commands.config.config_args import default_config_file, load_config_from_file

    context = current_session("load_config").context
    file = os.fspath(path) if path is not None else default_config_file
    if not os.path.isfile(file):
        raise FileNotFoundError(f"load_config(): no file {file}; create it with: accelerate config")
    if problems := _contradictions(load_config_from_file(file), context):
        raise ValueError(f"load_config(): {file} contradicts the workers of the run: " + "; ".join(problems))
    applied = {
        name: value
        for name, value in _variables(file, context).items()
        if name.startswith(_MODEL_SETTINGS) and name not in _LAUNCHER_SETTINGS and os.environ.get(name) != value
    }
    os.environ.update(applied)
    return applied


def _contradictions(config: Any, context: TrainContext) -> list[str]:
    workers, machines = context.get_world_size(), context._num_nodes
    if config.compute_environment.value != "LOCAL_MACHINE":
        return [f"compute_environment={config.compute_environment.value}, and workers run on local machines"]
    expected: dict[str, tuple[Any, set[Any], str]] = {
        "num_processes": (config.num_processes, {-1, workers}, f"the run has {workers} workers"),
        "num_machines": (config.num_machines, {None, machines}, f"the workers are on {machines}"),
        "machine_rank": (config.machine_rank, {0}, "every worker knows its own: leave it out"),
        "main_process_ip": (config.main_process_ip, {None}, "workers use the run's own connection: leave it out"),
        "main_process_port": (config.main_process_port, {None}, "workers use the run's own connection: leave it out"),
        "gpu_ids": (config.gpu_ids, {None, "all"}, "use ScalingConfig(use_gpu=True) and CUDA_VISIBLE_DEVICES"),
        "mpirun_config": (bool(config.mpirun_config), {False}, "Trireme starts the workers: leave it out"),
        "tpu_use_cluster": (config.tpu_use_cluster, {False}, "TPUs are not supported"),
    }
    problems = [
        f"{name}={value!r}, and {fix}" for name, (value, allowed, fix) in expected.items() if value not in allowed
    ]
    if config.use_cpu and context._gpus:
        problems.append("use_cpu=true, and the workers have GPUs: remove it or ScalingConfig(use_gpu=True)")
    kind = config.distributed_type.value
    if kind.startswith("MULTI_") and kind != "MULTI_CPU" and not context._gpus:
        problems.append(f"distributed_type={kind}, and the workers have no GPUs")
    return problems


def _variables(file: str, context: TrainContext) -> dict[str, str]:
    """The environment that `accelerate launch --config_file` would give to its processes."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    parsed = launch_command_parser().parse_args(["--config_file", file, "script.py"])
    arguments, config, has_precision = _validate_launch_command(parsed)
    arguments.num_processes, arguments.num_machines = context.get_world_size(), 1
    arguments.main_process_port = 0  # otherwise it looks whether its port is free
    variables: dict[str, str]
    if arguments.use_deepspeed:
        fields = [*(config.deepspeed_config if config else {}), *(["mixed_precision"] if has_precision else [])]
        arguments.deepspeed_fields_from_accelerate_config = ",".join(fields)
        _, variables = prepare_deepspeed_cmd_env(arguments)
    else:
        variables = prepare_multi_gpu_env(arguments)
    return variables
