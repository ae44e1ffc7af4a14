"""Setup and cleanup of a framework around the training function, on every worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from trireme._context import TrainContext


class Backend:
    """Hooks that run in each worker process, before and after the training function."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def on_start(self, context: TrainContext, session: Any) -> None:
        """Called before the function. `session` is the worker's connection, with this attempt's key-value store."""

    def training_function(
        self, context: TrainContext, session: Any, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        """What this worker calls as its training function, with the same arguments. Called after on_start().

        An example is a parameter server, which serves the others instead.
        """
        return function

    def on_shutdown(self, context: TrainContext, session: Any) -> None:
        """Called after the function has returned."""

    def holds(self, context: TrainContext) -> str:
        """A description of what this process holds that is expensive to recreate; empty: nothing. Called after
        on_start().

        FailureConfig(warm_restart="auto") keeps a healthy process for the next attempt only if this is not empty.
        """
        return "a CUDA context" if context._gpus else ""

    def objection(self) -> str:
        """The reason why this process must not run another attempt; empty: it may. An example is a library that keeps
        the state of an attempt in globals.

        Called after an interrupted function if FailureConfig(warm_restart="auto").
        """
        return ""

    def on_cancel(self, context: TrainContext, session: Any) -> None:
        """Called on another thread as soon as the function must be left for another attempt, and before on_interrupt().

        The main thread still runs the function, or on_start(). If it is blocked in native code, where no exception can
        be raised in it, this ends the call: it aborts collectives. It must not change state that the function uses, and
        not wait for other ranks, which are ended when it has returned.
        """

    def on_interrupt(self, context: TrainContext, session: Any) -> None:
        """Called after the function was interrupted for another attempt, which calls on_start() in the same process.

        Must not wait for other ranks: some have exited. If it raises, the process is replaced.
        """


class NewProcessBackend(Backend):
    """The base for frameworks that keep state of an attempt in the process: every attempt gets new processes.

    Subclasses set `keeps`, which describes that state.
    """

    keeps: ClassVar[str]

    def holds(self, context: TrainContext) -> str:
        return ""

    def objection(self) -> str:
        return self.keeps

    def on_interrupt(self, context: TrainContext, session: Any) -> None:
        raise RuntimeError(f"{self.keeps}, so the process is replaced")


class BackendConfig:
    """Sent to the workers. Subclasses define the Backend, and the modules to import before workers are forked.

    share_cuda_visible_devices: whether each worker sees the GPUs of all workers on its node (`cuda:LOCAL_RANK` is its
    own), or only its own GPUs, from `cuda:0`.
    """

    preload: ClassVar[tuple[str, ...]] = ()
    share_cuda_visible_devices: bool = False

    @property
    def backend_cls(self) -> type[Backend]:
        return Backend
