"""The result of a run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trireme import _core, _tables
from trireme._checkpoint import Checkpoint
from trireme._errors import TrainingFailedError
from trireme._storage import Location, local_filesystem, resolve

if TYPE_CHECKING:
    import pandas

Ranks = str | int | Collection[int]  # "all", one, or some


@dataclass
class Result:
    """The result of a run, from `fit()` or from `Result.from_path()`."""

    metrics: dict[str, Any] | None  # rank 0's last report, merged with the validation metrics of its checkpoint
    checkpoint: Checkpoint | None  # the newest committed one
    error: Exception | None
    path: str | None  # the run folder in its storage; None in local mode
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] | None = None  # the retained checkpoints, best last
    return_value: Any = None  # return value of the training function on rank 0
    state: str = "finished"  # or "running", "failed", "stopped", "lost" (its driver died)
    _folder: Location | None = field(default=None, repr=False, compare=False)
    _source: Location | None = field(default=None, repr=False, compare=False)  # where its history is read from

    @property
    def filesystem(self) -> Any:
        """The pyarrow filesystem that contains `path`."""
        remote = self._folder.filesystem if self._folder else None
        return remote or local_filesystem()

    @cached_property
    def metrics_dataframe(self) -> pandas.DataFrame | None:
        """One row per report of rank 0, without reports that a restart repeated; None in local mode. Needs pandas."""
        pandas = _tables.import_pandas("Result.metrics_dataframe")
        if self._source is None:
            return None
        return pandas.DataFrame(_read(self._source)["metrics_history"])

    def metrics_history(self, ranks: Ranks = "all") -> list[dict[str, Any]]:
        """Return every report as a dict of `rank`, `index`, `attempt`, `time` (seconds since 1970) and `metrics`, in
        order of `index`. Reports that a restart repeated are omitted. Empty in local mode."""
        if self._source is None:
            return []
        chosen = _tables.rank_filter(ranks)
        return [report for report in _read(self._source)["metrics_of_all_ranks"] if chosen(report["rank"])]

    def to_pandas(self, ranks: Ranks = "all") -> pandas.DataFrame:
        """Return metrics_history() as a table: rank, step, time, attempt and one column per metric, 'a/b' if nested."""
        return _tables.to_pandas(self.metrics_history(ranks))

    def to_arrow(self, ranks: Ranks = "all") -> Any:
        """Return the table of to_pandas() as a pyarrow.Table."""
        return _tables.to_arrow(self.metrics_history(ranks))

    def to_csv(self, path: str | os.PathLike[str], ranks: Ranks = "all") -> None:
        """Write the table of to_pandas() to a CSV file. Does not need pandas."""
        _tables.to_csv(self.metrics_history(ranks), path)

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint:
        """Return the retained checkpoint with the highest ('max') or lowest ('min') metric; 'a/b' if nested."""
        if mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', got {mode!r}")
        if not self.best_checkpoints:
            raise RuntimeError("this run has no checkpoint; pass one to report(checkpoint=...)")
        scored = [(_lookup(metrics, metric), checkpoint) for checkpoint, metrics in self.best_checkpoints]
        ranked = [(s, checkpoint) for s, checkpoint in scored if isinstance(s, (int, float)) and s == s]
        if not ranked:
            known = sorted({key for _, metrics in self.best_checkpoints for key in _tables.flatten(metrics)})
            raise RuntimeError(
                f"Invalid metric name {metric!r}: no checkpoint has a number for it; known metrics: {', '.join(known)}"
            )
        best = max if mode == "max" else min
        return best(ranked, key=lambda pair: pair[0])[1]

    @classmethod
    def from_path(
        cls, path: str | os.PathLike[str], storage_filesystem: Any = None, *, allow_pickle: bool = False
    ) -> Result:
        """Read the result of a run, finished or not, from its folder. Writes no files.

        allow_pickle: whether to load a pickled return value; unpickling can run arbitrary code.
        """
        folder = resolve(path, storage_filesystem)
        _check_run_folder(folder)
        record = _read(folder)
        kept = record["checkpoints"]
        newest = max(kept, key=lambda known: known["index"], default=None)
        return cls(
            metrics=record["last_metrics"],
            checkpoint=_checkpoint(folder, newest) if newest else None,
            error=_error(record),
            path=folder.path,
            best_checkpoints=_best(folder, kept, record["run"]["run_config"]["checkpoint_config"]["num_to_keep"]),
            return_value=_return_value(record, allow_pickle, str(folder)),
            state=record["state"],
            _folder=folder,
            _source=folder,
        )


def result_of(
    outcome: dict[str, Any], filesystem: Any, resumed_from: Checkpoint | None, num_to_keep: int | None
) -> Result:
    """The result of a run that has just finished."""
    folder = Location(outcome["storage_path"], filesystem)
    newest: Checkpoint | None = None
    if outcome["checkpoint"]:
        newest = Checkpoint.at(Location(outcome["checkpoint"], filesystem))
        if not outcome["checkpoint_in_storage"]:
            newest = resumed_from
    return Result(
        metrics=outcome["metrics"],
        checkpoint=newest,
        error=None,
        path=folder.path,
        best_checkpoints=_best(folder, outcome["checkpoints"], num_to_keep),
        return_value=_return_value(outcome, True, folder.path),
        _folder=folder,
        _source=Location(outcome["path"]),
    )


def _read(folder: Location) -> dict[str, Any]:
    record: dict[str, Any] = _core.read_run(folder.path, folder.files())
    return record


def _checkpoint(folder: Location, known: dict[str, Any]) -> Checkpoint:
    return Checkpoint.at(Location(known["path"], folder.filesystem))


def _error(record: dict[str, Any]) -> Exception | None:
    if record["error"]:
        return TrainingFailedError(record["error"])
    if record["state"] == "lost":
        return TrainingFailedError(
            "the driver of this run died before it ended; fit() with the same name and storage_path continues it"
        )
    return None


def _best(
    folder: Location, retained: list[dict[str, Any]], num_to_keep: int | None
) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """The newest checkpoint is never deleted, so the folder may hold one more than num_to_keep."""
    best = retained[-num_to_keep:] if num_to_keep else retained
    return [(_checkpoint(folder, known), known["metrics"]) for known in best]


def _check_run_folder(folder: Location) -> None:
    log = folder.join("run.json")
    files = log.files()
    if not (os.path.isfile(log.path) if files is None else files.exists(log.path)):
        raise RuntimeError(f"{folder} is not a run folder: it has no run.json")


def _return_value(record: dict[str, Any], allow_pickle: bool, where: str) -> Any:
    value = record["return_value"]
    if not record["return_value_pickled"]:
        return value
    if not allow_pickle:
        warnings.warn(
            f"the return value of the run in {where} is a pickle and is not loaded: return_value is None. "
            "Result.from_path(path, allow_pickle=True) loads it; use it only if you trust the author of the run",
            stacklevel=3,
        )
        return None
    import cloudpickle

    return cloudpickle.loads(value)


def _lookup(metrics: dict[str, Any], name: str) -> Any:
    value: Any = metrics
    for part in name.split("/") if name not in metrics else [name]:
        value = value.get(part) if isinstance(value, dict) else None
    return value
