"""Where this code runs: in the driver, a worker of a trainer, a task or an actor. Set by the process itself."""

from __future__ import annotations

import os
import socket
from typing import Any, NoReturn

from trireme import _session
from trireme.compat.ray._members import refuse_context_member

resources: dict[str, float] = {}
task_id = ""
task_name = ""
actor_id = ""
actor_name = ""
namespace = ""
handle: tuple[Any, ...] = ()


class RuntimeContext:
    """ray.get_runtime_context()."""

    def get_job_id(self) -> str:
        return "01000000"

    def get_node_id(self) -> str:
        return socket.gethostname().encode().hex().ljust(56, "0")[:56]

    def get_worker_id(self) -> str:
        return f"{os.getpid():056x}"

    def get_task_id(self) -> str | None:
        return task_id or None

    def get_task_name(self) -> str | None:
        return task_name or None

    def get_task_function_name(self) -> str | None:
        return task_name or None

    def get_actor_id(self) -> str | None:
        return actor_id or None

    def get_actor_name(self) -> str | None:
        return actor_name or None

    def get_assigned_resources(self) -> dict[str, float]:
        session = _session._current
        return session.context.get_trial_resources() if session is not None and not resources else dict(resources)

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        session = _session._current
        return {"GPU": [str(each) for each in session.context._gpus] if session is not None else []}

    @property
    def namespace(self) -> str:
        return namespace

    @property
    def was_current_actor_reconstructed(self) -> bool:
        return False

    @property
    def current_actor(self) -> Any:
        if not handle:
            raise RuntimeError("get_runtime_context().current_actor: this process is not an actor")
        from trireme.compat.ray._tasks._remote import ActorHandle

        return ActorHandle(*handle)

    @property
    def gcs_address(self) -> str:
        return "127.0.0.1"

    @property
    def runtime_env(self) -> dict[str, Any]:
        return {}

    job_id = property(get_job_id)
    node_id = property(get_node_id)
    task = property(get_task_id)

    def __getattr__(self, name: str) -> NoReturn:
        refuse_context_member(name)

    def get(self) -> dict[str, Any]:
        return {"job_id": self.get_job_id(), "node_id": self.get_node_id(), "namespace": self.namespace}


class ExitActor(BaseException):
    """Ends the actor whose method raises it."""


def exit_actor() -> NoReturn:
    if not actor_id:
        raise TypeError("exit_actor() was called outside of an actor")
    raise ExitActor


def get_runtime_context() -> RuntimeContext:
    return RuntimeContext()
