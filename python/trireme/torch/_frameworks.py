"""Frameworks that find their ranks by themselves: settings that they need, and a check that they have found all ranks.

Otherwise a wrong setting makes every worker train a model of its own, without an error.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType

import torch

from trireme._after_import import after_import
from trireme._context import TrainContext
from trireme._core import count_of
from trireme.keras._hooks import prepare_keras
from trireme.torch._accelerate import (
    apply_config_file,
    find_ranks,
    refuse_launchers,
    refuse_synchronized_start,
)
from trireme.torch._accelerate_loaders import keep_positions
from trireme.torch._deepspeed import adapt_config, skip_shared_memory_op
from trireme.torch._deepspeed_loader import prepare_training_data
from trireme.torch._fsdp import keep_parameters_on_cpu
from trireme.torch._lightning import prepare_lightning

_ACCELERATE = (
    "create the Accelerator or TrainingArguments in the training function, and leave RANK, WORLD_SIZE and "
    "ACCELERATE_USE_CPU as Trireme sets them"
)
_DEEPSPEED = (
    "call deepspeed.initialize() in the training function, without creating a process group first, and leave RANK and "
    "WORLD_SIZE as Trireme sets them"
)


def prepare_frameworks(context: TrainContext, device: torch.device) -> None:
    """Called in every attempt. A framework that the process has not imported yet is prepared when it is."""
    if device.type == "cpu":
        _choose_cpu()
    _prepare_huggingface_and_deepspeed(context, device.type == "cpu")
    prepare_lightning(context)
    prepare_keras(context, "torch")


def prepare_frameworks_of_script(context: TrainContext) -> None:
    """For scripts of `trireme launch`, which choose their device themselves: an accelerator if there is one."""
    on_cpu = not torch.accelerator.is_available()
    if on_cpu:
        _choose_cpu()
    _prepare_huggingface_and_deepspeed(context, on_cpu)
    prepare_lightning(context)


def _choose_cpu() -> None:
    # Without the first one accelerate and transformers ignore RANK; without the second one Accelerate's plugins look
    # for GPUs; without the third one DeepSpeed does, and warns that it has found none.
    defaults = {"ACCELERATE_USE_CPU": "true", "ACCELERATE_TORCH_DEVICE": "cpu", "DS_ACCELERATOR": "cpu"}
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def _prepare_huggingface_and_deepspeed(context: TrainContext, on_cpu: bool) -> None:
    def check_accelerate(size: int) -> None:
        _check("Accelerate", size, context, _ACCELERATE)

    def check_deepspeed(size: int) -> None:
        _check("DeepSpeed", size, context, _DEEPSPEED)

    def prepare_accelerator(module: ModuleType) -> None:
        apply_config_file(module)
        keep_positions(module)

    after_import("accelerate.state", functools.partial(find_ranks, check_accelerate, on_cpu))
    after_import("accelerate.launchers", refuse_launchers)
    after_import("accelerate.accelerator", prepare_accelerator)
    after_import("deepspeed.runtime.config", functools.partial(adapt_config, check_deepspeed))
    after_import("deepspeed.runtime.dataloader", functools.partial(prepare_training_data, context))
    if on_cpu:
        after_import("accelerate.utils.dataclasses", refuse_synchronized_start)
        after_import("deepspeed.comm.torch", skip_shared_memory_op)
        after_import("torch.distributed.fsdp._flat_param", keep_parameters_on_cpu)


def _check(framework: str, size: int, context: TrainContext, fix: str) -> None:
    if size != context.get_world_size():
        raise RuntimeError(
            f"{framework} has found {count_of(size, 'process')} and the run has "
            f"{count_of(context.get_world_size(), 'worker')}, so every worker would train a model of its own; {fix}"
        )
