"""The datasets of a trainer, on the driver and in its workers."""

from __future__ import annotations

import os
import re
import secrets
import warnings
from collections.abc import Mapping
from typing import Any

from trireme import _core
from trireme._config import ConfigError, DataConfig
from trireme._context import TrainContext
from trireme._core import count_of
from trireme._positions import Positions
from trireme.data._dataset import Dataset
from trireme.data._iterator import DataIterator, Part
from trireme.data._memory import from_arrow
from trireme.data._planned import Planned

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class DatasetPlans:
    """The datasets as the driver sends them to the workers: fragments, seeds, and how they are divided. Picklable."""

    def __init__(self, datasets: Mapping[str, Any], config: DataConfig | None, max_workers: int) -> None:
        self._config = config or DataConfig()
        self._split = _split_names(self._config, datasets)
        self._max_workers = max(max_workers, 1)
        self._plans = {name: _dataset_of(name, given).plan() for name, given in datasets.items()}
        for name, plan in self._plans.items():
            _check_size(name, plan, self._max_workers if name in self._split else 1)
        self._seeds = {name: self._seed(plan) for name, plan in self._plans.items()}
        self._budget = _core.memory_budget(self._config.to_dict())

    @property
    def has_functions(self) -> bool:
        return any(plan.has_functions for plan in self._plans.values())

    def shards(self, context: TrainContext, positions: Positions) -> WorkerDatasets:
        return WorkerDatasets({name: self._part(name, context) for name in self._plans}, self._plans, positions)

    def _seed(self, plan: Planned) -> int:
        """The seed of the dataset or the configuration, or a new one, which is stored in checkpoints."""
        own = plan.shuffle.seed if plan.shuffle is not None else None
        for seed in (own, self._config.seed):
            if seed is not None:
                return int(seed) % 2**63
        return secrets.randbits(63)

    def _part(self, name: str, context: TrainContext) -> Part:
        split = name in self._split
        rank, world = context.get_world_rank(), context.get_world_size()
        return Part(
            name=name,
            rank=rank if split else 0,
            world=world if split else 1,
            max_world=self._max_workers if split else 1,
            equal=self._config.equal,
            seed=self._seeds[name],
            # A dataset that is not split is read completely by every worker: it needs no virtual shards.
            virtual_shards=self._config.virtual_shards if split else 1,
            threads=self._config.num_threads,
            memory_budget=self._budget,
            workers_here=context.get_local_world_size(),
            digest_folder=os.path.join(context._path, "data") if self._config.log_samples and context._path else "",
            log_rank=rank,
            log_world=world,
            whole=not split,
            attempt=context._attempt,
            place_counts=True,
        )


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

    def cut(self) -> None:
        """Called for a report without a checkpoint. Digests are cut at every report, because other ranks may report a
        checkpoint with it."""
        for made in self._made.values():
            made._position()

    def totals(self) -> dict[str, Any] | None:
        """The totals read so far, for the progress line; None: nothing."""
        found = [made._totals() for made in self._made.values()]
        if not found:
            return None
        return {key: sum(each[key] for each in found) for key in ("rows", "bytes", "wait_s")}

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
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"datasets: invalid name {name!r}; use letters, digits, '_', '-' and '.'")
    return datasets


def _split_names(config: DataConfig, datasets: Mapping[str, Any]) -> set[str]:
    wanted = config.datasets_to_split
    if wanted == "all":
        return set(datasets)
    for name in wanted:
        if name not in datasets:
            known = ", ".join(repr(each) for each in datasets)
            raise ConfigError(f"DataConfig.datasets_to_split: no dataset named {name!r}; the trainer has {known}")
    return set(wanted)


def _check_size(name: str, plan: Planned, workers: int) -> None:
    if plan.rows == 0:
        raise ValueError(f"datasets[{name!r}] is empty: no rows remain of {plan.name}")
    if plan.rows < workers:
        raise ValueError(
            f"datasets[{name!r}] has {count_of(plan.rows, 'row')} for {count_of(workers, 'worker')}: use fewer "
            "workers, or remove it from DataConfig(datasets_to_split=[...]) so that every worker reads all of it"
        )
