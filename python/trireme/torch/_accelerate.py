"""Accelerate on the workers of a run: it finds all ranks, also with plugins on CPUs, and does not start processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from trireme._patches import wrap

Check = Callable[[int], None]


def find_ranks(check: Check, on_cpu: bool, module: ModuleType) -> None:
    """module: accelerate.state. check: called with the number of processes that Accelerate has found."""

    def initialize(original: Any, self: Any, cpu: bool = False, **options: Any) -> None:
        # PartialState() itself does not read the variable.
        original(self, cpu=(cpu or _uses_cpu()) and not _shards(), **options)
        check(self.num_processes)

    wrap(module.PartialState, "__init__", initialize)
    if on_cpu:
        _allow_plugins_on_cpu(module)


def _allow_plugins_on_cpu(module: ModuleType) -> None:
    """On CPUs, Accelerate silently ignores the plugins of FSDP and DeepSpeed and trains with DDP. It accepts
    them on every other device, so its states are initialized as for one that has no backend of its own."""
    partial: Any = module.PartialState
    state: Any = module.AcceleratorState
    state._trireme_plugin_on_cpu = False

    def prepare_backend(original: Any, self: Any, *arguments: Any, **options: Any) -> Any:
        if _shards() and (_uses_cpu() or state._trireme_plugin_on_cpu):
            return "gloo", module.DistributedType.MULTI_GPU
        return original(self, *arguments, **options)

    def initialize(
        original: Any, self: Any, mixed_precision: Any = None, cpu: bool = False, *rest: Any, **options: Any
    ) -> None:
        if not (_uses_cpu() and _shards()):
            original(self, mixed_precision, cpu, *rest, **options)
            return
        before = os.environ["ACCELERATE_USE_CPU"]
        os.environ["ACCELERATE_USE_CPU"] = "false"
        state._trireme_plugin_on_cpu = True
        shared: dict[str, Any] = partial._shared_state
        if not state._shared_state and shared.get("distributed_type") == module.DistributedType.MULTI_CPU:
            # TrainingArguments has created the PartialState, before there was a plugin.
            shared["distributed_type"] = module.DistributedType.MULTI_GPU
        try:
            original(self, mixed_precision, False, *rest, **options)
        finally:
            os.environ["ACCELERATE_USE_CPU"] = before
            state._trireme_plugin_on_cpu = False

    wrap(partial, "_prepare_backend", prepare_backend)
    wrap(state, "__init__", initialize)


def refuse_synchronized_start(module: ModuleType) -> None:
    """FSDP 1 broadcasts parameters on GPUs only. module: accelerate.utils.dataclasses."""

    def initialize(original: Any, self: Any) -> None:
        try:
            original(self)
        except RuntimeError as error:
            if not self.sync_module_states:
                raise
            raise ValueError(
                "FullyShardedDataParallelPlugin(fsdp_version=1, sync_module_states=True) needs GPUs, and the workers "
                "have none; use fsdp_version=2 (in a config file, `fsdp_version: 2`)"
            ) from error

    wrap(module.FullyShardedDataParallelPlugin, "__post_init__", initialize)


def _uses_cpu() -> bool:
    return _is_set("ACCELERATE_USE_CPU")


def _shards() -> bool:
    """Whether the Accelerator, or the HF Trainer, has a plugin: both set these variables first."""
    return _is_set("ACCELERATE_USE_DEEPSPEED") or _is_set("ACCELERATE_USE_FSDP")


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "y", "t", "on")


def refuse_launchers(module: ModuleType) -> None:
    """module: accelerate.launchers."""
    for name in ("notebook_launcher", "debug_launcher"):
        for place in (module, sys.modules.get("accelerate")):
            if place is not None and hasattr(place, name):
                setattr(place, name, _refused(name))


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"accelerate.{name}() was called in a worker, and would start processes of its own: call its function "
            "directly; the run has started the workers, ScalingConfig(num_workers=...) says how many"
        )

    return refuse


def apply_config_file(module: ModuleType) -> None:
    """Before the first Accelerator, applies the file of ACCELERATE_CONFIG_FILE. module: accelerate.accelerator."""
    applied = False

    def initialize(original: Any, self: Any, *arguments: Any, **options: Any) -> None:
        nonlocal applied
        file = os.environ.get("ACCELERATE_CONFIG_FILE")
        if file and not applied:
            from trireme.accelerate._config_file import load_config

            load_config(file)
            applied = True
        original(self, *arguments, **options)

    wrap(module.Accelerator, "__init__", initialize)
