"""What a run left behind."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trireme import _core
from trireme._checkpoint import Checkpoint, local_filesystem, local_path

if TYPE_CHECKING:
    import pandas


@dataclass
class Result:
    """The outcome of `fit()`."""

    metrics: dict[str, Any] | None  # rank 0's last report
    checkpoint: Checkpoint | None  # the newest committed one
    error: Exception | None
    path: str | None  # the run folder; None in local mode
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] | None = None
    return_value: Any = None

    @property
    def filesystem(self) -> Any:
        """The pyarrow filesystem that `path` is a path in."""
        return local_filesystem()

    @cached_property
    def metrics_dataframe(self) -> pandas.DataFrame | None:
        """One row per report of rank 0, without those that a restart has repeated; None in local mode. Needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Result.metrics_dataframe needs pandas: pip install trireme[pandas]") from error
        if self.path is None:
            return None
        return pandas.DataFrame(_core.read_run(self.path)["metrics_history"])

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint:
        """The retained checkpoint with the highest ('max') or lowest ('min') metric; 'a/b' reaches into nested ones."""
        if mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', got {mode!r}")
        if not self.best_checkpoints:
            raise RuntimeError("this run has no checkpoint; pass one to report(checkpoint=...)")
        scored = [(_lookup(metrics, metric), checkpoint) for checkpoint, metrics in self.best_checkpoints]
        ranked = [(score, checkpoint) for score, checkpoint in scored if score is not None and score == score]
        if not ranked:
            known = sorted({key for _, metrics in self.best_checkpoints for key in metrics})
            raise RuntimeError(f"Invalid metric name {metric!r}: no checkpoint has it; there are {', '.join(known)}")
        best = max if mode == "max" else min
        return best(ranked, key=lambda pair: pair[0])[1]

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """Read the result of a run, finished or not, from its folder. Writes nothing."""
        folder = Checkpoint(path, storage_filesystem).path
        if not os.path.isfile(os.path.join(folder, "events.jsonl")):
            raise RuntimeError(f"{folder} is not a run folder: it has no events.jsonl")
        record = _core.read_run(folder)
        events, reports = record["events"], record["metrics_history"]
        best = committed_checkpoints(events, folder)
        finished = [event for event in events if event["event"] == "run_finished"]
        return cls(
            metrics=reports[-1] if reports else None,
            checkpoint=best[-1][0] if best else None,
            error=_recorded_error(finished[-1]) if finished else None,
            path=folder,
            best_checkpoints=best,
        )


def committed_checkpoints(events: Iterable[dict[str, Any]], path: str) -> list[tuple[Checkpoint, dict[str, Any]]]:
    """Those still there, oldest first, with the metrics that were reported with them."""
    metrics = {event["name"]: event["metrics"] for event in events if event["event"] == "checkpoint_committed"}
    folders = [(os.path.join(local_path(path), name), values) for name, values in metrics.items()]
    return [(Checkpoint(folder), values) for folder, values in folders if os.path.isdir(folder)]


def _recorded_error(finished: dict[str, Any]) -> Exception | None:
    from trireme._errors import TrainingFailedError

    return TrainingFailedError(finished["error"]) if finished.get("error") else None


def _lookup(metrics: dict[str, Any], name: str) -> Any:
    value: Any = metrics
    for part in name.split("/") if name not in metrics else [name]:
        value = value.get(part) if isinstance(value, dict) else None
    return value
