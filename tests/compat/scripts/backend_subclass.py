"""A framework of one's own: hooks that execute functions on the workers."""

import os

from compat_record import STORAGE, described, record
from ray.train import RunConfig, ScalingConfig
from ray.train.backend import Backend, BackendConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def set_variable(value):
    os.environ["FROM_BACKEND"] = value
    return value.upper()


class MyBackend(Backend):
    def on_start(self, worker_group, backend_config):
        answers = worker_group.execute(set_variable, f"{backend_config.word} of {len(worker_group)}")
        assert answers == ["WORD OF 2", "WORD OF 2"]
        assert worker_group.execute_single(1, set_variable, "only rank 1") == "ONLY RANK 1"

    def on_training_start(self, worker_group, backend_config):
        import ray

        assert len(ray.get(worker_group.execute_async(os.getpid))) == 2

    def on_shutdown(self, worker_group, backend_config):
        with open(backend_config.path, "w") as file:
            file.write(str(worker_group.execute(os.getenv, "FROM_BACKEND")))


class MyConfig(BackendConfig):
    def __init__(self, word, path):
        self.word = word
        self.path = path

    @property
    def backend_cls(self):
        return MyBackend


def train_func():
    return os.environ.get("FROM_BACKEND")


if __name__ == "__main__":
    path = os.path.join(STORAGE, "shutdown.txt")
    result = DataParallelTrainer(
        train_func,
        backend_config=MyConfig("word", path),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="backend_subclass", storage_path=STORAGE),
    ).fit()
    with open(path) as file:
        record(result=described(result), at_end=file.read())
