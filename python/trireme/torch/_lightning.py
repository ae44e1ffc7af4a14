"""Lightning in a worker, with or without the adapter: its processes are those of the run, and its signals ours."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from trireme._after_import import after_import
from trireme._context import TrainContext
from trireme._core import count_of
from trireme._patches import wrap

_PACKAGES = (("lightning.pytorch", "lightning.fabric"), ("pytorch_lightning", "lightning_fabric"))


def prepare_lightning(context: TrainContext) -> None:
    """Called in every attempt; takes effect when a package is imported."""
    for trainer, fabric in _PACKAGES:
        after_import(f"{trainer}.trainer.trainer", functools.partial(_check_trainer, context))
        after_import(f"{trainer}.trainer.connectors.signal_connector", _leave_signals_alone)
        after_import(f"{fabric}.fabric", functools.partial(_check_fabric, context))


def _check_trainer(context: TrainContext, module: ModuleType) -> None:
    def run(original: Any, self: Any, *arguments: Any, **options: Any) -> Any:
        _check("Lightning", "Trainer", "prepare_trainer(trainer)", self.world_size, context)
        return original(self, *arguments, **options)

    wrap(module.Trainer, "_run", run)


def _check_fabric(context: TrainContext, module: ModuleType) -> None:
    """Before it connects its processes, and before whatever needs them: with one device, it never connects."""

    def call(original: Any, self: Any, *arguments: Any, **options: Any) -> Any:
        _check("Lightning Fabric", "Fabric", "prepare_fabric(fabric)", self.world_size, context)
        return original(self, *arguments, **options)

    for name in ("_wrap_and_launch", "_validate_launched"):
        wrap(module.Fabric, name, call)


def _check(framework: str, kind: str, adapter: str, size: int, context: TrainContext) -> None:
    if size == context.get_world_size():
        return
    local, nodes = context.get_local_world_size(), context._num_nodes
    workers = count_of(context.get_world_size(), "worker")
    raise RuntimeError(
        f"{framework} has found {count_of(size, 'process')} and the run has {workers}, so every worker would train a "
        f"model of its own; pass {kind}(devices={local}, num_nodes={nodes}, strategy='ddp'), or "
        f"trireme.lightning.{adapter}"
    )


def _leave_signals_alone(module: ModuleType) -> None:
    """A SIGTERM announces a preemption to Trireme. Lightning's handler would broadcast while the other ranks are in
    other collectives, and end the training."""

    def register(self: Any) -> None:
        self.received_sigterm = False

    module._SignalConnector.register_signal_handlers = register
