"""Frameworks that find their ranks by themselves: settings that they need, and a check that they have found all ranks.

Otherwise a wrong setting makes every worker train a model of its own, without an error.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

import torch

from trireme._after_import import after_import
from trireme._context import TrainContext
from trireme._core import count_of
from trireme.torch._lightning import prepare_lightning

_ACCELERATE = (
    "create the Accelerator or TrainingArguments in the training function, and leave RANK, WORLD_SIZE and "
    "ACCELERATE_USE_CPU as Trireme sets them"
)


def prepare_frameworks(context: TrainContext, device: torch.device) -> None:
    """Called in every attempt. A framework that the process has not imported yet is prepared when it is."""
    if device.type == "cpu":
        # Without the first one accelerate and transformers ignore RANK; without the second one DeepSpeed searches for
        # a GPU and warns that it has found none.
        for name, value in (("ACCELERATE_USE_CPU", "true"), ("DS_ACCELERATOR", "cpu")):
            os.environ.setdefault(name, value)
        after_import("deepspeed.comm.torch", _skip_shared_memory_op)
    after_import("accelerate.state", functools.partial(_check_accelerate, context))
    prepare_lightning(context)


def _skip_shared_memory_op(module: ModuleType) -> None:
    """DeepSpeed would compile an operator for two minutes, in every new environment, that exchanges tensors without
    gloo on CPUs. It is used if it was built when DeepSpeed was installed."""
    from deepspeed.git_version_info import installed_ops

    if not installed_ops.get("deepspeed_shm_comm"):
        vars(module)["build_shm_op"] = lambda: None


def _check_accelerate(context: TrainContext, module: ModuleType) -> None:
    state: Any = module.PartialState
    original = getattr(state, "_trireme_original", state.__init__)

    @functools.wraps(original)
    def initialize(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        _check("Accelerate", self.num_processes, context, _ACCELERATE)

    state._trireme_original, state.__init__ = original, initialize


def _check(framework: str, size: int, context: TrainContext, fix: str) -> None:
    if size != context.get_world_size():
        raise RuntimeError(
            f"{framework} has found {count_of(size, 'process')} and the run has "
            f"{count_of(context.get_world_size(), 'worker')}, so every worker would train a model of its own; {fix}"
        )
