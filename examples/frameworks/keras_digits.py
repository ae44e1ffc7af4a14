"""Keras on two workers with MultiWorkerMirroredStrategy: handwritten digits, resumed in the middle of an epoch.

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
from trireme.keras import ReportCheckpointCallback, completed_epochs, load_model
from trireme.tensorflow import TensorflowTrainer


def digits() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rows = [{"x": row, "y": label} for row, label in zip((images / 16).astype(np.float32), labels, strict=True)]
    return trireme.data.from_items(rows[200:]).random_shuffle(seed=0), trireme.data.from_items(rows[:200])


def train(config: dict[str, Any]) -> None:
    import keras
    import tensorflow as tf

    class KillOnce(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            context = trireme.get_context()
            if config["kill"] and batch == 20 and context.get_world_rank() == 1 and context._attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    checkpoint = trireme.get_checkpoint()
    with strategy.scope():
        if checkpoint is None:
            keras.utils.set_random_seed(0)
            layers = [keras.layers.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
            model = keras.Sequential(layers)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
        else:
            model = load_model(checkpoint)
            print(f"resuming from {os.path.basename(checkpoint.path)}")
    shard, held_out = trireme.get_dataset_shard("train"), trireme.get_dataset_shard("held_out")
    model.fit(
        shard.to_tf("x", "y", batch_size=32),
        validation_data=held_out.to_tf("x", "y", batch_size=32),
        epochs=config["epochs"],
        initial_epoch=completed_epochs(checkpoint),
        callbacks=[KillOnce(), ReportCheckpointCallback(["train_batch_end", "epoch_end"])],
        verbose=0,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true", help="kill rank 1 in step 20 of an epoch, once")
    parser.add_argument("--name", default=None)
    given = parser.parse_args()
    fitted, tested = digits()
    result = TensorflowTrainer(
        train,
        train_loop_config={"epochs": given.epochs, "kill": given.kill},
        datasets={"train": fitted, "held_out": tested},
        scaling_config=ScalingConfig(num_workers=given.num_workers),
        run_config=RunConfig(name=given.name, failure_config=FailureConfig(max_failures=1)),
    ).fit()
    print(f"accuracy {result.metrics['val_accuracy']:.1%} after {given.epochs} epochs")
