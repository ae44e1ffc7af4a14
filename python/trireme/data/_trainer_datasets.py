"""The datasets of a trainer, on the driver and in its workers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from trireme import _core
from trireme._config import ConfigError, DataConfig
from trireme._context import TrainContext
from trireme._positions import Positions
from trireme.data._context import DataContext
from trireme.data._dataset import Dataset
from trireme.data._iterator import DataIterator, Part
from trireme.data._memory import from_arrow
from trireme.data._planned import Planned


class DatasetPlans:
    """The datasets as the driver sends them to the workers: fragments, seeds, and how they are divided. Picklable."""

    def __init__(self, datasets: Mapping[str, Any], config: DataConfig | None, max_workers: int) -> None:
        self._config = (config or DataConfig()).to_dict()
        _core.check_datasets(list(datasets), self._config)
        self._plans = {name: _dataset_of(name, given).plan() for name, given in datasets.items()}
        self._shards = {name: self._shard(name, plan, max_workers) for name, plan in self._plans.items()}
        self._context = DataContext.get_current().copy()
        self._context.execution_options.validate()
        self._sent = False  # whether this is the copy of a worker

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _sent=True)

    @property
    def logged(self) -> list[str]:
        """The names of the datasets whose samples the workers log."""
        return list(self._plans) if self._config["log_samples"] else []

    @property
    def has_functions(self) -> bool:
        return any(plan.has_functions for plan in self._plans.values())

    def shards(self, context: TrainContext, positions: Positions) -> WorkerDatasets:
        if self._sent:
            DataContext._set_current(self._context)
        return WorkerDatasets({name: self._part(name, context) for name in self._plans}, self._plans, positions)

    def _shard(self, name: str, plan: Planned, max_workers: int) -> dict[str, Any]:
        own = plan.shuffle.seed if plan.shuffle is not None else None
        seed = None if own is None else int(own) % 2**63
        try:
            return dict(_core.plan_shard(name, plan.rows, self._config, max_workers, seed))
        except ConfigError as error:
            raise ValueError(f"datasets[{name!r}] ({plan.name}): {error}") from None

    def _limited(self, world: int) -> dict[str, Any]:
        """The configuration for one of `world` workers: limits of the DataContext apply where DataConfig has none."""
        limits = self._context.execution_options.resource_limits
        limited = dict(self._config)
        if limited["num_threads"] is None and limits.cpu is not None:
            limited["num_threads"] = max(int(limits.cpu // world), 1)
        if limited["memory_budget"] is None and limits.object_store_memory is not None:
            limited["memory_budget"] = max(int(limits.object_store_memory // world), 1)
        return limited

    def _part(self, name: str, context: TrainContext) -> Part:
        worker = {
            "rank": context.get_world_rank(),
            "world": context.get_world_size(),
            "workers_here": context.get_local_world_size(),
            "attempt": context._attempt,
            "run_folder": context._path or "",
        }
        shard = self._shards[name]
        options, virtual_shards = _core.shard_options(shard, self._limited(context.get_world_size()), worker)
        return Part(seed=shard["seed"], virtual_shards=virtual_shards, place_counts=True, **options)


class WorkerDatasets:
    """A worker's parts of the datasets, created on first use."""

    def __init__(self, parts: Mapping[str, Part], plans: Mapping[str, Planned], positions: Positions) -> None:
        self._parts = parts
        self._plans = plans
        self._positions = positions
        self._made: dict[str, DataIterator] = {}

    def get(self, name: str | None) -> DataIterator:
        if name is None and len(self._plans) == 1:
            name = next(iter(self._plans))
        if name is None or name not in self._plans:
            known = ", ".join(repr(each) for each in self._plans)
            raise KeyError(f"no dataset {name!r}: the trainer was given {known}")
        if name not in self._made:
            made = DataIterator(self._plans[name], self._parts[name])
            stored = self._positions.add_named(f"data/{name}", made._position)
            if stored is not None:
                self._check_same(name, stored)
                made.load_state(stored)
            self._made[name] = made
        return self._made[name]

    def _check_same(self, name: str, stored: Mapping[str, Any]) -> None:
        """Only warns: rewritten files may have the same content."""
        before = stored.get("fingerprint")
        if stored["rows"] and before is not None and before != self._plans[name].fingerprint:
            warnings.warn(
                f"dataset {name!r} has changed since the checkpoint was created in the middle of an epoch: rows of "
                "this epoch may be repeated or skipped",
                stacklevel=4,
            )

    def totals(self) -> dict[str, Any] | None:
        """The totals read so far, for the progress line, and the rows logged per dataset; None: nothing."""
        made = dict(self._made)  # another thread may request a dataset meanwhile
        if not made:
            return None
        found = [each._totals() for each in made.values()]
        totals = {key: sum(each[key] for each in found) for key in ("rows", "bytes", "wait_s")}
        logged = {name: each._logged_rows() for name, each in made.items()}
        logged = {name: rows for name, rows in logged.items() if rows is not None}
        return {**totals, "logged": logged} if logged else totals

    def finish(self) -> None:
        """Called when the training function has returned. Completes the digests, so that missing lines are detected."""
        for name, part in self._parts.items():
            made = self._made.get(name)
            if made is not None and made._made is not None:
                made._made.finish()
            elif folder := part.options["digest_folder"]:
                rank, attempt = part.options["log_rank"], part.options["attempt"]
                at = self._positions.unclaimed(f"data/{name}") or {"epoch": 0, "rows": 0}
                _core.finish_unused_dataset(folder, name, rank, attempt, at["epoch"], at["rows"])

    def close(self) -> None:
        for made in self._made.values():
            made._close()
        self._made.clear()


def _dataset_of(name: str, given: Any) -> Dataset:
    if not isinstance(given, Dataset) and callable(given):
        given = given()  # a factory
    if isinstance(given, Dataset):
        return given
    if hasattr(given, "__arrow_c_stream__"):
        return from_arrow(given)
    raise TypeError(
        f"datasets[{name!r}] must be a trireme.data.Dataset (or a function that returns one, or a table), got "
        f"{type(given).__name__}; create one with trireme.data.from_items(), from_pandas(), from_numpy() or others"
    )


def check_names(datasets: Any) -> dict[str, Any]:
    if not isinstance(datasets, dict):
        raise TypeError(f"datasets must be a dict of names to Datasets, got {type(datasets).__name__}")
    for name in datasets:
        if not isinstance(name, str):
            raise TypeError(f"datasets: invalid name {name!r}; a name must be a string")
    _core.check_datasets(list(datasets), DataConfig().to_dict())
    return datasets
