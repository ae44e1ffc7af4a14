"""Callbacks of Tune in a trainer's RunConfig, and RunConfig(stop=...)."""

import ray.train
from compat_record import STORAGE, described, record
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune import Callback
from ray.tune.logger import LoggerCallback

CALLS = []


class Recorder(Callback):
    def setup(self, **info):
        CALLS.append("setup")

    def on_trial_start(self, iteration, trials, trial, **info):
        CALLS.append(["start", trial.trial_id == trials[0].trial_id])

    def on_trial_result(self, iteration, trials, trial, result, **info):
        CALLS.append(["result", result["step"], result["training_iteration"]])

    def on_trial_complete(self, iteration, trials, trial, **info):
        CALLS.append("complete")

    def on_experiment_end(self, trials, **info):
        CALLS.append("end")


class Logger(LoggerCallback):
    def log_trial_start(self, trial):
        CALLS.append("log start")

    def log_trial_result(self, iteration, trial, result):
        CALLS.append(["log", result["step"]])

    def log_trial_end(self, trial, failed=False):
        CALLS.append(["log end", failed])


def train_func():
    for step in range(100):
        ray.train.report({"step": step})


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2, trainer_resources={"CPU": 0}),
        run_config=RunConfig(
            name="v1_callbacks",
            storage_path=STORAGE,
            callbacks=[Recorder(), Logger()],
            stop={"training_iteration": 3},
            verbose=0,
        ),
    ).fit()
    record(result=described(result, first_version=True), calls=CALLS)
