"""Ctrl-C while a run goes on: the first one stops it cleanly, the second at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class InterruptGuard:
    """Turns SIGINT into a stop of the run. Only the main thread may; elsewhere this does nothing."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self._before: Any = None
        self.interrupted = False

    def __enter__(self) -> InterruptGuard:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            # None: a handler that Python did not set. SIG_IGN: a background job, which Ctrl-C is not for.
            if before not in (None, signal.SIG_IGN):
                self._before = before
                signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._run.stop("Ctrl-C", hard=self.interrupted)
        self.interrupted = True
