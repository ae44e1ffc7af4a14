"""The addresses of the workers of this attempt, for LightGBM's parameters."""

from __future__ import annotations

import warnings
from typing import Any

_current: dict[str, Any] = {}


def set_network_params(params: dict[str, Any]) -> None:
    global _current
    _current = params


def get_network_params() -> dict[str, Any]:
    """The parameters `machines`, `local_listen_port` and `num_machines` of this worker, to add to those of
    lightgbm.train() or of an estimator, with tree_learner="data" and pre_partition=True. Empty outside of a
    LightGBMTrainer's worker, with a warning."""
    if not _current:
        warnings.warn(
            "get_network_params() is called outside of the workers of a LightGBMTrainer: training is not distributed",
            stacklevel=2,
        )
    return dict(_current)
