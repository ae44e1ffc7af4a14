"""TensorflowTrainer with MultiWorkerMirroredStrategy, and a shard of a dataset as tf.data."""

import json
import os
import tempfile

import ray.data
import ray.train
from compat_record import STORAGE, described, record
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.tensorflow import TensorflowTrainer, prepare_dataset_shard


def train_func(config):
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    cluster = json.loads(os.environ["TF_CONFIG"])
    with strategy.scope():
        weight = tf.Variable(0.0)
    shard = ray.train.get_dataset_shard("train")
    batches = prepare_dataset_shard(shard.to_tf("x", "y", batch_size=4))

    @tf.function
    def step(x, y):
        def gradient(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.cast(x, tf.float32) * weight - tf.cast(y, tf.float32)) ** 2)
            return tape.gradient(loss, weight)

        mean = strategy.reduce("mean", strategy.run(gradient, args=(x, y)), axis=None)
        return mean

    for _ in range(2):
        rows = 0
        for x, y in batches:
            weight.assign_sub(config["lr"] * step(x, y))
            rows += int(x.shape[0])
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                with open(os.path.join(folder, "weight"), "w") as file:
                    file.write(str(float(weight.numpy())))
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"rows": rows, "right": bool(0 < float(weight.numpy()) <= 2)}, checkpoint=checkpoint)
    return [len(cluster["cluster"]["worker"]), cluster["task"]["type"], strategy.num_replicas_in_sync]


if __name__ == "__main__":
    rows = [{"x": index / 16, "y": index / 8} for index in range(16)]
    result = TensorflowTrainer(
        train_func,
        train_loop_config={"lr": 0.5},
        datasets={"train": ray.data.from_items(rows)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="tensorflow_loop", storage_path=STORAGE),
    ).fit()
    record(result=described(result))
