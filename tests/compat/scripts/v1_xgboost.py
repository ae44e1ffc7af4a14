"""The trainer's own loop: params, label_column, num_boost_round."""

import ray.data
import xgboost
from compat_record import STORAGE, name_of, record
from ray.train import CheckpointConfig, RunConfig, ScalingConfig
from ray.train.xgboost import XGBoostTrainer

if __name__ == "__main__":
    dataset = ray.data.from_items([{"x": float(i), "y": float(i % 5)} for i in range(32)])
    trainer = XGBoostTrainer(
        label_column="y",
        params={"objective": "reg:squarederror", "max_depth": 2, "nthread": 1, "base_score": 0.5},
        num_boost_round=4,
        scaling_config=ScalingConfig(num_workers=1, trainer_resources={"CPU": 0}),
        run_config=RunConfig(
            name="v1_xgboost",
            storage_path=STORAGE,
            verbose=0,
            checkpoint_config=CheckpointConfig(checkpoint_frequency=2),
        ),
        datasets={"train": dataset, "valid": dataset},
    )
    result = trainer.fit()
    model = XGBoostTrainer.get_model(result.checkpoint)
    errors = []
    for options in ({"datasets": {}}, {"datasets": {"other": dataset}}):
        try:
            XGBoostTrainer(label_column="y", params={}, scaling_config=ScalingConfig(num_workers=1), **options).fit()
        except Exception as error:
            errors.append(type(error).__name__)
    record(
        valid=result.metrics["valid-rmse"],
        train=result.metrics["train-rmse"],
        rounds=model.num_boosted_rounds(),
        predicted=model.predict(xgboost.DMatrix([[3.0], [7.0]], feature_names=["x"])).tolist(),
        iteration=result.metrics["training_iteration"],
        checkpoint=name_of(result.checkpoint),
        errors=errors,
    )
