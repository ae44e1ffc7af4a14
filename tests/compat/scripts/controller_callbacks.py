"""Callbacks of Ray's controller, its workers and its group of workers."""

import os
import tempfile
from contextlib import contextmanager

import ray.train
from compat_record import STORAGE, name_of, record
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.execution.callback import (
    ControllerCallback,
    ReportCallback,
    TrainContextCallback,
    WorkerCallback,
    WorkerGroupCallback,
)

SEEN = os.path.join(tempfile.mkdtemp(), "seen")


class Noted:
    def __init__(self, path):
        self.path = path

    def note(self, text):
        with open(self.path, "a") as file:
            file.write(text + "\n")


class Controller(Noted, ControllerCallback):
    def after_controller_start(self, train_run_context):
        self.note(f"controller {train_run_context.run_config.name}")


class Reports(Noted, ReportCallback):
    def after_report(self, training_report, metrics):
        ranks = sorted(each["rank"] for each in metrics)
        self.note(f"report {training_report.metrics['step']} {ranks} {name_of(training_report.checkpoint)}")


class Group(Noted, WorkerGroupCallback):
    def after_worker_group_start(self, worker_group):
        pids = worker_group.execute(os.getpid)
        self.note(f"group {len(worker_group)} {len(set(pids))} {worker_group.execute_single(1, sum, [1, 2])}")

    def before_worker_group_shutdown(self, worker_group):
        self.note("group ends")


class Worker(Noted, WorkerCallback):
    def after_init_train_context(self):
        self.note(f"worker {ray.train.get_context().get_world_size()}")


class Context(Noted, TrainContextCallback):
    @contextmanager
    def on_report(self):
        self.note("begins to report")
        yield
        self.note("has reported")


def train_func():
    rank = ray.train.get_context().get_world_rank()
    for step in range(2):
        checkpoint = Checkpoint.from_directory(tempfile.mkdtemp()) if rank == 0 else None
        ray.train.report({"step": step, "rank": rank}, checkpoint=checkpoint, checkpoint_dir_name=f"step_{step}")


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="controller_callbacks",
            storage_path=STORAGE,
            callbacks=[kind(SEEN) for kind in (Controller, Reports, Group, Worker, Context)],
        ),
    ).fit()
    with open(SEEN) as file:
        record(metrics=result.metrics, seen=sorted(file.read().splitlines()))
