"""Functions of LightGBM's library that its Python package does not offer."""

from __future__ import annotations

import ctypes
from typing import Any

import lightgbm
import numpy as np
from lightgbm.basic import _LIB, _safe_call

_TIMEOUT_MINUTES = 30
# Objectives without a state: their predictions are the raw scores, or are computed of them.
_IDENTITY = (
    *("regression", "regression_l2", "l2", "mean_squared_error", "mse", "l2_root", "root_mean_squared_error", "rmse"),
    *("regression_l1", "l1", "mean_absolute_error", "mae", "mape", "mean_absolute_percentage_error"),
    *("huber", "fair", "quantile"),
)
_TRANSFORMED = (
    *("binary", "cross_entropy", "xentropy", "poisson", "gamma", "tweedie"),
    *("multiclass", "softmax", "multiclassova", "multiclass_ova", "ova", "ovr"),
)


def init_network(params: dict[str, Any]) -> None:
    """Connects the workers. The addresses are not among the parameters of the model then, which would differ from rank
    to rank and from attempt to attempt."""
    _safe_call(
        _LIB.LGBM_NetworkInit(
            params["machines"].encode(),
            ctypes.c_int(params["local_listen_port"]),
            ctypes.c_int(_TIMEOUT_MINUTES),
            ctypes.c_int(params["num_machines"]),
        )
    )


def free_network() -> None:
    _safe_call(_LIB.LGBM_NetworkFree())


def put_first(booster: lightgbm.Booster, earlier: lightgbm.Booster) -> None:
    """Inserts the trees of an earlier model before those of this one."""
    _safe_call(_LIB.LGBM_BoosterMerge(booster._handle, earlier._handle))


def returns_raw_scores(params: dict[str, Any]) -> bool:
    """Whether raw_scores() knows how."""
    boosting = _given(params, "gbdt", "boosting", "boosting_type", "boost")
    objective = _given(params, "regression", "objective", "objective_type", "app", "application", "loss")
    changed = params.get("reg_sqrt") or "goss" in (boosting, params.get("data_sample_strategy"))
    return boosting in ("gbdt", "gbrt") and not changed and objective in (*_IDENTITY, *_TRANSFORMED)


def raw_scores(booster: lightgbm.Booster, index: int, params: dict[str, Any]) -> np.ndarray:
    """The scores in training of the rows of a dataset, class by class; 0: the one to train on, then those to evaluate.

    LightGBM returns predictions. Without an objective these are the scores, so it has none for the moment. Collective:
    workers may have to agree on what an objective counts.
    """
    objective = _given(params, "regression", "objective", "objective_type", "app", "application", "loss")
    if objective in _IDENTITY:
        return _predictions(booster, index)
    classes = _given(params, 1, "num_class", "num_classes")
    _reset(booster, f"objective=none num_class={classes}")
    try:
        return _predictions(booster, index)
    finally:
        _reset(booster, f"objective={objective} num_class={classes}")


def _reset(booster: lightgbm.Booster, text: str) -> None:
    _safe_call(_LIB.LGBM_BoosterResetParameter(booster._handle, text.encode()))


def _predictions(booster: lightgbm.Booster, index: int) -> np.ndarray:
    size = ctypes.c_int64()
    _safe_call(_LIB.LGBM_BoosterGetNumPredict(booster._handle, ctypes.c_int(index), ctypes.byref(size)))
    found: np.ndarray = np.empty(size.value)
    pointer = found.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    _safe_call(_LIB.LGBM_BoosterGetPredict(booster._handle, ctypes.c_int(index), ctypes.byref(size), pointer))
    return found


def _given(params: dict[str, Any], default: Any, *aliases: str) -> Any:
    return next((params[name] for name in aliases if params.get(name) is not None), default)
