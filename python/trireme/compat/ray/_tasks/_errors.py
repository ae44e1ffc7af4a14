"""ray.exceptions: the errors of tasks, actors and references."""

from __future__ import annotations

from typing import Any


class RayError(Exception):
    pass


class RayTaskError(RayError):
    """An exception of a task or actor. What ray.get() raises is also an instance of the exception's own class."""

    def __init__(self, function_name: str = "", traceback_str: str = "", cause: BaseException | None = None) -> None:
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause = cause
        super().__init__(function_name, traceback_str, cause)

    def __str__(self) -> str:
        return f"{self.function_name}() failed:\n{self.traceback_str}"

    def __reduce__(self) -> tuple[Any, ...]:
        return RayTaskError, (self.function_name, self.traceback_str, self.cause)

    def as_instanceof_cause(self) -> BaseException:
        kind = type(self.cause)
        if self.cause is None or issubclass(kind, RayError) or not issubclass(kind, Exception):
            return self.cause if isinstance(self.cause, RayError) else self
        try:
            both: Any = type(
                f"RayTaskError({kind.__name__})", (RayTaskError, kind), {"__reduce__": RayTaskError.__reduce__}
            )
            made = both.__new__(both)
        except TypeError:  # the layouts of the classes exclude each other
            return self
        RayTaskError.__init__(made, self.function_name, self.traceback_str, self.cause)
        made.__dict__.update({**vars(self.cause), **made.__dict__})
        made.args = self.cause.args
        error: BaseException = made
        return error


class TaskCancelledError(RayError):
    pass


class WorkerCrashedError(RayError):
    pass


class RayActorError(RayError):
    pass


class ActorDiedError(RayActorError):
    pass


class ActorUnavailableError(RayActorError):
    pass


class GetTimeoutError(RayError, TimeoutError):
    pass


class ObjectLostError(RayError):
    pass


class ObjectStoreFullError(RayError):
    pass


class OutOfMemoryError(RayError):
    pass


class NodeDiedError(RayError):
    pass


class RaySystemError(RayError):
    pass


class RuntimeEnvSetupError(RayError):
    pass


class TaskUnschedulableError(RayError):
    pass


class ActorUnschedulableError(RayError):
    pass


class AsyncioActorExit(RayError):
    pass
