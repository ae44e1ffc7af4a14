"""What a framework needs around the training function, on every worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from trireme._context import TrainContext


class Backend:
    """Hooks that run in each worker process, before and after the training function."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def on_start(self, context: TrainContext, session: Any) -> None:
        """Before the function. `session` is the worker's connection, with the key-value store of this attempt."""

    def on_shutdown(self, context: TrainContext, session: Any) -> None:
        """After the function has returned."""

    def holds(self, context: TrainContext) -> str:
        """What this process has that is expensive to make again, asked after on_start(); empty: nothing.

        FailureConfig(warm_restart="auto") keeps a healthy process for the next attempt only for that.
        """
        return "a CUDA context" if context._gpus else ""

    def objection(self) -> str:
        """Why this process must not run another attempt although it holds something; empty: it may.

        Asked with FailureConfig(warm_restart="auto") after the function was left. Libraries that keep what belongs to
        an attempt in globals are such a reason.
        """
        return ""

    def on_interrupt(self, context: TrainContext, session: Any) -> None:
        """After the function was left for another attempt, which begins with on_start() in this same process.

        Must not wait for other ranks: some are gone. Raising has the process replaced.
        """


class BackendConfig:
    """Travels to the workers; subclasses say which Backend to run and what to import before workers are forked."""

    preload: ClassVar[tuple[str, ...]] = ()

    @property
    def backend_cls(self) -> type[Backend]:
        return Backend
