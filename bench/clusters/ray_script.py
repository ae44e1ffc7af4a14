"""The same with Ray Train."""

import os
import tempfile
from pathlib import Path

import ray
import ray.train
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from stamps import stamp
from training import FITS, reach, steps


def train_func(config: dict) -> None:
    if config["fit"] < FITS - 1:
        return reach(config["fit"])
    first = 0
    if saved := ray.train.get_checkpoint():
        with saved.as_directory() as folder:
            first = int(Path(folder, "step").read_text()) + 1
    rank = ray.train.get_context().get_world_rank()

    def save(step: int) -> None:
        if rank != 0:
            ray.train.report({"step": step})
            return
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            ray.train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder))

    steps(first, save)


if __name__ == "__main__":
    # Ray's nodes were started with another environment.
    variables = {name: os.environ[name] for name in ("BENCH_FOLDER", "OMP_NUM_THREADS")}
    variables["PYTHONPATH"] = str(Path(__file__).parent)
    ray.init(address=os.environ["RAY_ADDRESS"], runtime_env={"env_vars": variables}, log_to_driver=False)
    for fit in range(FITS):
        stamp(f"fit_{fit}_begin")
        TorchTrainer(
            train_func,
            train_loop_config={"fit": fit},
            scaling_config=ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
            run_config=RunConfig(storage_path=os.environ["BENCH_FOLDER"], failure_config=FailureConfig(max_failures=1)),
        ).fit()
