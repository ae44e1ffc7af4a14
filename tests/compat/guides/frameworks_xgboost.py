"""The quickstart for XGBoost: shards as matrices, Ray's callback, the model of the result."""

import ray.data
import ray.train
import xgboost
from ray.train import RunConfig, ScalingConfig
from ray.train.xgboost import RayTrainReportCallback, XGBoostTrainer

rows = [{"a": i % 11, "b": i % 4, "target": int(i % 11 > 5)} for i in range(120)]
dataset = ray.data.from_items(rows)
train_dataset, valid_dataset = dataset.train_test_split(test_size=0.3)
test_dataset = valid_dataset.drop_columns(["target"])


def train_fn_per_worker(config: dict):
    train_ds, valid_ds = ray.train.get_dataset_shard("train"), ray.train.get_dataset_shard("valid")
    train_df = train_ds.materialize().to_pandas()
    valid_df = valid_ds.materialize().to_pandas()
    train_X, train_y = train_df.drop("target", axis=1), train_df["target"]
    valid_X, valid_y = valid_df.drop("target", axis=1), valid_df["target"]
    dtrain = xgboost.DMatrix(train_X, label=train_y)
    deval = xgboost.DMatrix(valid_X, label=valid_y)
    checkpoint = ray.train.get_checkpoint()
    starting_model = RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
    xgboost.train(
        config,
        dtrain=dtrain,
        evals=[(deval, "validation")],
        num_boost_round=6,
        xgb_model=starting_model,
        callbacks=[RayTrainReportCallback(metrics={"loss": "validation-logloss"}, frequency=2)],
    )


if __name__ == "__main__":
    trainer = XGBoostTrainer(
        train_fn_per_worker,
        train_loop_config={"objective": "binary:logistic", "eval_metric": ["logloss", "error"], "max_depth": 2},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
        datasets={"train": train_dataset, "valid": valid_dataset},
        run_config=RunConfig(name="xgboost_guide"),
    )
    result = trainer.fit()
    model = RayTrainReportCallback.get_model(result.checkpoint)
    assert model.num_boosted_rounds() == 6 and 0 < result.metrics["loss"] < 0.7, result.metrics
    predicted = test_dataset.map_batches(
        lambda batch: {"score": model.predict(xgboost.DMatrix(batch))}, batch_format="pandas"
    )
    assert len(predicted.take_all()) == 36
    print("GUIDE DONE")
