"""LightGBM with a training function, Ray's callback and the network of the run."""

import lightgbm
import ray.data
import ray.train
from compat_record import STORAGE, described, record
from ray.train import RunConfig, ScalingConfig
from ray.train.lightgbm import LightGBMTrainer, RayTrainReportCallback, get_network_params


def train_func():
    frame = ray.train.get_dataset_shard("train").materialize().to_pandas()
    frame = frame.astype(float)  # Ray gives nullable types, which LightGBM refuses
    data = lightgbm.Dataset(frame[["x"]], label=frame["y"])
    lightgbm.train(
        {"objective": "regression", "num_leaves": 3, "min_data_in_leaf": 1, "verbose": -1, "num_threads": 1},
        data,
        num_boost_round=4,
        valid_sets=[data],
        valid_names=["train"],
        callbacks=[RayTrainReportCallback(frequency=2)],
    )
    return sorted(get_network_params())


if __name__ == "__main__":
    result = LightGBMTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(name="lightgbm_loop", storage_path=STORAGE),
        datasets={"train": ray.data.from_items([{"x": float(i), "y": float(i % 5)} for i in range(64)])},
    ).fit()
    model = RayTrainReportCallback.get_model(result.checkpoint)
    record(result=described(result), trees=model.num_trees(), predicted=model.predict([[3.0], [7.0]]).tolist())
