from __future__ import annotations

from typing import Any

import tensorflow as tf


def prepare_dataset_shard(tf_dataset_shard: Any) -> Any:
    """The tf.data.Dataset without TensorFlow's own sharding, and with prefetching. For datasets that already have only
    the rows of this worker; `to_tf()` of a dataset shard returns one without its own sharding."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options).prefetch(tf.data.AUTOTUNE)
