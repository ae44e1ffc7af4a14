"""DeepSpeed on the workers of a run: its config fits the workers, and CPUs compile no operators that nobody needs."""

from __future__ import annotations

import copy
import os
import sys
from types import ModuleType
from typing import Any

from trireme._patches import wrap

_TRAIN, _MICRO, _STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
# With one of these, the workers do not all have batches of their own.
_OTHER_PARALLELISM = ("sequence_parallel_size", "tensor_parallel", "data_parallel_size", "expert_parallel")
_ADAM = ("adam", "adamw")
_TORCH_ADAM = (
    "DeepSpeed: {} of the config is torch's on CPUs, because DeepSpeed's is not installed "
    "(torch_adam=false compiles it)"
)


def skip_shared_memory_op(module: ModuleType) -> None:
    """DeepSpeed would compile an operator for two minutes, in every new environment, that exchanges tensors without
    gloo on CPUs. It is used if it was built when DeepSpeed was installed."""
    from deepspeed.git_version_info import installed_ops

    if not installed_ops.get("deepspeed_shm_comm"):
        vars(module)["build_shm_op"] = lambda: None


def adapt_config(check: Any, module: ModuleType) -> None:
    """check: called with the number of ranks that DeepSpeed has found. module: deepspeed.runtime.config."""
    told = False

    def initialize(original: Any, self: Any, config: Any, mpu: Any = None, mesh_device: Any = None) -> None:
        nonlocal told
        from deepspeed import comm

        if comm.is_initialized():
            check(comm.get_world_size())
        if isinstance(config, (str, os.PathLike)) and os.path.isfile(config):
            from deepspeed.runtime.tensor_parallel.init_utils import load_ds_config

            config = load_ds_config(os.fspath(config))
        if isinstance(config, dict):
            workers = comm.get_world_size() if comm.is_initialized() else 1
            config = resolved(config, workers if mpu is None and mesh_device is None else None)
            if _avoid_compiling_adam(config) and not told and (not comm.is_initialized() or comm.get_rank() == 0):
                told = True
                print(_TORCH_ADAM.format(config["optimizer"]["type"]), file=sys.stderr, flush=True)
        original(self, config, mpu, mesh_device=mesh_device)

    wrap(module.DeepSpeedConfig, "__init__", initialize)


def resolved(config: dict[str, Any], workers: int | None) -> dict[str, Any]:
    """A copy without "auto": batch sizes follow from the number of workers, and DeepSpeed has defaults for the others.

    workers: None if the ranks do not all have batches of their own; then DeepSpeed checks the sizes.
    """
    made = copy.deepcopy(config)
    for name in (_TRAIN, _MICRO, _STEPS, "gradient_clipping"):
        if made.get(name) == "auto":
            del made[name]
    for section in ("optimizer", "scheduler"):
        for name, value in (made.get(section) or {}).get("params", {}).items():
            if value == "auto":
                raise ValueError(
                    f"DeepSpeed config: {section}.params.{name} is 'auto', and only the HF Trainer and Accelerate know "
                    "its value; set a number"
                )
    for section in ("bf16", "fp16", "zero_optimization"):
        part = made.get(section)
        if isinstance(part, dict):
            made[section] = {name: value for name, value in part.items() if value != "auto"}
    if workers is not None and not any(name in made for name in _OTHER_PARALLELISM):
        _set_batch_sizes(made, workers)
    return made


def _set_batch_sizes(config: dict[str, Any], workers: int) -> None:
    train, micro, steps = (config.get(name) for name in (_TRAIN, _MICRO, _STEPS))
    for name, value in ((_TRAIN, train), (_MICRO, micro), (_STEPS, steps)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ValueError(f"DeepSpeed config: {name} is {value!r}; expected a positive integer or 'auto'")
    if train is None and micro is None:
        raise ValueError(
            f"DeepSpeed config: neither {_TRAIN} nor {_MICRO} has a number, so the batch size is unknown; set {_MICRO}"
        )
    if train is None:
        assert micro is not None
        config[_STEPS] = steps or 1
        config[_TRAIN] = micro * config[_STEPS] * workers
        return
    known = (micro or 1) * (steps or 1) * workers
    if train % known or (micro and steps and train != known):
        factors = [f"{micro} ({_MICRO})"] if micro else []
        factors += [f"{steps} ({_STEPS})"] if steps else []
        relation = "is not" if micro and steps else "is not a multiple of"
        product = f" = {known}" if factors else ""
        raise ValueError(
            f"DeepSpeed config: {_TRAIN}={train} {relation} {' x '.join([*factors, f'{workers} (workers)'])}{product}; "
            f"change one of them, or set {_TRAIN} to 'auto'"
        )
    if micro is None:
        config[_MICRO], config[_STEPS] = train // known, steps or 1
    else:
        config[_STEPS] = train // (micro * workers)


def _avoid_compiling_adam(config: dict[str, Any]) -> bool:
    """Returns whether it has changed the config. On CPUs, DeepSpeed compiles its Adam for two minutes in every new
    environment. torch's computes the same."""
    from deepspeed.accelerator import get_accelerator
    from deepspeed.git_version_info import installed_ops

    optimizer = config.get("optimizer") or {}
    parameters = optimizer.setdefault("params", {}) if optimizer else {}
    if (
        get_accelerator().device_name() != "cpu"
        or str(optimizer.get("type", "")).lower() not in _ADAM
        or "torch_adam" in parameters
        or installed_ops.get("cpu_adam")
        or installed_ops.get("fused_adam")
    ):
        return False
    parameters["torch_adam"] = True
    return True
