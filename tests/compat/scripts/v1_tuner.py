"""Tuner around a trainer: a grid with values that are drawn, a trial that fails, callbacks, the grid of results."""

import os
import tempfile

import numpy
import ray.train
from compat_record import STORAGE, described, record
from ray import tune
from ray.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune import Callback, TuneConfig, Tuner

CALLS = []


class Recorder(Callback):
    def setup(self, **info):
        CALLS.append("setup")

    def on_trial_start(self, iteration, trials, trial, **info):
        CALLS.append(["start", trial.experiment_tag, trial.config])

    def on_trial_complete(self, iteration, trials, trial, **info):
        CALLS.append(["complete", trial.experiment_tag])

    def on_trial_error(self, iteration, trials, trial, **info):
        CALLS.append(["error", trial.experiment_tag])

    def on_experiment_end(self, trials, **info):
        CALLS.append(["end", len(trials)])


def train_func(config):
    for step in range(3):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "step"), "w") as file:
                file.write(str(step))
            loss = config["lr"] * (3 - step) + config["width"] + config["offset"]
            ray.train.report({"loss": loss, "nested": {"step": step}}, checkpoint=Checkpoint.from_directory(folder))
        if config["bad"] and step == 1:
            raise ValueError("a bad configuration")


def problem_of(ask):
    try:
        return ask()
    except Exception as error:
        return type(error).__name__


if __name__ == "__main__":
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"offset": 10, "lr": 5.0},
        scaling_config=ScalingConfig(num_workers=1, trainer_resources={"CPU": 0}),
        run_config=RunConfig(name="not_this", storage_path=STORAGE),
    )
    numpy.random.seed(7)
    space = {
        "train_loop_config": {
            "lr": tune.grid_search([0.1, 0.2]),
            "bad": tune.grid_search([False, True]),
            "width": tune.uniform(0, 1),
            "more": [tune.randint(0, 100), {"inner": tune.choice(["a", "b", "c"])}],
            "double": tune.sample_from(lambda config: config["train_loop_config"]["lr"] * 2),
        }
    }
    tuner = Tuner(
        trainer,
        param_space=space,
        tune_config=TuneConfig(metric="loss", mode="min", max_concurrent_trials=1),
        run_config=RunConfig(
            name="v1_tuner",
            storage_path=STORAGE,
            callbacks=[Recorder()],
            checkpoint_config=CheckpointConfig(num_to_keep=1),
            verbose=0,
        ),
    )
    grid = tuner.fit()
    best = grid.get_best_result()
    frame = grid.get_dataframe(filter_metric="loss", filter_mode="max")
    record(
        results=[described(result, first_version=True) for result in grid],
        configs=[result.config for result in grid],
        errors=[isinstance(error, ValueError) for error in grid.errors],
        counts=[len(grid), grid.num_errors, grid.num_terminated],
        path=grid.experiment_path,
        best=[best.metrics["loss"], best.config, os.path.basename(best.path)],
        by_average=grid.get_best_result("loss", "max", scope="avg").config,
        by_all=grid.get_best_result("nested/step", "max", scope="all").config["train_loop_config"]["bad"],
        unknown=problem_of(lambda: grid.get_best_result("other", "max")),
        columns=sorted(frame.columns),
        worst=sorted(frame["loss"]),
        calls=CALLS,
        same=tuner.get_results().num_errors,
        in_space=problem_of(lambda: Tuner(trainer, param_space={"run_config": RunConfig()})),
    )
