"""A function validates every checkpoint while training continues; its score ranks the checkpoints."""

import time

import trireme
from trireme import (
    Checkpoint,
    CheckpointConfig,
    DataParallelTrainer,
    RunConfig,
    ValidationConfig,
    ValidationTaskConfig,
)


def train(config):
    for step, weight in enumerate(config["weights"]):
        trireme.report({"step": step}, checkpoint=Checkpoint.from_dict({"weight": weight}), validation=True)
        time.sleep(0.1)


def validate(checkpoint, target):
    weight = checkpoint.to_dict()["weight"]
    print(f"validating {weight}")  # in logs/validation/ of the run folder
    return {"error": abs(weight - target)}


if __name__ == "__main__":
    best_first = CheckpointConfig(checkpoint_score_attribute="error", checkpoint_score_order="min")
    result = DataParallelTrainer(
        train,
        train_loop_config={"weights": [0.5, 2.9, 4.0, 3.2]},
        run_config=RunConfig(name="validation", checkpoint_config=best_first),
        validation_config=ValidationConfig(validate, ValidationTaskConfig(fn_kwargs={"target": 3.0}, timeout_s=60)),
    ).fit()
    checkpoint, metrics = result.best_checkpoints[-1]
    print(f"best: step {metrics['step']}, error {metrics['error']:.1f}, weight {checkpoint.to_dict()['weight']}")
