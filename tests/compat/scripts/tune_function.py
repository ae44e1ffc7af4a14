"""Tuner around a function that creates a trainer, as the second version of Ray Train does it."""

import os
import tempfile

import numpy
import ray.train
import ray.tune
from compat_record import STORAGE, described, record
from ray import tune
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search.basic_variant import BasicVariantGenerator


def train_func(config):
    for epoch in range(2):
        with tempfile.TemporaryDirectory() as folder:
            ray.train.report({"loss": config["lr"] * (2 - epoch)}, checkpoint=Checkpoint.from_directory(folder))


def driver(config):
    context = ray.tune.get_context()
    trainer = TorchTrainer(
        train_func,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=1),
        run_config=ray.train.RunConfig(
            name=f"train-{context.get_trial_id()}", storage_path=STORAGE, callbacks=[TuneReportCallback()]
        ),
    )
    trainer.fit()


def scored(config, base):
    for step in range(5):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Checkpoint.from_directory(folder) if step % 2 == 0 else None
            tune.report({"score": base + step * config["slope"]}, checkpoint=checkpoint)
    return {"score": -1, "text": "the end"}


def broken(config):
    tune.report({"a": 1})
    raise KeyError("broken")


def shown(result):
    shown = described(result, first_version=True)
    shown["metrics"].pop("checkpoint_path", None)
    return shown


if __name__ == "__main__":
    first = tune.Tuner(
        driver,
        param_space={"lr": tune.grid_search([0.5, 0.25])},
        tune_config=tune.TuneConfig(max_concurrent_trials=1, scheduler=FIFOScheduler()),
        run_config=tune.RunConfig(name="tune_driver", storage_path=STORAGE),
    ).fit()
    numpy.random.seed(3)
    second = tune.Tuner(
        tune.with_resources(tune.with_parameters(scored, base=1000), {"CPU": 1}),
        param_space={
            "slope": tune.qrandint(2, 20, 2),
            "rate": tune.loguniform(1e-4, 1e-1),
            "q": tune.quniform(0, 10, 0.5),
            "n": tune.randn(1, 2),
            "log": tune.lograndint(1, 1000),
            "qlog": tune.qloguniform(0.1, 100, 0.1),
            "qn": tune.qrandn(0, 10, 0.5),
            "qli": tune.qlograndint(2, 200, 2),
        },
        tune_config=tune.TuneConfig(metric="score", mode="max", num_samples=3, max_concurrent_trials=1),
        run_config=tune.RunConfig(
            name="tune_samples",
            storage_path=STORAGE,
            stop={"training_iteration": 4},
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        ),
    ).fit()
    seeded = tune.Tuner(
        broken,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(search_alg=BasicVariantGenerator(random_state=5)),
        run_config=tune.RunConfig(name="tune_broken", storage_path=STORAGE),
    ).fit()
    record(
        first=[shown(result) for result in first],
        forwarded=[os.path.basename(result.metrics["checkpoint_path"]) for result in first],
        second=[shown(result) for result in second],
        configs=[result.config for result in second],
        best=second.get_best_result().metrics["score"],
        broken=[shown(result) for result in seeded],
        seeded=seeded[0].config,
        error=[isinstance(error, KeyError) for error in seeded.errors],
    )
