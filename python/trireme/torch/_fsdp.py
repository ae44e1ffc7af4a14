"""Fully sharded data parallel: torch's fully_shard, on GPUs and on the CPU."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from trireme._patches import wrap


def is_sharded(model: torch.nn.Module) -> bool:
    # Importing FSDP takes nearly as long as importing torch. No model is sharded before that.
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
    return kind is not None and isinstance(model, kind)


def _fully_shard() -> Callable[..., torch.nn.Module]:
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        raise RuntimeError(
            f"parallel_strategy='fsdp' needs torch 2.6 or newer, and this is {torch.__version__}; use 'ddp'"
        ) from None
    made: Callable[..., torch.nn.Module] = fully_shard
    return made


def sharding_options() -> set[str]:
    return set(inspect.signature(_fully_shard()).parameters) - {"module"} | {"layers"}


def shard(model: torch.nn.Module, device: torch.device, options: dict[str, Any]) -> torch.nn.Module:
    """fully_shard itself moves the modules to the mesh's device, one at a time."""
    from torch.distributed.device_mesh import init_device_mesh

    fully_shard = _fully_shard()
    options = dict(options)
    layers = tuple(options.pop("layers", ()))
    mesh = options["mesh"] = options.get("mesh") or init_device_mesh(device.type, (dist.get_world_size(),))
    for group in mesh.get_all_groups():
        _start_equal(model, device, group)
    for module in list(model.modules()):
        if layers and module is not model and isinstance(module, layers) and not is_sharded(module):
            fully_shard(module, **options)
    return fully_shard(model, **options)


def _start_equal(model: torch.nn.Module, device: torch.device, group: dist.ProcessGroup) -> None:
    """Broadcasts the first rank's weights, as DistributedDataParallel does; otherwise the ranks would hold shards of
    different models."""
    from torch.distributed.tensor import DTensor

    source = dist.get_process_group_ranks(group)[0]
    for tensor in [*model.parameters(), *model.buffers()]:
        if isinstance(tensor, DTensor) or tensor.is_meta:  # already sharded, or without values
            continue
        there = tensor.detach().to(device)
        dist.broadcast(there, source, group)
        tensor.detach().copy_(there)


def keep_parameters_on_cpu(module: ModuleType) -> None:
    """FSDP 1 collects the state of a model on rank 0's CPU. On CPUs it copies nothing, and then frees the parameters.
    module: torch.distributed.fsdp._flat_param."""

    def to_cpu(original: Any, self: Any) -> Any:
        return contextlib.nullcontext() if self.flat_param.device.type == "cpu" else original(self)

    wrap(module.FlatParamHandle, "to_cpu", to_cpu)
