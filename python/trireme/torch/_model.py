"""prepare_model(): moves a module to its device and wraps it for training on many workers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from trireme._session import current_session
from trireme.torch._compare import check_same_module
from trireme.torch._device import devices_of
from trireme.torch._fsdp import is_sharded, shard, sharding_options
from trireme.torch._group import process_group_ready
from trireme.torch._settings import settings_of

# All prepared models, including those of a single worker, which are not wrapped.
_prepared: WeakSet[torch.nn.Module] = WeakSet()


def prepare_model(
    model: torch.nn.Module,
    move_to_device: bool | torch.device = True,
    parallel_strategy: str | None = "ddp",
    parallel_strategy_kwargs: dict[str, Any] | None = None,
) -> torch.nn.Module:
    """Move the model to this worker's device and, with more than one worker, wrap it for distributed training.

    move_to_device: whether to move the model, or the target device.
    parallel_strategy: "ddp" (every worker has a full copy and gradients are averaged), "fsdp" (every worker keeps a
        part of each parameter) or None. All workers start with rank 0's weights.
    parallel_strategy_kwargs: for DistributedDataParallel or fully_shard. With "fsdp" also `layers`: module classes
        that are sharded separately, so that only one of them is unsharded at a time.
    """
    session = current_session("prepare_model")
    options = _checked_options(parallel_strategy, parallel_strategy_kwargs or {})
    _check_model(model, parallel_strategy)
    workers = session.context.get_world_size()
    device = move_to_device if isinstance(move_to_device, torch.device) else devices_of(session.context)[0]
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if workers > 1 and parallel_strategy is not None:
        process_group_ready("prepare_model")
        for group in _groups_of(options):
            check_same_module(model, group)
    if precision := settings_of(session).precision:
        precision.apply_to(model)
    if parallel_strategy == "fsdp" and workers > 1:
        made = shard(model, device, options)
    else:
        made = model.to(device) if move_to_device else model
        if parallel_strategy == "ddp" and workers > 1:
            made = _data_parallel(made, options)
    if parallel_strategy is not None:
        _prepared.update({model, made})
    return made


def _data_parallel(model: torch.nn.Module, options: dict[str, Any]) -> torch.nn.Module:
    places = {parameter.device for parameter in model.parameters()}
    # device_ids is required for a module on one GPU and not allowed on the CPU or on several devices.
    if len(places) == 1 and (place := places.pop()).type == "cuda":
        options = {"device_ids": [place], **options}
    return DistributedDataParallel(model, **options)


def _check_model(model: Any, strategy: str | None) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"prepare_model() expects a torch.nn.Module, got {type(model).__name__}")
    name = type(model).__name__
    if model in _prepared or isinstance(model, DistributedDataParallel) or is_sharded(model):
        raise ValueError(f"prepare_model(): this {name} is already prepared; prepare a model once and keep the result")
    if strategy is None:
        return
    parameters = list(model.parameters())
    wanted = "it cannot be trained in parallel; use parallel_strategy=None to only move it to the device"
    if not parameters:
        raise ValueError(f"prepare_model(): {name} has no parameters: {wanted}")
    if not any(parameter.requires_grad for parameter in parameters):
        raise ValueError(f"prepare_model(): none of {name}'s {len(parameters)} parameters requires grad: {wanted}")


def _checked_options(strategy: str | None, options: dict[str, Any]) -> dict[str, Any]:
    known = {"ddp": _ddp_options, "fsdp": sharding_options}
    if strategy is not None and strategy not in known:
        raise ValueError(f"prepare_model(parallel_strategy={strategy!r}): expected 'ddp', 'fsdp' or None")
    if strategy is None and not options:
        return options
    mine = known[strategy]() if strategy else set()
    for name in options:
        if name in mine:
            continue
        others = [repr(other) for other, names in known.items() if other != strategy and name in names()]
        belongs = f"is an option of {' and '.join(others)}" if others else "is unknown"
        takes = ", ".join(sorted(mine)) or "no options"
        raise ValueError(f"parallel_strategy_kwargs: {name!r} {belongs}; {strategy!r} accepts {takes}")
    return options


def _ddp_options() -> set[str]:
    return _arguments_of(DistributedDataParallel.__init__) - {"self", "module"}


def _arguments_of(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters)


def _groups_of(options: dict[str, Any]) -> list[dist.ProcessGroup]:
    """The groups whose ranks must hold the same module. In a pipeline, for example, other stages hold others."""
    if mesh := options.get("mesh", options.get("device_mesh")):
        groups: list[dist.ProcessGroup] = mesh.get_all_groups()
        return groups
    return [options.get("process_group") or dist.group.WORLD]
