"""A small network with Keras' fit() on TensorFlow, under MultiWorkerMirroredStrategy."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from harness import STEPS, Config, Steps, main, set_tf_config


class Stamp(keras.callbacks.Callback):
    def __init__(self, done: Steps) -> None:
        super().__init__()
        self.done = done

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.done()


def work_around() -> None:
    """Keras 3 fails under the strategy; see docs/keras.md. Trireme does the same by itself."""
    from keras.src import tree
    from keras.src.backend.tensorflow import trainer

    def build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        spec = tree.map_structure(of_replica, iterator._distributed_dataset.element_spec)
        with self.distribute_strategy.scope():
            self._symbolic_build(data_batch=spec)

    def of_replica(spec: Any) -> Any:
        return (getattr(spec, "_value_specs", None) or [spec])[0]

    def reduce(values: Any, strategy: Any, reduction: str) -> Any:
        return tree.map_structure(lambda value: strategy.reduce("MEAN", value, axis=None), values)

    trainer.TensorFlowTrainer._maybe_symbolic_build = build
    trainer.reduce_per_replica = reduce


def train(config: Config) -> None:
    done = Steps(config, set_tf_config(config))
    if config["mode"] != "trireme":
        work_around()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        layers = [keras.layers.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.AdamW(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.default_rng(0)
    rows = random.standard_normal((64 * STEPS, 64)).astype("float32"), random.integers(0, 10, 64 * STEPS)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices(rows).batch(64).with_options(options)
    model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[Stamp(done)])
    done.end(lambda: strategy.reduce("SUM", tf.constant(1.0), axis=None))


if __name__ == "__main__":
    main(train, "tensorflow.TensorflowTrainer")
