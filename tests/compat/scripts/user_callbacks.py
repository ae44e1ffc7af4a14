"""UserCallback: every report with the metrics of all ranks, and failures."""

import os
import tempfile

import ray.train
from compat_record import STORAGE, name_of, record
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.torch import TorchTrainer

SEEN = os.path.join(tempfile.mkdtemp(), "seen")


class Recorder(UserCallback):
    def __init__(self, path):
        self.path = path

    def note(self, text):
        with open(self.path, "a") as file:
            file.write(text + "\n")

    def after_report(self, run_context, metrics, checkpoint):
        name = run_context.run_config.name
        self.note(
            f"{name} {[each['step'] for each in metrics]} {[each['rank'] for each in metrics]} {name_of(checkpoint)}"
        )

    def after_exception(self, run_context, worker_exceptions):
        for rank, error in sorted(worker_exceptions.items()):
            self.note(f"exception {rank} {'once' in str(error)}")


def train_func(config):
    rank = ray.train.get_context().get_world_rank()
    for step in range(2):
        folder = tempfile.mkdtemp()
        checkpoint = Checkpoint.from_directory(folder) if rank == 0 and step == 1 else None
        ray.train.report({"step": step, "rank": rank}, checkpoint=checkpoint, checkpoint_dir_name=f"step_{step}")
    ray.train.collective.barrier()
    if ray.train.get_checkpoint() and rank == 1 and not os.path.exists(config["marker"]):
        open(config["marker"], "w").close()
    if rank == 1 and not os.path.exists(config["marker"]):
        open(config["marker"], "w").close()
        raise RuntimeError("once")


if __name__ == "__main__":
    import ray.train.collective

    result = TorchTrainer(
        train_func,
        train_loop_config={"marker": SEEN + "_marker"},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="user_callbacks",
            storage_path=STORAGE,
            callbacks=[Recorder(SEEN)],
            failure_config=FailureConfig(max_failures=1),
        ),
    ).fit()
    with open(SEEN) as file:
        record(metrics=result.metrics, checkpoint=name_of(result.checkpoint), seen=file.read().splitlines())
