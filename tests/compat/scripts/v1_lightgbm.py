"""The first version's LightGBMTrainer: params, label_column and a dataset."""

import os

import ray.data
from compat_record import STORAGE, described, record
from ray.train import CheckpointConfig, RunConfig, ScalingConfig
from ray.train.lightgbm import LightGBMTrainer, RayTrainReportCallback

if __name__ == "__main__":
    rows = [{"a": index % 7, "b": index % 3, "label": (index % 7) * 2 + index % 3} for index in range(200)]
    trainer = LightGBMTrainer(
        label_column="label",
        params={"objective": "regression", "metric": ["l2"], "num_leaves": 4, "min_data_in_leaf": 2, "verbosity": -1},
        num_boost_round=4,
        datasets={"train": ray.data.from_items(rows), "valid": ray.data.from_items(rows[:50])},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(
            name="v1_lightgbm",
            storage_path=STORAGE,
            checkpoint_config=CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True, num_to_keep=1),
        ),
    )
    result = trainer.fit()
    model = RayTrainReportCallback.get_model(result.checkpoint)
    with result.checkpoint.as_directory() as folder:
        files = sorted(name for name in os.listdir(folder) if name[0] != ".")
    shown = described(result, first_version=True)
    record(
        iteration=shown["metrics"]["training_iteration"],
        metrics=sorted(name for name in shown["metrics"] if name.startswith(("train", "valid"))),
        checkpoint=shown["checkpoint"],
        best=[name for name, _ in shown["best"]],
        rows=shown["rows"],
        files=files,
        trees=model.num_trees(),
    )
