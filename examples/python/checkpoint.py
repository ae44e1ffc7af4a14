"""Asynchronous checkpoints of a state; the run keeps the best two."""

import random

import trireme
from trireme import Checkpoint, CheckpointConfig, CheckpointUploadMode, DataParallelTrainer, RunConfig, ScalingConfig


def train(config):
    random.seed(trireme.get_context().get_world_rank())
    weights = [random.random() for _ in range(1000)]
    for step in range(config["steps"]):
        weights = [weight * 0.7 for weight in weights]
        loss = sum(weight * weight for weight in weights)
        # Every rank stores its own part. report() returns at once, and the state may change after that.
        state = {"step": step, "weights": weights, "random": random.getstate()}
        trireme.report(
            {"step": step, "loss": loss},
            checkpoint=Checkpoint.from_dict(state),
            checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
        )


if __name__ == "__main__":
    keep = CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min")
    result = DataParallelTrainer(
        train,
        train_loop_config={"steps": 6},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="checkpoint", checkpoint_config=keep),
    ).fit()
    for checkpoint, metrics in result.best_checkpoints:
        weights = checkpoint.to_dict()["weights"]
        print(f"kept step {metrics['step']}, loss {metrics['loss']:.3f}, {len(weights)} weights")
    print(f"rank 1 has its own state: step {trireme.load_state(result.checkpoint, rank=1)['step']}")
