"""Ray's DataConfig, and the iterators that an own configure() gives to the workers."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import trireme
from trireme import _ship

_PATIENCE_S = 1800.0


class DataConfig(trireme.DataConfig):
    """Every worker gets the same number of rows, and the remainder is dropped, as in Ray."""

    def __init__(
        self,
        datasets_to_split: Any = "all",
        execution_options: Any = None,
        enable_shard_locality: bool = True,
        **ours: Any,
    ) -> None:
        if datasets_to_split != "all" and not isinstance(datasets_to_split, list):
            raise TypeError(
                f"DataConfig(datasets_to_split={datasets_to_split!r}): expected 'all' or a list of dataset names"
            )
        ours.setdefault("equal", True)
        if execution_options is not None and not ours.keys() & {"num_threads", "memory_budget"}:
            ours |= _limits(execution_options)
        super().__init__(datasets_to_split=datasets_to_split, **ours)
        self.execution_options = execution_options
        self.enable_shard_locality = enable_shard_locality

    def configure(
        self,
        datasets: dict[str, Any],
        world_size: int,
        worker_handles: list[Any] | None = None,
        worker_node_ids: list[str] | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """The iterators of each rank by name. Called only if a derived class replaces it."""
        split = set(datasets) if self.datasets_to_split == "all" else set(self.datasets_to_split)
        by_name = {
            name: dataset.streaming_split(world_size, equal=True)
            if name in split
            else [dataset.iterator() for _ in range(world_size)]
            for name, dataset in datasets.items()
        }
        return [{name: parts[rank] for name, parts in by_name.items()} for rank in range(world_size)]

    @staticmethod
    def default_ingest_options() -> Any:
        from trireme.data import DataContext

        return DataContext.get_current().copy().execution_options


def _limits(options: Any) -> dict[str, Any]:
    """Only the limits for all datasets together: a worker has one budget."""
    if isinstance(options, dict):
        return {}
    memory = options.resource_limits.object_store_memory
    return {} if memory is None else {"memory_budget": int(memory)}


@dataclass(frozen=True)
class Configured:
    """The trainer's datasets, if the script divides them itself."""

    config: DataConfig
    datasets: dict[str, Any]
    v1: bool

    @classmethod
    def of(cls, config: Any, datasets: Mapping[str, Any] | None, v1: bool) -> Configured | None:
        if not datasets or not isinstance(config, DataConfig) or type(config).configure is DataConfig.configure:
            return None
        return cls(config, dict(datasets), v1)

    def shards(self, context: Any, core: Any) -> ConfiguredShards:
        """Rank 0 calls configure() and sends the others their iterators."""
        rank, world = context.get_world_rank(), context.get_world_size()
        if rank != 0:
            return ConfiguredShards(pickle.loads(core.store_get(_key(context, rank), _PATIENCE_S)))
        from trireme.compat.ray._cluster import _node_id
        from trireme.data._trainer_datasets import _dataset_of

        datasets = {name: _dataset_of(name, given) for name, given in self.datasets.items()}
        made: list[dict[str, Any]] = [{} for _ in range(world)]
        # The second version asks for one dataset at a time.
        for asked in [datasets] if self.v1 else [{name: each} for name, each in datasets.items()]:
            parts = self.config.configure(asked, world, worker_handles=None, worker_node_ids=[_node_id()] * world)
            if not isinstance(parts, list) or len(parts) != world or not all(isinstance(each, dict) for each in parts):
                kind = type(self.config).__name__
                raise ValueError(f"{kind}.configure() must return a list of {world} dicts, one per rank, got {parts!r}")
            for rank, part in enumerate(parts):
                made[rank] |= part
        for other in range(1, world):
            core.store_set(_key(context, other), _ship.dumps(made[other]))
        return ConfiguredShards(made[0])


def _key(context: Any, rank: int) -> str:
    return f"ray_shards/{context._attempt}/{rank}"


class ConfiguredShards:
    """What get_dataset_shard() asks, in place of the worker's own datasets."""

    def __init__(self, shards: dict[str, Any]) -> None:
        self._plans = shards

    def get(self, name: str | None) -> Any:
        if name is None and len(self._plans) == 1:
            name = next(iter(self._plans))
        if name not in self._plans:
            raise KeyError(f"no dataset {name!r}: configure() has returned {', '.join(map(repr, self._plans))}")
        return self._plans[name]
