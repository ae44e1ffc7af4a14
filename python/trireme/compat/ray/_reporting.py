"""Functions of ray.train that workers call, where Ray's differ from Trireme's."""

from __future__ import annotations

import warnings
from typing import Any

from trireme._session import current_session
from trireme._session import get_dataset_shard as _shard
from trireme._session import report as _report


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """The worker's shard. The first version returns None for an unknown name."""
    session = current_session("get_dataset_shard")
    settings = getattr(session, "settings", None)
    if settings is not None and settings.v1:
        if session.datasets is None:
            warnings.warn("no dataset was passed to the trainer: get_dataset_shard() returns None", stacklevel=2)
            return None
        names = list(session.datasets._plans)
        if dataset_name is None and len(names) > 1:
            raise RuntimeError(f"the trainer has several datasets ({', '.join(names)}): pass dataset_name")
        if dataset_name is not None and dataset_name not in names:
            return None
    return _shard(dataset_name)


# ray.air.session


def air_report(metrics: dict[str, Any], *, checkpoint: Any = None) -> None:
    _report(metrics, checkpoint=checkpoint)


def get_world_size() -> int:
    return current_session("get_world_size").context.get_world_size()


def get_world_rank() -> int:
    return current_session("get_world_rank").context.get_world_rank()


def get_local_rank() -> int:
    return current_session("get_local_rank").context.get_local_rank()


def get_local_world_size() -> int:
    return current_session("get_local_world_size").context.get_local_world_size()


def get_node_rank() -> int:
    return current_session("get_node_rank").context.get_node_rank()


def get_experiment_name() -> str:
    return current_session("get_experiment_name").context.get_experiment_name()


def get_trial_name() -> str:
    return current_session("get_trial_name").context.get_trial_name()


def get_trial_id() -> str:
    return current_session("get_trial_id").context.get_trial_id()


def get_trial_resources() -> Any:
    return current_session("get_trial_resources").context.get_trial_resources()


def get_trial_dir() -> str | None:
    return current_session("get_trial_dir").context.get_trial_dir()


def get_metadata() -> dict[str, Any]:
    return current_session("get_metadata").context.get_metadata()


def get_run_id() -> str:
    return current_session("get_run_id").context._run_id
