"""The output of a run: a line per event, a live progress line in a terminal, and a table at the end."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any

from trireme import _core

_ALWAYS = ("output", "worker_failed", "attempt_failed", "stop_requested")
_WARNINGS = ("warning", "hang_detected", "preemption_announced")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # between progress lines without a terminal
_LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}


class Display:
    """Prints to stdout. Uses Rich and the live line only if stdout is a terminal."""

    def __init__(self, log_level: str) -> None:
        self._level = _LEVELS[log_level]
        self._live: Any = None
        self._started = time.monotonic()
        self._progress = _core.Progress()
        self._reports_shown = 0
        self._next_plain_line = 0.0
        self._plain_pause = _FIRST_PAUSE_S

    def __enter__(self) -> Display:
        # Only one live line can be active: runs in other threads print plain lines.
        if self._level <= _LEVELS["INFO"] and _is_terminal() and threading.current_thread() is threading.main_thread():
            from rich.live import Live

            # Refreshed from fit()'s own loop, so no thread is needed.
            self._live = Live(auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            self._progress.count(event)
            # Only the live line shows reports: there may be thousands per second.
            if event["event"] == "report" or not self._wanted(event["event"]):
                continue
            if (line := _core.describe_event(event)) is not None:
                self._print(line)
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(self._progress_text(), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif self._plain_line_due():
            self._print(self._progress_text())

    def show_result(self, outcome: dict[str, Any]) -> None:
        if self._level <= _LEVELS["INFO"]:
            self._print(_core.result_table(outcome).rstrip("\n"))

    def _wanted(self, kind: str) -> bool:
        if kind in _ALWAYS:
            return True
        return self._level <= (_LEVELS["WARNING"] if kind in _WARNINGS else _LEVELS["INFO"])

    def _print(self, line: str) -> None:
        if self._live is None:
            print(line, flush=True)
        else:
            self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _plain_line_due(self) -> bool:
        """Whether to print a progress line without a terminal: after new reports, at increasing intervals."""
        now = time.monotonic()
        reports = self._progress.reports
        if self._level > _LEVELS["INFO"] or reports == self._reports_shown or now < self._next_plain_line:
            return False
        self._reports_shown = reports
        self._next_plain_line = now + self._plain_pause
        self._plain_pause = min(2 * self._plain_pause, _LONGEST_PAUSE_S)
        return True

    def _progress_text(self) -> str:
        return self._progress.text(time.monotonic() - self._started)


def _is_terminal() -> bool:
    try:
        return sys.stdout.isatty()
    except (AttributeError, ValueError):  # replaced, or closed
        return False
