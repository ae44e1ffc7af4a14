"""The guide for TensorFlow and Keras, as of 2023: MultiWorkerMirroredStrategy, to_tf and ReportCheckpointCallback."""

import ray
import tensorflow as tf
from ray.air import session
from ray.air.config import ScalingConfig
from ray.air.integrations.keras import ReportCheckpointCallback
from ray.train.tensorflow import TensorflowTrainer


def build_model() -> tf.keras.Model:
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer(shape=()),
            # Add feature dimension, expanding (batch_size,) to (batch_size, 1).
            tf.keras.layers.Reshape((1,)),
            tf.keras.layers.Dense(10),
            tf.keras.layers.Dense(1),
        ]
    )


def train_func(config: dict):
    batch_size = config.get("batch_size", 64)
    epochs = config.get("epochs", 3)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        # Model building/compiling need to be within `strategy.scope()`.
        multi_worker_model = build_model()
        multi_worker_model.compile(
            optimizer=tf.keras.optimizers.SGD(learning_rate=config.get("lr", 1e-3)),
            loss="mean_squared_error",
            metrics=["mean_squared_error"],
        )
    dataset = session.get_dataset_shard("train")
    results = []
    for _ in range(epochs):
        tf_dataset = dataset.to_tf(feature_columns="x", label_columns="y", batch_size=batch_size)
        history = multi_worker_model.fit(tf_dataset, verbose=0, callbacks=[ReportCheckpointCallback()])
        results.append(history.history)
    return results


config = {"lr": 1e-3, "batch_size": 8, "epochs": 2}
train_dataset = ray.data.from_items([{"x": x / 64, "y": 2 * x / 64} for x in range(64)])
scaling_config = ScalingConfig(num_workers=2, use_gpu=False)
trainer = TensorflowTrainer(
    train_loop_per_worker=train_func,
    train_loop_config=config,
    scaling_config=scaling_config,
    datasets={"train": train_dataset},
)
result = trainer.fit()
assert result.metrics["loss"] > 0 and result.metrics["training_iteration"] == 2, result.metrics
assert result.checkpoint is not None
print("GUIDE DONE")
