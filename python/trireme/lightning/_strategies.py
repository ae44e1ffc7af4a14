"""Lightning's strategies on the process group and the device of a worker."""

from __future__ import annotations

import os
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trireme._session import current_session
from trireme.lightning._deepspeed import also_on_cpus
from trireme.lightning._loaders import take_over_training_loaders
from trireme.lightning._package import Package, package
from trireme.torch._device import devices_of

if TYPE_CHECKING:
    DDPStrategy = FSDPStrategy = ModelParallelStrategy = DeepSpeedStrategy = LightningEnvironment = Any

STRATEGIES = ("DDPStrategy", "FSDPStrategy", "ModelParallelStrategy", "DeepSpeedStrategy")


def classes() -> Any:
    return classes_of(package())


@cache
def classes_of(found: Package) -> Any:
    """The five classes, derived from those of one package. Pickled by name: a worker makes its own."""
    strategies = found.module("strategies")
    environment = environment_class(found)
    made = {"LightningEnvironment": environment}
    for name in STRATEGIES:
        base = getattr(strategies, name)
        made[name] = _strategy(also_on_cpus(base, found) if name == "DeepSpeedStrategy" else base, environment)
    for name, each in made.items():
        each.__module__, each.__name__, each.__qualname__ = "trireme.lightning", name, name
    return SimpleNamespace(**made)


def _strategy(base: Any, environment: Any) -> Any:
    class Strategy(base):  # type: ignore[misc]
        cluster_environment: Any

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._has_environment = self.cluster_environment is not None

        def _configure_launcher(self) -> None:
            # Not in the constructor: Lightning refuses a strategy that comes with an environment beside a plugin.
            if not self._has_environment:
                self.cluster_environment = environment()
                self.set_world_ranks()
            super()._configure_launcher()

        @property
        def root_device(self) -> Any:
            return devices_of(current_session("trireme.lightning").context)[0]

        @property
        def num_processes(self) -> int:
            return current_session("trireme.lightning").context.get_local_world_size()

        @property
        def distributed_sampler_kwargs(self) -> dict[str, Any]:
            if _data_parallel_size(self) is not None:
                return super().distributed_sampler_kwargs  # type: ignore[no-any-return]
            context = current_session("trireme.lightning").context
            return {"num_replicas": context.get_world_size(), "rank": context.get_world_rank()}

        def setup_environment(self) -> None:
            context = current_session("trireme.lightning").context
            if base.__name__ == "FSDPStrategy" and self.root_device.type == "cpu":
                raise ValueError(
                    "trireme.lightning.FSDPStrategy: Lightning's FSDPStrategy needs GPUs, and the workers have none; "
                    "ModelParallelStrategy shards models on CPUs too, or pass ScalingConfig(use_gpu=True)"
                )
            self.num_nodes = context._num_nodes
            super().setup_environment()
            if _data_parallel_size(self) in (None, context.get_world_size()):
                take_over_training_loaders(self.lightning_module.trainer)

    return Strategy


def _data_parallel_size(strategy: Any) -> int | None:
    """In how many parts a strategy with a mesh divides the data; None: among all workers."""
    mesh = getattr(strategy, "_device_mesh", None)
    return None if mesh is None else mesh["data_parallel"].size()


@cache
def environment_class(found: Package) -> Any:
    base: Any = found.fabric_module("plugins.environments").LightningEnvironment

    class Environment(base):  # type: ignore[misc]
        """Ranks and sizes of this worker. Trireme has started the processes and connected them."""

        def __init__(self) -> None:
            super().__init__()
            self._context = current_session("trireme.lightning").context

        @property
        def creates_processes_externally(self) -> bool:
            return True

        @property
        def main_address(self) -> str:
            return os.environ.get("MASTER_ADDR", "127.0.0.1")

        @property
        def main_port(self) -> int:
            return int(os.environ.get("MASTER_PORT", "0"))

        def world_size(self) -> int:
            return self._context.get_world_size()

        def global_rank(self) -> int:
            return self._context.get_world_rank()

        def local_rank(self) -> int:
            return self._context.get_local_rank()

        def node_rank(self) -> int:
            return self._context.get_node_rank()

        def set_world_size(self, size: int) -> None:
            """Lightning computes it from `devices` and `num_nodes`; the run knows it."""

        def set_global_rank(self, rank: int) -> None:
            """Likewise."""

        def teardown(self) -> None:
            """The process group belongs to the trainer of Trireme and serves the next fit() of the function as well."""

    return Environment
