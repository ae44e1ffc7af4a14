"""ray.init() and what a script asks about the cluster: this machine."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Any, Self

from trireme import _session
from trireme import init as _init
from trireme import shutdown as _shutdown
from trireme._runtime import runtime
from trireme._runtime_env import check_runtime_env
from trireme.compat.ray import _driver, _runtime_env
from trireme.compat.ray._refusal import refusal, warn_once

_initialized = False
# Parameters of ray.init() that change nothing here.
_HARMLESS = {
    "ignore_reinit_error",
    "configure_logging",
    "logging_level",
    "logging_format",
    "logging_config",
    "log_to_driver",
    "include_dashboard",
    "enable_resource_isolation",
    "cgroup_path",
    "system_reserved_cpu",
    "system_reserved_memory",
    "proxy_server_url",
    "dashboard_host",
    "dashboard_port",
    "object_store_memory",
    "namespace",
    "job_config",
    "local_mode",
    "labels",
}


@dataclass
class LoggingConfig:
    """For ray.init(logging_config=...), which changes nothing."""

    encoding: str = "TEXT"
    log_level: str = "INFO"
    additional_log_standard_attrs: list[str] = field(default_factory=list)


class Context:
    """What ray.init() returns; also a context manager that shuts down at the end."""

    dashboard_url = ""
    python_version = ""
    ray_version = ""

    def __init__(self) -> None:
        self.address_info = {"node_ip_address": "127.0.0.1", "address": "local", "node_id": _node_id()}

    def __getitem__(self, name: str) -> Any:
        return self.address_info[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        shutdown()

    def disconnect(self) -> None:
        shutdown()


def init(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    runtime_env: Any = None,
    **options: Any,
) -> Context:
    """Declares the capacity of this machine, if it is given."""
    global _initialized
    for name in options:
        if name not in _HARMLESS and not name.startswith("_"):
            raise TypeError(f"ray.init() got an unexpected parameter {name!r}")
    if address not in (None, "local", "auto"):
        raise refusal(
            f"ray.init(address={address!r})",
            "runs use this machine; trireme.init(engine=...) selects the nodes of a cluster, see docs/clusters.md",
        )
    if _initialized and not options.get("ignore_reinit_error"):
        raise RuntimeError(
            "ray.init() was called twice: pass ignore_reinit_error=True, or call ray.shutdown() before the second call"
        )
    if options.get("local_mode"):
        warn_once(
            "ray.init(local_mode=True) has no effect: ScalingConfig(num_workers=0) runs a trainer in this process"
        )
    _set_environment(runtime_env)
    if any(given is not None for given in (num_cpus, num_gpus, resources)):
        _init(num_cpus=num_cpus, num_gpus=num_gpus, resources=resources)
    _initialized = True
    _driver.prepare_run()
    return Context()


def _set_environment(runtime_env: Any) -> None:
    """For all workers, tasks and actors. RunConfig(worker_runtime_env=...) is for those of one run."""
    given = check_runtime_env(_runtime_env.plain(runtime_env), "ray.init(runtime_env)")
    os.environ.update(given.pop("env_vars", {}))
    _runtime_env.set_for_all(given)


def shutdown(_exiting_interpreter: bool = False, wait_for_processes: bool = True) -> None:
    """Processes always end before it returns."""
    global _initialized
    _initialized = False
    _runtime_env.set_for_all({})
    _driver.end_session()
    _shutdown()


def is_initialized() -> bool:
    """Also after the first fit(), task or actor, as in Ray."""
    return _initialized or _driver.has_session() or os.environ.get("TRIREME_WORKER") == "1"


def cluster_resources() -> dict[str, float]:
    """Declared capacity, or what this machine has."""
    return _sum("total")


def available_resources() -> dict[str, float]:
    return _sum("free")


def _sum(which: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for node in runtime().nodes():
        for name, amount in (node.get(which) or node["total"]).items():
            if amount:
                found[name] = found.get(name, 0.0) + float(amount)
    return found


def nodes() -> list[dict[str, Any]]:
    return [
        {
            "NodeID": _node_id(),
            "Alive": True,
            "NodeManagerAddress": "127.0.0.1",
            "NodeManagerHostname": socket.gethostname(),
            "NodeName": "127.0.0.1",
            "Resources": {name: float(amount) for name, amount in node["total"].items() if amount},
            "Labels": {},
            "alive": True,
        }
        for node in runtime().nodes()
    ]


def get_gpu_ids() -> list[int | str]:
    """The GPUs of this worker. Tasks and actors have none."""
    session = _session._current
    ids = list(session.context._gpus) if session is not None else []
    return [int(each) if each.isdigit() else each for each in ids]


def _node_id() -> str:
    return socket.gethostname().encode().hex().ljust(56, "0")[:56]
