"""The job as Ray's documentation shows it: ray_script.py xgboost|lightgbm."""

from __future__ import annotations

import os
import sys
from typing import Any

import ray
from job import CHECKPOINTS, PARAMS, ROUNDS, Stamps
from ray.train import FailureConfig, RunConfig, ScalingConfig, get_checkpoint, get_context, get_dataset_shard

LIBRARY = sys.argv[1]


def train_xgboost(config: dict[str, Any]) -> None:
    import xgboost
    from ray.train.xgboost import RayTrainReportCallback

    class Stamp(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        def before_training(self, model: Any) -> Any:
            self.stamps = Stamps(get_context().get_world_rank())
            return model

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            self.stamps()
            return False

    shard = get_dataset_shard("train").materialize().to_pandas()
    data = xgboost.DMatrix(shard.drop(columns="label"), shard["label"])
    checkpoint = get_checkpoint()
    model = RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
    done = model.num_boosted_rounds() if model else 0
    report = RayTrainReportCallback(frequency=config["frequency"])
    xgboost.train(PARAMS["xgboost"], data, ROUNDS - done, xgb_model=model, callbacks=[Stamp(), report])


def train_lightgbm(config: dict[str, Any]) -> None:
    import lightgbm
    from ray.train.lightgbm import RayTrainReportCallback, get_network_params

    stamps = Stamps(get_context().get_world_rank())
    # Ray's data frames have Arrow's types, which LightGBM refuses.
    shard = get_dataset_shard("train").materialize().to_pandas().astype("float32")
    data = lightgbm.Dataset(shard.drop(columns="label"), shard["label"])
    checkpoint = get_checkpoint()
    model = RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
    done = model.current_iteration() if model else 0
    lightgbm.train(
        {**PARAMS["lightgbm"], **get_network_params()},
        data,
        ROUNDS - done,
        init_model=model,
        callbacks=[lambda env: stamps(), RayTrainReportCallback(frequency=config["frequency"])],
    )


def main() -> None:
    ray.init(num_cpus=3, include_dashboard=False, _node_ip_address="127.0.0.1")
    if LIBRARY == "xgboost":
        from ray.train.xgboost import XGBoostTrainer as Trainer
    else:
        from ray.train.lightgbm import LightGBMTrainer as Trainer
    Trainer(
        train_xgboost if LIBRARY == "xgboost" else train_lightgbm,
        train_loop_config={"frequency": CHECKPOINTS if os.environ.get("BENCH_KILL") else 0},
        datasets={"train": ray.data.read_parquet(os.environ["BENCH_ROWS"])},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=os.path.join(os.environ["BENCH_FOLDER"], "results"),
            failure_config=FailureConfig(max_failures=1),
        ),
    ).fit()


if __name__ == "__main__":
    main()
