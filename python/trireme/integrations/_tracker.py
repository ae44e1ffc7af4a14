"""The base class of trackers: logs each step once and in order, in a thread, so that a slow server never delays the
run."""

from __future__ import annotations

import math
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from trireme._checkpoint import Checkpoint
from trireme._tables import flatten
from trireme.callbacks import RunContext, UserCallback

_MAX_WAITING = 10_000
_CLOSE_S = 60.0  # how long the end of a run waits for unsent entries


class Entry(NamedTuple):
    """One report: its number, its time in seconds since 1970, and its metrics without nesting."""

    step: int
    time: float
    metrics: dict[str, Any]
    checkpoint: Checkpoint | None


class Tracker(UserCallback):
    """Subclasses implement open(), log() and close(). An exception in open() ends the run, so that a wrong address or
    key is noticed immediately. Later failures are shown once, and training continues."""

    name = "tracker"
    # Whether a step repeated by a restart replaces the first one; otherwise the first one is kept.
    replaces_steps = False

    def __init__(self) -> None:
        self._last_step = -1
        self._entries: queue.Queue[Entry | None] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._told: set[str] = set()

    def open(self, run_context: RunContext) -> int:
        """Begin, or continue if `run_context.resumed`. Returns the first step that is not logged yet."""
        raise NotImplementedError

    def log(self, entries: list[Entry]) -> None:
        """Called in a separate thread, with steps in ascending order unless `replaces_steps`."""
        raise NotImplementedError

    def close(self, error: BaseException | None) -> None:
        """The run has ended. Called in the same thread as log()."""
        raise NotImplementedError

    def before_run(self, run_context: RunContext) -> None:
        self._last_step = self.open(run_context) - 1
        self._thread = threading.Thread(target=self._work, name=f"trireme-{self.name}", daemon=True)
        self._error: BaseException | None = None
        self._thread.start()

    def after_report(
        self, run_context: RunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        step = run_context.report_index
        assert step is not None
        if step <= self._last_step and not self.replaces_steps:
            return
        self._last_step = step
        entry = Entry(step, run_context.report_time, flatten(metrics[0]), checkpoint)
        try:
            self._entries.put_nowait(entry)
        except queue.Full:
            self._tell(f"{self.name} is slower than the reports: it misses some steps (metrics.jsonl has all of them)")

    def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
        if self._thread is None:
            return
        self._error = error
        self._entries.put(None)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            self._tell(f"{self.name} did not accept the last reports within {_CLOSE_S:.0f} s; continuing without it")
        self._thread = None

    def __getstate__(self) -> dict[str, Any]:
        """A trainer is stored with its callbacks, but without the state of an active run."""
        return {key: value for key, value in self.__dict__.items() if key not in ("_entries", "_thread", "_told")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Tracker.__init__(self)
        self.__dict__.update(state)

    def _work(self) -> None:
        while True:
            entries = [self._entries.get()]
            while entries[-1] is not None and len(entries) < 100:
                try:
                    entries.append(self._entries.get_nowait())
                except queue.Empty:
                    break
            if present := [entry for entry in entries if entry is not None]:
                self._try("log", present)
            if entries[-1] is None:
                self._try("close", self._error)
                return

    def _try(self, what: str, argument: Any) -> None:
        try:
            getattr(self, what)(argument)
        except Exception as error:  # top level of the thread
            self._tell(
                f"{self.name}: {type(error).__name__}: {error}; training continues, metrics are in metrics.jsonl"
            )

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            print(f"warning: {text}", file=sys.stderr, flush=True)


def numbers(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The metrics that can be plotted."""
    for key, value in metrics.items():
        if isinstance(value, (bool, int, float)):
            try:
                yield key, float(value)
            except OverflowError:
                yield key, math.inf if value > 0 else -math.inf


class Nothing:
    """Accepts every call and attribute access and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Nothing()

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *error: Any) -> None:
        pass
