"""The trainers of Ray Train. Each is made when the script names it: importing a framework's adapter tells the warm
process to import the framework."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from trireme.compat.ray._fit import RayFit
from trireme.compat.ray._version import note_v1

_ADAPTERS = {
    "HorovodTrainer": "trireme.horovod",
    "JaxTrainer": "trireme.jax",
    "LightGBMTrainer": "trireme.lightgbm",
    "TensorflowTrainer": "trireme.tensorflow",
    "TorchTrainer": "trireme.torch",
    "XGBoostTrainer": "trireme.xgboost",
}


class DataParallelTrainer(RayFit):
    """ray.train.data_parallel_trainer.DataParallelTrainer."""


BaseTrainer = DataParallelTrainer


class _BoostingFit(RayFit):
    def __init__(self, train_loop_per_worker: Any = None, **options: Any) -> None:
        if any(options.get(name) is not None for name in ("params", "label_column", "num_boost_round")):
            note_v1(f"{type(self).__name__}(params=..., label_column=...)")
            options.setdefault("evaluate_train", True)  # reported as train-<metric>
            if "train" not in (options.get("datasets") or {}):
                raise ValueError(
                    f"{type(self).__name__}(params=...) trains on the dataset named 'train', which is missing: pass "
                    'datasets={"train": ...}'
                )
        options.pop("dmatrix_params", None)
        super().__init__(train_loop_per_worker, **options)


def __getattr__(name: str) -> Any:
    if name not in _ADAPTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    framework = getattr(import_module(_ADAPTERS[name]), name)
    fit = _BoostingFit if name in ("LightGBMTrainer", "XGBoostTrainer") else RayFit
    made = type(name, (fit, framework), {"__module__": __name__, "__doc__": framework.__doc__})
    globals()[name] = made
    return made
