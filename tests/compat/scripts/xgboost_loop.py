"""XGBoost with a training function and Ray's callback."""

import ray.data
import ray.train
import xgboost
from compat_record import STORAGE, described, record
from ray.train import RunConfig, ScalingConfig
from ray.train.xgboost import RayTrainReportCallback, XGBoostTrainer


def train_func(config):
    frame = ray.train.get_dataset_shard("train").materialize().to_pandas()
    matrix = xgboost.DMatrix(frame[["x"]], label=frame["y"])
    xgboost.train(
        {"objective": "reg:squarederror", "max_depth": 2, "nthread": 1, "base_score": 0.5},
        matrix,
        num_boost_round=4,
        evals=[(matrix, "train")],
        verbose_eval=False,
        callbacks=[RayTrainReportCallback(frequency=2)],
    )


if __name__ == "__main__":
    result = XGBoostTrainer(
        train_func,
        train_loop_config={},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(name="xgboost_loop", storage_path=STORAGE),
        datasets={"train": ray.data.from_items([{"x": float(i), "y": float(i % 5)} for i in range(32)])},
    ).fit()
    model = RayTrainReportCallback.get_model(result.checkpoint)
    record(
        result=described(result),
        rounds=model.num_boosted_rounds(),
        predicted=model.predict(xgboost.DMatrix([[3.0], [7.0]], feature_names=["x"])).tolist(),
    )
