"""Flax and Optax on two workers: handwritten digits from a dataset, with sharded checkpoints.

Kill a worker while it runs (`kill -9`, or --kill): training resumes at the batch after the last checkpoint. Run it
again with the same --name, more --epochs and another --num-workers: it continues.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

import trireme
from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.jax import JaxTrainer, iter_batches, load_sharded, save_sharded

BATCH = 64  # of all workers together


class Network(nn.Module):
    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        return nn.Dense(10)(nn.relu(nn.Dense(64)(images)))


@jax.jit
def fit_batch(state: TrainState, batch: dict[str, jax.Array]) -> tuple[TrainState, jax.Array]:
    def loss(params: Any) -> jax.Array:
        outputs = state.apply_fn(params, batch["image"])
        return optax.softmax_cross_entropy_with_integer_labels(outputs, batch["label"]).mean()

    value, gradients = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=gradients), value


@jax.jit
def count_right(state: TrainState, batch: dict[str, jax.Array]) -> jax.Array:
    return (state.apply_fn(state.params, batch["image"]).argmax(1) == batch["label"]).mean()


def first_state(mesh: Mesh) -> TrainState:
    """The same on all workers, and divided among their devices where that is possible."""
    network = Network()
    params = network.init(jax.random.key(0), np.zeros((1, 64), "float32"))
    state = TrainState.create(apply_fn=network.apply, params=params, tx=optax.adamw(0.01))

    def layout(leaf: Any) -> NamedSharding:
        divisible = np.ndim(leaf) == 2 and leaf.shape[0] % mesh.size == 0
        return NamedSharding(mesh, PartitionSpec("data") if divisible else PartitionSpec())

    return jax.tree.map(lambda leaf: jax.device_put(leaf, layout(leaf)), state)


def train(config: dict[str, Any]) -> None:
    mesh = Mesh(jax.devices(), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    state = first_state(mesh)
    if checkpoint := trireme.get_checkpoint():
        state = load_sharded(checkpoint, state)
        print(f"resuming from step {int(state.step)}")
    digits, held_out = trireme.get_dataset_shard("train"), trireme.get_dataset_shard("held_out")
    batches = iter_batches(digits, rows, global_batch_size=BATCH, drop_last=True)
    while digits.epoch < config["epochs"]:
        for batch in batches:
            state, loss = fit_batch(state, batch)
            step = int(state.step)
            if config["kill"] and step == 30 and jax.process_index() == 1 and trireme.get_context()._attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if step % 20 == 0:
                trireme.report({"step": step, "loss": float(loss)}, checkpoint=save_sharded(state))
        right = [count_right(state, batch) for batch in iter_batches(held_out, rows, global_batch_size=60)]
        metrics = {"step": int(state.step), "loss": float(loss), "accuracy": float(jnp.stack(right).mean())}
        trireme.report(metrics, checkpoint=save_sharded(state))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true", help="kill rank 1 at step 30, once")
    parser.add_argument("--name", default=None)
    given = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    pixels = pa.FixedSizeListArray.from_arrays((images / 16).astype("float32").reshape(-1), 64)
    table = pa.table({"image": pixels, "label": labels})
    result = JaxTrainer(
        train,
        train_loop_config={"epochs": given.epochs, "kill": given.kill},
        scaling_config=ScalingConfig(num_workers=given.num_workers),
        run_config=RunConfig(name=given.name, failure_config=FailureConfig(max_failures=1)),
        datasets={
            "train": trireme.data.from_arrow(table.slice(180)).repartition(8).random_shuffle(seed=0),
            "held_out": trireme.data.from_arrow(table.slice(0, 180)),
        },
    ).fit()
    print(f"accuracy {result.metrics['accuracy']:.1%} after {result.metrics['step']} steps")
