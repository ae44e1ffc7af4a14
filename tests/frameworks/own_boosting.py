"""A rank of the libraries' own distributed training, without Trireme: a job from every line of stdin.

{"library": ..., "params": {...}, "rounds": ..., "rows": <file of an array, the label last>, "model": <file to write>,
 "connection": <of the tracker, or addresses>}
"""

from __future__ import annotations

import json
import sys
from typing import Any

import lightgbm
import numpy as np
import xgboost
from lightgbm.basic import _LIB
from xgboost import collective


def features(rows: np.ndarray) -> list[str]:
    return [f"x{index}" for index in range(rows.shape[1] - 1)]


def train_xgboost(rank: int, job: dict[str, Any], rows: np.ndarray) -> None:
    names = features(rows)
    with collective.CommunicatorContext(**job["connection"], dmlc_task_id=str(rank)):
        bins = job["params"].get("max_bin")
        kinds = ["float"] * len(names)
        data = xgboost.QuantileDMatrix(
            rows[:, :-1], rows[:, -1], feature_names=names, feature_types=kinds, max_bin=bins, nthread=1
        )
        xgboost.train({**job["params"], "nthread": 1}, data, job["rounds"]).save_model(job["model"])


def train_lightgbm(rank: int, job: dict[str, Any], rows: np.ndarray) -> None:
    params = {"num_threads": 1, "verbosity": -1, "tree_learner": "data", "pre_partition": True, **job["params"]}
    network = {"num_machines": 2, "machines": job["connection"]["machines"], "local_listen_port": None}
    network["local_listen_port"] = job["connection"]["ports"][rank]
    data = lightgbm.Dataset(rows[:, :-1], rows[:, -1], feature_name=features(rows))
    model = lightgbm.train({**params, **network}, data, job["rounds"])
    with open(job["model"], "w") as file:
        file.write(model.model_to_string(num_iteration=-1).split("parameters:")[0])


def main() -> None:
    rank = int(sys.argv[1])
    for line in sys.stdin:
        job = json.loads(line)
        train = train_xgboost if job["library"] == "xgboost" else train_lightgbm
        try:
            train(rank, job, np.load(job["rows"]))
            print("done", flush=True)
        except (lightgbm.basic.LightGBMError, xgboost.core.XGBoostError):  # for example because no feature has values
            print("failed", flush=True)
        finally:
            _LIB.LGBM_NetworkFree()


if __name__ == "__main__":
    main()
