"""The errors that fit() raises, built from the failures that workers report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trireme._preemption import PreemptionInfo


class TrainingFailedError(RuntimeError):
    """The run did not finish. `__cause__` is the exception of the first worker that failed."""


class WorkerError(RuntimeError):
    """A worker failure without an exception object: a signal, an exit, or an exception that cannot be pickled."""


class WorkerGroupError(TrainingFailedError):
    """Workers failed more often than `FailureConfig(max_failures=...)` allows."""

    def __init__(self, error_message: str, worker_failures: dict[int, Exception]) -> None:
        super().__init__(f"Training failed due to worker errors:\n{error_message}")
        self.error_message = error_message
        self.worker_failures = worker_failures

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.error_message, self.worker_failures)


class ControllerError(TrainingFailedError):
    """The run failed for a reason other than a worker: a callback raised, or resources were lost."""

    def __init__(self, controller_failure: Exception) -> None:
        super().__init__(f"Training failed due to controller error:\n{controller_failure}")
        self.controller_failure = controller_failure

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.controller_failure,)


class PreemptionError(TrainingFailedError):
    """Workers were preempted more often than `FailureConfig(max_preemption_failures=...)` allows.

    drain_timed_out: the deadline passed before the last checkpoint was committed.
    """

    def __init__(self, preemption_info: PreemptionInfo, drain_timed_out: bool = False) -> None:
        lost = ", ".join(
            f"{rank_list(ranks)} on {node}" for node, ranks in preemption_info.preempted_node_to_ranks.items()
        )
        super().__init__(
            f"Training failed due to preemption:\n{lost} preempted"
            f"{' before a last checkpoint was committed' if drain_timed_out else ''}; "
            "FailureConfig.max_preemption_failures is used up; fit() with the same name and storage_path continues it"
        )
        self.preemption_info = preemption_info
        self.drain_timed_out = drain_timed_out

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.preemption_info, self.drain_timed_out)


def one_line(error: BaseException) -> str:
    """The first informative line, for tables and tags."""
    lines = str(error).splitlines()
    if isinstance(error, (WorkerGroupError, ControllerError, PreemptionError)):
        lines = lines[1:]
    return lines[0] if lines else type(error).__name__


def worker_exception(failure: dict[str, Any]) -> Exception:
    """The exception object that the worker raised, or a WorkerError with its message."""
    if failure.get("exception"):
        import cloudpickle

        try:
            original = cloudpickle.loads(failure["exception"])
        except Exception:
            original = None
        if isinstance(original, Exception):
            return original
    return WorkerError(_what(failure))


def failure_error(outcome: dict[str, Any]) -> TrainingFailedError:
    """The error of a failed run, by the cause of its first failure."""
    failures = outcome["failures"]
    if not failures:
        return ControllerError(RuntimeError(outcome["error"]))
    if failures[0]["cause"] == "preemption":
        return _preemption_error(failures)
    return worker_group_error(failures, outcome["path"], outcome["note"])


def _preemption_error(failures: Sequence[dict[str, Any]]) -> PreemptionError:
    nodes: dict[str, list[int]] = {}
    for failure in failures:
        if failure["cause"] == "preemption":
            nodes.setdefault(failure["host"], []).append(failure["rank"])
    late = any(failure["error_type"] == "PreemptionTimeout" for failure in failures)
    error = PreemptionError(PreemptionInfo(None, nodes), late)
    error.__cause__ = worker_exception(failures[0])
    return error


def worker_group_error(failures: Sequence[dict[str, Any]], path: str, note: str = "") -> WorkerGroupError:
    """The first failure in full, and the failures that follow from it grouped by text."""
    ordered = sorted(failures, key=lambda failure: bool(failure["collateral"]))
    first, others = ordered[0], ordered[1:]
    lines = [f"rank {first['rank']}{_where(first)} failed: {_what(first)}"]
    if note:
        lines += [note]
    if trace := _trace(first):
        lines += ["", trace]
    if tail := _log_tail(first):
        log = f"{path}/logs/attempt_{first['attempt']}/rank_{first['rank']}.log" if "attempt" in first else "its log"
        lines += ["", f"last lines of {log}:", *(f"  {line}" for line in tail)]
    groups = _grouped(others)
    if alike := groups.pop(_first_line(first), None):
        lines += ["", f"{rank_list(alike)} failed with the same error"]
    if groups:
        lines += ["", "other workers failed, most likely as a result:"]
        lines += [f"  {rank_list(ranks)}: {text}" for text, ranks in groups.items()]
    error = WorkerGroupError("\n".join(lines), {f["rank"]: worker_exception(f) for f in ordered})
    error.__cause__ = error.worker_failures[first["rank"]]
    return error


def _where(failure: dict[str, Any]) -> str:
    """Empty for a worker that never started."""
    return f" (pid {failure['pid']} on {failure['host']})" if failure.get("pid") else ""


def _what(failure: dict[str, Any]) -> str:
    # An exception without text (`assert x`) shows only its class, as in Python.
    parts = [str(part) for part in (failure.get("error_type"), failure.get("message")) if part]
    return ": ".join(parts) or str(failure["cause"])


def _log_tail(failure: dict[str, Any]) -> list[str]:
    """Omits the traceback, which every worker also writes to its log."""
    tail = [str(line).rstrip() for line in failure.get("log_tail") or []]
    trace = {line.rstrip() for line in (failure.get("traceback") or "").splitlines()}
    return [line for line in tail if line and line not in trace]


def _trace(failure: dict[str, Any]) -> str:
    """Omits the exception at the end, which the line above already shows."""
    trace = str(failure.get("traceback") or "").rstrip()
    return trace.removesuffix(_what(failure).rstrip()).rstrip()


def _first_line(failure: dict[str, Any]) -> str:
    return _what(failure).splitlines()[0]


def _grouped(failures: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """Ranks by failure text."""
    groups: dict[str, list[int]] = {}
    for failure in failures:
        groups.setdefault(_first_line(failure), []).append(failure["rank"])
    return groups


def rank_list(ranks: Sequence[int]) -> str:
    """[0, 1, 2, 5] as 'ranks 0-2, 5'."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"
