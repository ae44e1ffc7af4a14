"""TensorFlow with a training loop of its own on two workers: handwritten digits, resumed in the middle of an epoch.

Kill a worker while it runs (`kill -9`, or --kill): training resumes at the batch after the last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import numpy as np

import trireme
import trireme.data
from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.tensorflow import TensorflowTrainer


def digits() -> Any:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rows = zip((images / 16).astype(np.float32), labels, strict=True)
    return trireme.data.from_items([{"x": image, "y": label} for image, label in rows]).random_shuffle(seed=0)


def train(config: dict[str, Any]) -> None:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    context = trireme.get_context()
    with strategy.scope():
        weights, bias = tf.Variable(tf.zeros([64, 10])), tf.Variable(tf.zeros([10]))
    if checkpoint := trireme.get_checkpoint():
        state = checkpoint.to_dict()
        weights.assign(state["weights"])
        bias.assign(state["bias"])
        print(f"resuming from {os.path.basename(checkpoint.path)}")

    @tf.function
    def step(images: Any, labels: Any) -> Any:
        def in_replica(images: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                logits = images @ weights + bias
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            gradients = tape.gradient(loss, [weights, bias])
            mean = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
            weights.assign_sub(0.5 * mean[0])
            bias.assign_sub(0.5 * mean[1])
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(in_replica, args=(images, labels)), axis=None)

    shard = trireme.get_dataset_shard("train")
    while shard.epoch < config["epochs"]:
        for number, batch in enumerate(shard.iter_tf_batches(batch_size=32)):
            loss = step(batch["x"], batch["y"])
            if number % 10 == 9:
                state = {"weights": weights.numpy(), "bias": bias.numpy()}
                mine = trireme.Checkpoint.from_dict(state) if context.get_world_rank() == 0 else None
                trireme.report({"loss": float(loss), "epoch": shard.epoch}, checkpoint=mine)
            if config["kill"] and number == 15 and context.get_world_rank() == 1 and context._attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true", help="kill rank 1 in step 15, once")
    parser.add_argument("--name", default=None)
    given = parser.parse_args()
    result = TensorflowTrainer(
        train,
        train_loop_config={"epochs": given.epochs, "kill": given.kill},
        datasets={"train": digits()},
        scaling_config=ScalingConfig(num_workers=given.num_workers),
        run_config=RunConfig(name=given.name, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    print(f"loss {result.metrics['loss']:.3f} after {given.epochs} epochs")
