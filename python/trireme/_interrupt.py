"""Ctrl-C and SIGTERM during a run: the first signal ends it cleanly, the second immediately."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class InterruptGuard:
    """Turns SIGINT into a stop of the run and SIGTERM, sent by schedulers, into a preemption: the workers can still
    create a last checkpoint. Does nothing outside of the main thread.
    """

    def __init__(self, run: Any) -> None:
        self._run = run
        self._before: dict[signal.Signals, Any] = {}
        self.interrupted = False
        self.terminated = False

    def __enter__(self) -> InterruptGuard:
        if threading.current_thread() is threading.main_thread():
            self._replace(signal.SIGINT, self._on_interrupt)
            # Keep a handler that the user has set.
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                self._replace(signal.SIGTERM, self._on_terminate)
        return self

    def raise_if_ended(self) -> None:
        """Ends the script as the signal would have without a run."""
        if self.interrupted:
            raise KeyboardInterrupt
        if self.terminated:
            raise SystemExit(128 + signal.SIGTERM)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _replace(self, number: signal.Signals, handler: Any) -> None:
        before = signal.getsignal(number)
        # None: the handler was not set by Python. SIG_IGN: a background job, which ignores Ctrl-C.
        if before not in (None, signal.SIG_IGN):
            self._before[number] = before
            signal.signal(number, handler)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self._run.stop("Ctrl-C", hard=self.interrupted)
        self.interrupted = True

    def _on_terminate(self, number: int, frame: FrameType | None) -> None:
        if self.terminated:
            self._run.stop("SIGTERM, twice", hard=True)
        else:
            self._run.announce_preemption([], None, "SIGTERM to the driver")
        self.terminated = True
