"""A small network with Flax and Optax."""

from __future__ import annotations

import os

import flax.linen as nn
import jax
import numpy as np
import optax
from harness import STEPS, Config, Steps, main, set_rank_variables
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_PORT = 29_571  # of the coordinator under Ray Train


class Network(nn.Module):
    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        return nn.Dense(10)(nn.relu(nn.Dense(64)(inputs)))


def train(config: Config) -> None:
    if config["mode"] != "trireme":
        # Ray Train does it only on GPUs and TPUs.
        port = _PORT + config["fit"] if config["mode"] == "ray" else int(os.environ["MASTER_PORT"]) + 1
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, set_rank_variables(config))
    done = Steps(config, jax.process_index())
    mesh = Mesh(jax.devices(), ("data",))
    rows, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    random = np.random.default_rng(jax.process_index())
    inputs = random.standard_normal((STEPS, 32, 64)).astype("float32")
    targets = random.integers(0, 10, (STEPS, 32))
    network, optimizer = Network(), optax.adamw(0.01)
    params = jax.device_put(network.init(jax.random.key(0), np.zeros((1, 64), "float32")), whole)
    moments = optimizer.init(params)

    @jax.jit
    def step(params, moments, inputs, targets):
        def loss(params):
            return optax.softmax_cross_entropy_with_integer_labels(network.apply(params, inputs), targets).mean()

        updates, moments = optimizer.update(jax.grad(loss)(params), moments, params)
        return optax.apply_updates(params, updates), moments

    for mine in zip(inputs, targets, strict=True):
        params, moments = step(params, moments, *(jax.make_array_from_process_local_data(rows, each) for each in mine))
        jax.block_until_ready(params)
        done()
    done.end(lambda: multihost_utils.sync_global_devices("end"))


if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    main(train, "jax.JaxTrainer", in_ray="v2.jax.JaxTrainer")
