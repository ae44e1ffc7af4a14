"""JaxTrainer on CPUs."""

import os
import tempfile

import ray.train
from compat_record import STORAGE, described, record
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.v2.jax import JaxTrainer


def train_func(config):
    import jax
    import jax.numpy as jnp

    features = jnp.arange(8.0) / 8
    weight = jnp.float32(0.0)
    gradient = jax.jit(jax.grad(lambda weight: jnp.mean((features * weight - 2 * features) ** 2)))
    for step in range(3):
        weight = weight - config["lr"] * gradient(weight)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                jnp.save(os.path.join(folder, "weight.npy"), weight)
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"weight": float(weight), "step": step}, checkpoint=checkpoint)
    return jax.local_devices()[0].platform


if __name__ == "__main__":
    result = JaxTrainer(
        train_func,
        train_loop_config={"lr": 0.5},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="jax_loop", storage_path=STORAGE),
    ).fit()
    with result.checkpoint.as_directory() as folder:
        record(result=described(result), files=[name for name in os.listdir(folder) if name[0] != "."])
