"""A small network with TensorFlow, MultiWorkerMirroredStrategy and a training loop of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from harness import STEPS, Config, Steps, main, set_tf_config


def train(config: Config) -> None:
    done = Steps(config, set_tf_config(config))
    ring = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    with strategy.scope():
        weights = [tf.Variable(tf.random.normal([64, 64], stddev=0.1, seed=1)), tf.Variable(tf.zeros([64, 10]))]

    @tf.function
    def step(rows: Any, labels: Any) -> Any:
        def in_replica(rows: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                logits = tf.nn.relu(rows @ weights[0]) @ weights[1]
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            mean = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, weights))
            for weight, gradient in zip(weights, mean, strict=True):
                weight.assign_sub(0.01 * gradient)
            return loss

        return strategy.run(in_replica, args=(rows, labels))

    random = np.random.default_rng(0)
    for _ in range(STEPS):
        rows = random.standard_normal((32, 64)).astype("float32")
        float(step(tf.constant(rows), tf.constant(random.integers(0, 10, 32))))
        done()
    done.end(lambda: strategy.reduce("SUM", tf.constant(1.0), axis=None))


if __name__ == "__main__":
    main(train, "tensorflow.TensorflowTrainer")
