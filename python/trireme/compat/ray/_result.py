"""Ray's Result, made from Trireme's."""

from __future__ import annotations

import os
from typing import Any

from trireme._result import Result, _read


class RayResult(Result):
    """Result(metrics, checkpoint, error, path, metrics_dataframe, best_checkpoints, ...), as Ray orders its fields."""

    def __init__(
        self,
        metrics: dict[str, Any] | None,
        checkpoint: Any,
        error: Exception | None,
        path: str | None,
        metrics_dataframe: Any = None,
        best_checkpoints: Any = None,
        _storage_filesystem: Any = None,
        return_value: Any = None,
    ) -> None:
        super().__init__(metrics, checkpoint, error, path, best_checkpoints, return_value)
        self._given_filesystem = _storage_filesystem
        # In place of the base's property, which computes it on first use.
        if metrics_dataframe is not None:
            self.__dict__["metrics_dataframe"] = metrics_dataframe

    @property
    def filesystem(self) -> Any:
        return self._given_filesystem or super().filesystem

    @property
    def config(self) -> dict[str, Any] | None:
        """The first version reports the trainer's configuration with the metrics."""
        return (self.metrics or {}).get("config")

    @classmethod
    def from_path(
        cls, path: str | os.PathLike[str], storage_filesystem: Any = None, *, allow_pickle: bool = False
    ) -> RayResult:
        found = Result.from_path(path, storage_filesystem, allow_pickle=allow_pickle)
        return second_version(found) if found.error is None else around(found)


def around(result: Result) -> RayResult:
    """The same values."""
    made = RayResult.__new__(RayResult)
    made.__dict__.update(result.__dict__)
    made._given_filesystem = None
    return made


def second_version(result: Result) -> RayResult:
    """metrics are those of the newest checkpoint; metrics_dataframe has a row for each retained one."""
    made = around(result)
    if made.path is None:
        return made
    made.metrics = _newest_metrics(made)
    rows = [metrics for _, metrics in made.best_checkpoints or []]
    made.__dict__["metrics_dataframe"] = _frame(rows)
    return made


def first_version(result: Result, rows: list[dict[str, Any]], experiment_tag: str) -> RayResult:
    """metrics are those of the last report, with what Ray adds to every report; one row for each."""
    made = around(result)
    made.return_value = None
    if made.path is None:
        return made
    made.metrics = {**rows[-1], "done": result.error is None, "experiment_tag": experiment_tag} if rows else {}
    of = {row["checkpoint_dir_name"]: row for row in rows}
    made.best_checkpoints = [
        (checkpoint, of.get(os.path.basename(checkpoint.path), metrics))
        for checkpoint, metrics in made.best_checkpoints or []
    ]
    made.__dict__["metrics_dataframe"] = _frame([_flat(row) for row in rows])
    return made


def _newest_metrics(result: RayResult) -> dict[str, Any] | None:
    if result._source is None or result.checkpoint is None:
        return None
    known = _read(result._source)["checkpoints"]
    newest = max(known, key=lambda each: each["index"], default=None)
    return newest["metrics"] if newest else None


def _frame(rows: list[dict[str, Any]]) -> Any:
    if not rows:
        return None
    try:
        import pandas
    except ModuleNotFoundError:
        return None
    return pandas.DataFrame(rows)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Nested values as a/b, after the others, as in Ray."""
    flat: dict[str, Any] = {}
    nested: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            nested |= {f"{name}/{inner}": item for inner, item in value.items()}
        else:
            flat[name] = value
    return flat | _flat(nested) if nested else flat
