"""Functions of ray.train that workers call, where Ray's differ from Trireme's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
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


def _getter(name: str) -> Callable[[], Any]:
    """That of the worker's context, as a function."""

    def get() -> Any:
        return getattr(current_session(name).context, name)()

    get.__name__ = get.__qualname__ = name
    return get


get_world_size = _getter("get_world_size")
get_world_rank = _getter("get_world_rank")
get_local_rank = _getter("get_local_rank")
get_local_world_size = _getter("get_local_world_size")
get_node_rank = _getter("get_node_rank")
get_experiment_name = _getter("get_experiment_name")
get_trial_name = _getter("get_trial_name")
get_trial_id = _getter("get_trial_id")
get_trial_resources = _getter("get_trial_resources")
get_trial_dir = _getter("get_trial_dir")
get_metadata = _getter("get_metadata")


def get_run_id() -> str:
    return current_session("get_run_id").context._run_id
