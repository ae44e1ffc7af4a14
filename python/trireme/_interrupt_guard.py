"""How a worker's thread gets out of the training function, so that the process can run it again."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

# Of the signals that programs choose themselves; those of the C library and of Python's own tools are lower or named.
_SIGNAL = signal.SIGRTMIN + 5


class Cancelled(BaseException):
    """The gang is started again or resized: the training function is to be left, and will be called again.

    No Exception, so that it passes by those who handle errors. Whoever catches everything should raise it on; it comes
    again until the function is left.
    """


class InterruptGuard:
    """Inside of it (`with guard:`) the training function runs, and a cancel raises Cancelled there.

    A signal does it: it also ends time.sleep(), reads and locks. In the midst of native code it has to wait.
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
            raise Cancelled("the training function is left for the next attempt")
