"""The roles of workers in a TensorFlow cluster, and TF_CONFIG. Does not import tensorflow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trireme._config import ConfigError
from trireme._core import count_of

_ORDER = ("chief", "worker", "ps")


@dataclass(frozen=True)
class Task:
    role: str
    index: int


def check_roles(roles: object) -> None:
    if roles is None:
        return
    example = '{"chief": 1, "worker": 2, "ps": 1}'
    if not isinstance(roles, dict):
        raise ConfigError(f"TensorflowConfig.roles: expected a dict such as {example}, got {roles!r}")
    for role, count in roles.items():
        if role not in _ORDER:
            raise ConfigError(
                f"TensorflowConfig.roles: unknown role {role!r}; the roles are {', '.join(map(repr, _ORDER))}"
            )
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigError(f"TensorflowConfig.roles[{role!r}]: expected an integer of 0 or more, got {count!r}")
    if roles.get("chief", 0) > 1:
        raise ConfigError(f"TensorflowConfig.roles['chief']: a cluster has one chief at most, got {roles['chief']}")
    if roles.get("ps", 0) and not roles.get("chief", 0):
        raise ConfigError(
            "TensorflowConfig.roles: a cluster with 'ps' needs a 'chief', which runs the training function: add "
            "'chief': 1"
        )


def check_size(roles: Mapping[str, int] | None, least: int, most: int) -> None:
    """least, most: the numbers of workers that the run may have."""
    if roles is None:
        return
    given = sum(roles.values())
    text = f"TensorflowConfig.roles = {dict(roles)!r}"
    if "worker" in roles and (least, most) != (given, given):
        scaled = least if least == most else (least, most)
        raise ConfigError(
            f"{text} is for {count_of(given, 'worker')}, and num_workers is {scaled}; "
            "leave out 'worker' to give that role to the rest"
        )
    needed = given + (1 if roles.get("ps") else 0)
    if least < needed:
        raise ConfigError(f"{text} needs num_workers of {needed} or more, got {least}")


def tasks(roles: Mapping[str, int] | None, world: int) -> list[Task]:
    """The task of every rank."""
    given = dict(roles or {})
    given["worker"] = world - given.get("chief", 0) - given.get("ps", 0)
    return [Task(role, index) for role in _ORDER for index in range(given.get(role, 0))]


def tf_config(tasks: Sequence[Task], addresses: Sequence[str], rank: int) -> str:
    """The value of TF_CONFIG for one rank."""
    cluster: dict[str, list[str]] = {}
    for task, address in zip(tasks, addresses, strict=True):
        cluster.setdefault(task.role, []).append(address)
    mine = tasks[rank]
    return json.dumps({"cluster": cluster, "task": {"type": mine.role, "index": mine.index}})


def has_servers(roles: Mapping[str, int] | None) -> bool:
    """Whether only the chief runs the training function."""
    return bool(roles and roles.get("ps"))
