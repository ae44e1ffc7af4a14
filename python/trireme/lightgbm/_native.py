"""Functions of LightGBM's library that its Python package does not offer."""

from __future__ import annotations

import ctypes
from typing import Any

import lightgbm
from lightgbm.basic import _LIB, _safe_call

_TIMEOUT_MINUTES = 30


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
