"""The quickstart for LightGBM: two workers with get_network_params."""

import lightgbm
import ray.data
import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.lightgbm import (
    LightGBMTrainer,
    RayTrainReportCallback,
    get_network_params,
    normalize_pandas_for_lightgbm,
)

rows = [{"a": i % 11, "b": i % 4, "target": int(i % 11 > 5)} for i in range(200)]
train_dataset, valid_dataset = ray.data.from_items(rows).train_test_split(test_size=0.3)


def train_func(config):
    train_df = normalize_pandas_for_lightgbm(ray.train.get_dataset_shard("train").materialize().to_pandas())
    eval_df = normalize_pandas_for_lightgbm(ray.train.get_dataset_shard("valid").materialize().to_pandas())
    train_set = lightgbm.Dataset(train_df.drop("target", axis=1), label=train_df["target"])
    eval_set = lightgbm.Dataset(eval_df.drop("target", axis=1), label=eval_df["target"])
    params = {
        "objective": "binary",
        "metric": ["binary_logloss", "binary_error"],
        "tree_learner": "data_parallel",
        "pre_partition": True,
        "min_data_in_leaf": 2,
        "verbosity": -1,
        "num_threads": 1,
    }
    params.update(get_network_params())
    lightgbm.train(
        params,
        train_set,
        num_boost_round=4,
        valid_sets=[eval_set],
        valid_names=["eval"],
        callbacks=[RayTrainReportCallback()],
    )


if __name__ == "__main__":
    result = LightGBMTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2),
        datasets={"train": train_dataset, "valid": valid_dataset},
        run_config=RunConfig(name="lightgbm_guide"),
    ).fit()
    assert RayTrainReportCallback.get_model(result.checkpoint).num_trees() == 4
    assert "eval-binary_logloss" in result.metrics, result.metrics
    print("GUIDE DONE")
