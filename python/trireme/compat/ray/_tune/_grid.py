"""ResultGrid: what Tuner.fit() returns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from trireme._storage import Location, local_filesystem
from trireme.compat.ray._result import RayResult, _flat, _frame
from trireme.compat.ray._trial import Trial

_SCOPES = ("all", "last", "avg", "last-5-avg", "last-10-avg")


class ResultGrid:
    """The results of the trials, in the order in which they ran."""

    def __init__(
        self, trials: list[Trial], results: list[RayResult], where: Location, metric: str | None, mode: str | None
    ) -> None:
        self._trials, self._results, self._where = trials, results, where
        self._metric, self._mode = metric, mode

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, index: int) -> RayResult:
        return self._results[index]

    def __iter__(self) -> Iterator[RayResult]:
        return iter(self._results)

    def __repr__(self) -> str:
        return "ResultGrid<[\n" + ",\n".join(f"  {result!r}" for result in self._results) + "\n]>"

    @property
    def experiment_path(self) -> str:
        return self._where.path

    @property
    def filesystem(self) -> Any:
        return self._where.filesystem or local_filesystem()

    @property
    def errors(self) -> list[Exception]:
        return [result.error for result in self._results if result.error]

    @property
    def num_errors(self) -> int:
        return len(self.errors)

    @property
    def num_terminated(self) -> int:
        return len(self._results) - self.num_errors

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> RayResult:
        """The trial with the highest or lowest metric. scope: of which of its reports."""
        if len(self._results) == 1:
            return self._results[0]
        metric, mode = metric or self._metric, mode or self._mode
        for name, value in (("metric", metric), ("mode", mode)):
            if not value:
                raise ValueError(
                    f"No {name} is provided: pass {name}=... to get_best_result(), or to the TuneConfig of the Tuner"
                )
        if mode not in ("min", "max"):
            raise ValueError(f"mode={mode!r}: expected 'min' or 'max'")
        if scope not in _SCOPES:
            raise ValueError(f"scope={scope!r}: expected one of {', '.join(_SCOPES)}")
        better = max if mode == "max" else min
        scored: list[tuple[Any, RayResult]] = []
        for trial, result in zip(self._trials, self._results, strict=True):
            values: list[Any] = [value for row in trial.rows if _is_number(value := _flat(row).get(str(metric)))]
            if not values:
                continue
            score: Any = better(values) if scope == "all" else _mean(values, scope)
            if not filter_nan_and_inf or math.isfinite(score):
                scored.append((score, result))
        if not scored:
            raise RuntimeError(
                f"No best trial found for the given metric: {metric}. This means that no trial has reported this "
                f"metric{', or all values are NaN or infinite' if filter_nan_and_inf else ''}"
            )
        return better(scored, key=lambda each: each[0])[1]

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> Any:
        """A row for each trial: its last report, or the one with the best filter_metric; its configuration."""
        if filter_mode not in (None, "min", "max"):
            raise ValueError(f"filter_mode={filter_mode!r}: expected 'min' or 'max'")
        rows = []
        for trial in self._trials:
            if not trial.rows:
                continue
            candidates = [_flat(row) for row in trial.rows]
            chosen = candidates[-1]
            if filter_metric and filter_mode:
                better = max if filter_mode == "max" else min
                numbers = [row for row in candidates if _is_number(row.get(filter_metric))]
                chosen = better(numbers, key=lambda row: row[filter_metric], default=chosen)
            rows.append({**chosen, "logdir": trial.trial_id})
        return _frame(rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or hasattr(value, "__float__")


def _mean(values: list[float], scope: str) -> float:
    last = {"last": 1, "last-5-avg": 5, "last-10-avg": 10}.get(scope, len(values))
    return float(sum(values[-last:])) / min(last, len(values))
