"""This worker's rows of a dataset for a training function of the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from trireme import _core
from trireme._boosting._described import described
from trireme._boosting._rows import Columns, WorkerRows, agreed_columns
from trireme._session import get_context, get_dataset_shard


class ColumnOptions(TypedDict, total=False):
    """As for the trainers."""

    label_column: str
    weight_column: str | None
    group_column: str | None
    categorical_columns: Sequence[str]


@dataclass(frozen=True)
class Shard:
    """Which rows an object was made of: its attribute `trireme_shard`."""

    name: str
    options: ColumnOptions
    columns: Columns

    @classmethod
    def of(cls, library: str, name: str, reference: Any, **options: Unpack[ColumnOptions]) -> Shard:
        """reference: the object with the rows to train on, whose columns these rows have; None: these are the rows to
        train on."""
        if reference is None:
            checked = _checked(library, name, [name], options)
            return cls(name, options, agreed_columns({"train": name, **_without_none(options), **checked}))
        if options:
            raise TypeError(f"{', '.join(options)}: the columns are those of reference")
        first: Shard | None = getattr(reference, "trireme_shard", None)
        if first is None:
            raise TypeError(f"reference must be made by the same function; this {type(reference).__name__} is not")
        _checked(library, first.name, [first.name, name], first.options)
        return cls(name, first.options, first.columns)

    def rows(self, *, complete: bool = False) -> WorkerRows:
        return WorkerRows(self.name, self.columns, everything=complete)


def _without_none(options: ColumnOptions) -> dict[str, Any]:
    return {"label_column": "", "weight_column": "", "group_column": "", "categorical_columns": []} | {
        name: value for name, value in options.items() if value is not None
    }


def _checked(library: str, train: str, names: list[str], options: ColumnOptions) -> dict[str, Any]:
    world = get_context().get_world_size()
    job = {
        **_without_none(options),
        "library": library,
        "params": {},
        "num_boost_round": 1,
        "early_stopping_rounds": None,
        "external_memory": False,
        "min_workers": world,
        "max_workers": world,
        "cpus_per_worker": 1.0,
        "use_gpu": False,
        "train": train,
        "datasets": {name: described(get_dataset_shard(name)._planned) for name in names},
    }
    return _core.check_boosting_job({**job, "categorical_columns": list(job["categorical_columns"])})
