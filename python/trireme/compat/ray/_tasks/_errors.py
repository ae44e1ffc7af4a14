"""ray.exceptions: the errors of tasks, actors and references."""

from __future__ import annotations

import os
from typing import Any


class RayError(Exception):
    pass


class RayTaskError(RayError):
    """An exception of a task or actor. What ray.get() raises is also an instance of the exception's own class."""

    def __init__(
        self,
        function_name: str,
        traceback_str: str,
        cause: BaseException | None,
        proctitle: str | None = None,
        pid: int | None = None,
        ip: str | None = None,
        actor_repr: str | None = None,
        actor_id: str | None = None,
    ) -> None:
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause = cause
        self.proctitle = proctitle or f"ray::{function_name}"
        self.pid = pid or os.getpid()
        self.ip = ip or "127.0.0.1"
        self.actor_repr = actor_repr
        self.actor_id = actor_id
        super().__init__(function_name, traceback_str, cause)

    def __str__(self) -> str:
        return f"{self.function_name}() failed (pid {self.pid}):\n{self.traceback_str}"

    def __reduce__(self) -> tuple[Any, ...]:
        rest = (self.proctitle, self.pid, self.ip, self.actor_repr, self.actor_id)
        return RayTaskError, (self.function_name, self.traceback_str, self.cause, *rest)

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
        made.__dict__.update({**vars(self.cause), **vars(self)})
        made.args = self.cause.args
        error: BaseException = made
        return error


class TaskCancelledError(RayError):
    pass


class WorkerCrashedError(RayError):
    pass


class RaySystemError(RayError):
    pass


class RayActorError(RayError):
    """actor_id: of the actor; actor_init_failed: its constructor has raised an exception."""

    preempted = False

    def __init__(self, text: str = "", actor_id: str | None = None, actor_init_failed: bool = False) -> None:
        super().__init__(text)
        self.actor_id = actor_id
        self.actor_init_failed = actor_init_failed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.actor_id, self.actor_init_failed)


class ActorDiedError(RayActorError):
    pass


class ActorUnavailableError(RayActorError):
    pass


class ActorAlreadyExistsError(ValueError, RayError):
    pass


class GetTimeoutError(RayError, TimeoutError):
    pass


class ObjectLostError(RayError):
    pass


class RayChannelError(RaySystemError):
    pass


# Those that are never raised here, by their bases. Scripts name them in `except`.
_NEVER_RAISED: dict[str, tuple[type, ...]] = {
    "ActorPlacementGroupRemoved ActorUnschedulableError AsyncioActorExit AuthenticationError CrossLanguageError "
    "LocalRayletDiedError NodeDiedError ObjectRefStreamEndOfStreamError ObjectStoreFullError "
    "OufOfBandObjectRefSerializationException OutOfDiskError OutOfMemoryError PendingCallsLimitExceeded "
    "PlasmaObjectNotAvailable RpcError RuntimeEnvSetupError TaskPlacementGroupRemoved TaskUnschedulableError "
    "UnserializableException UserCodeException": (RayError,),
    "RayCgraphCapacityExceeded RayDirectTransportError StreamingGeneratorReplayInconsistentError": (RaySystemError,),
    "ObjectFetchTimedOutError ObjectFreedError ObjectReconstructionFailedError OwnerDiedError": (ObjectLostError,),
    "ReferenceCountingAssertionError": (ObjectLostError, AssertionError),
    "RayChannelTimeoutError": (RayChannelError, TimeoutError),
    "ActorHandleNotFoundError": (ValueError, RayError),
}
for _names, _bases in _NEVER_RAISED.items():
    for _name in _names.split():
        globals()[_name] = type(_name, _bases, {"__module__": __name__})

NAMES = " ".join(sorted(n for n, value in globals().items() if isinstance(value, type) and issubclass(value, RayError)))
