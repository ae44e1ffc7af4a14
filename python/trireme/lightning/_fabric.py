"""prepare_fabric(): makes sure that the Fabric objects of all workers train one model."""

from __future__ import annotations

import functools
from typing import Any

from trireme._session import current_session
from trireme.lightning._loaders import with_position
from trireme.lightning._package import LIGHTNING, PYTORCH_LIGHTNING, Package, checked
from trireme.lightning._strategies import environment_class
from trireme.torch._device import devices_of


def prepare_fabric(fabric: Any) -> Any:
    """Returns the Fabric, ready to train one model on all workers: call it before `launch()` and `setup()`.

    A Fabric without a strategy (`devices="auto"`, `devices=1`) gets Lightning's DDPStrategy. Strategies for several
    processes use the process group, the ranks and the device of the worker. `setup_dataloaders()` divides loaders as
    `trireme.torch.prepare_data_loader()` does: their position is part of every checkpoint.
    """
    found = _package_of(fabric)
    if found is None:
        names = f"{LIGHTNING.fabric}.Fabric or a {PYTORCH_LIGHTNING.fabric}.Fabric"
        raise TypeError(f"prepare_fabric() expects a {names}, got {type(fabric).__module__}.{type(fabric).__name__}")
    checked(found)
    context = current_session("prepare_fabric").context
    strategies = found.fabric_module("strategies")
    strategy = fabric._strategy
    if isinstance(strategy, strategies.SingleDeviceStrategy):
        strategy = strategies.DDPStrategy(accelerator=strategy.accelerator, precision=strategy.precision)
        strategy.checkpoint_io = fabric._strategy.checkpoint_io
        fabric._strategy = fabric._connector.strategy = strategy
    elif not isinstance(strategy, strategies.ParallelStrategy) or not hasattr(strategy, "_setup_distributed"):
        raise ValueError(
            f"prepare_fabric(): Fabric(strategy={type(strategy).__name__}) does not use the process group of this "
            "worker; pass strategy='ddp', 'fsdp' or 'deepspeed', or a ModelParallelStrategy"
        )
    strategy.cluster_environment = environment_class(found)()
    strategy.parallel_devices = [devices_of(context)[0]] * context.get_local_world_size()
    strategy._num_nodes = context._num_nodes
    strategy._launcher = None  # the workers are the processes
    _take_over_loaders(fabric)
    return fabric


def _take_over_loaders(fabric: Any) -> None:
    original = fabric._setup_dataloader

    @functools.wraps(original)
    def set_up(dataloader: Any, use_distributed_sampler: bool = True, move_to_device: bool = True) -> Any:
        splits = use_distributed_sampler and fabric._requires_distributed_sampler(dataloader)
        prepared = None if _in_groups(fabric) else with_position(dataloader, splits)
        if prepared is None:
            return original(dataloader, use_distributed_sampler, move_to_device)
        made = original(prepared, False, move_to_device)
        # It counts epochs from the start of the process, and passes them to the sampler.
        made._num_iter_calls = prepared.epoch
        return made

    fabric._setup_dataloader = set_up


def _in_groups(fabric: Any) -> bool:
    """Whether several workers share a part of the data, as with tensor parallelism."""
    mesh = getattr(fabric._strategy, "_device_mesh", None)
    return mesh is not None and mesh["data_parallel"].size() != fabric.world_size


def _package_of(fabric: object) -> Package | None:
    modules = {base.__module__ for base in type(fabric).__mro__ if base.__name__ == "Fabric"}
    for found in (LIGHTNING, PYTORCH_LIGHTNING):
        if any(module.startswith(f"{found.fabric}.") for module in modules):
            return found
    return None
