"""Interrupts the training function so that the process can run it again."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

# A real-time signal that neither the C library nor Python's tools use.
_SIGNAL = signal.SIGRTMIN + 5


class Cancelled(BaseException):
    """The gang is restarted or resized: the training function must return, and is then called again.

    Not an Exception, so that error handlers do not catch it. Code that catches BaseException should re-raise it; it is
    raised repeatedly until the function returns.
    """


class InterruptGuard:
    """Runs the training function inside `with guard:`, where a cancel raises Cancelled.

    It uses a signal, which also interrupts time.sleep(), reads and locks. Native code delays it.
    """

    def __init__(self, core: Any) -> None:
        self._inside = False
        self._core = core
        signal.signal(_SIGNAL, self._on_signal)
        core.interrupt_by(_SIGNAL)

    def __enter__(self) -> None:
        self._inside = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._inside and self._core.cancelled:
            raise Cancelled("the training function is interrupted for the next attempt")
