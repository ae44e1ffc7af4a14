"""Keras on two workers: one model, the same as in one process, and the same after a kill in the middle of an epoch."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import run_script

import trireme
import trireme.data
from trireme import CheckpointUploadMode, FailureConfig, RunConfig, ScalingConfig
from trireme.jax import JaxTrainer
from trireme.keras import ReportCheckpointCallback, completed_epochs
from trireme.tensorflow import TensorflowTrainer
from trireme.torch import TorchTrainer

ROWS, EPOCHS, BATCH = 60, 3, 8
STEPS = 8  # of an epoch, the last one with half a batch


def dataset() -> Any:
    rows = np.random.default_rng(0).standard_normal((ROWS, 4)).astype("float32")
    return trireme.data.from_items([{"x": row, "y": row[:1] * 3 - row[1:2]} for row in rows])


def model() -> Any:
    """Of Keras 3 or, with TF_USE_LEGACY_KERAS=1, of tf_keras."""
    from tensorflow import keras

    keras.utils.set_random_seed(0)
    layers = [keras.layers.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    made = keras.Sequential(layers)
    made.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
    return made


def train(config: dict[str, Any]) -> dict[str, Any]:
    import contextlib

    import tensorflow as tf

    from trireme.keras import load_model

    context = trireme.get_context()
    alone = context.get_world_size() == 1
    strategy = None if alone else tf.distribute.MultiWorkerMirroredStrategy()
    checkpoint = trireme.get_checkpoint()
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        network = model() if checkpoint is None else load_model(checkpoint)

    class Kill(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            steps = int(network.optimizer.iterations.numpy())
            if steps == config["kill_at"] and context.get_world_rank() == 1 and context._attempt == 0:
                os.kill(os.getpid(), config["signal"])
            if config["signal"] == signal.SIGTERM and steps > config["kill_at"] > 0 == context._attempt:
                time.sleep(0.05)  # until the workers are replaced

    shard = trireme.get_dataset_shard("train")
    first, began = completed_epochs(checkpoint), shard.state()["rows"]
    rows = shard.to_tf("x", "y", global_batch_size=BATCH).map(lambda x, y: (x, y)).prefetch(2)
    callbacks = [Kill(), ReportCheckpointCallback(config["checkpoint_on"], metrics={"error": "mae"})]
    history = network.fit(rows, epochs=config["epochs"], initial_epoch=first, callbacks=callbacks, verbose=0)
    held_out = trireme.get_dataset_shard("held_out").to_tf("x", "y", global_batch_size=BATCH)
    loss, error = network.evaluate(held_out, verbose=0)
    predicted = network.predict(held_out.map(lambda x, y: x), verbose=0)
    assert context.get_world_size() * len(predicted) >= ROWS
    return {
        "weights": [each.tolist() for each in network.get_weights()],
        "steps": int(network.optimizer.iterations.numpy()),
        "history": history.history["loss"],
        "evaluated": [loss, error],
        "began": [first, began],
        "package": type(network).__module__.partition(".")[0],
    }


def fit(name: str, workers: int = 2, kill_at: int = 0, **config: Any) -> trireme.Result:
    standard = {"epochs": EPOCHS, "signal": signal.SIGKILL, "checkpoint_on": ["train_batch_end", "epoch_end"]}
    return TensorflowTrainer(
        train,
        train_loop_config={"kill_at": kill_at, **standard, **config},
        datasets={"train": dataset().random_shuffle(seed=3), "held_out": dataset()},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name=name, failure_config=FailureConfig(max_failures=1, preemption_grace_s=300)),
    ).fit()


RUNS: dict[str, dict[str, Any]] = {
    "whole": {},
    "alone": {"workers": 1},
    "killed": {"kill_at": STEPS + 3},
    "between": {"kill_at": STEPS + 1, "checkpoint_on": "train_batch_end"},
}
# As Ray Train's examples, which set the variable too.
LEGACY = f"""
import os, sys
os.environ["TF_USE_LEGACY_KERAS"] = "1"
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import json
import tensorflow as tf
from test_keras import RUNS, fit

if __name__ == "__main__":
    found = {{name: fit(name, **options).return_value for name, options in RUNS.items()}}
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
"""


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_fit_equals_one_process_also_after_a_kill(package: str, tmp_path: Path) -> None:
    if package == "keras":
        runs = {name: fit(name, **options).return_value for name, options in RUNS.items()}
    else:
        runs = run_script(LEGACY, tmp_path)
    whole, alone, killed, between = (runs[name] for name in RUNS)
    assert whole["package"] == package
    assert whole["steps"] == EPOCHS * STEPS  # and no step with an empty batch at the end of an epoch
    for ours, theirs in zip(whole["weights"], alone["weights"], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert whole["evaluated"] == pytest.approx(alone["evaluated"], abs=1e-5)
    assert killed["began"][0] == 1 and 0 < killed["began"][1] < ROWS  # in the middle of the second epoch
    assert between["began"] == [1, 0], "the checkpoint of the last step of the first epoch"
    for found in (killed, between):  # the third epoch is as long as the others
        assert [found[name] for name in ("weights", "steps", "evaluated")] == [
            whole[name] for name in ("weights", "steps", "evaluated")
        ]
    assert killed["history"][-1] == pytest.approx(whole["history"][-1], rel=0.5)
    if package == "keras":
        result = trireme.Result.from_path(tmp_path / "results" / "killed")
        assert list(result.metrics) == ["error"]
        assert completed_epochs(result.checkpoint) == EPOCHS


def test_a_preemption_notice() -> None:
    """The only checkpoint is that of the notice, in any step: the callback asks about once a second."""
    config: dict[str, Any] = {"epochs": 8, "checkpoint_on": []}
    whole = fit("whole", **config).return_value
    preempted = fit("preempted", kill_at=11, signal=signal.SIGTERM, **config)
    found = preempted.return_value
    assert found["began"] != [0, 0]
    assert [found["weights"], found["steps"]] == [whole["weights"], whole["steps"]]
    log = [json.loads(line) for line in Path(preempted.path, "events.jsonl").read_text().splitlines()]
    (failed,) = [event for event in log if event["event"] == "attempt_failed"]
    assert failed["budget"] == "max_preemption_failures"


def test_the_errors_of_keras_that_are_worked_around() -> None:
    """Fails when Keras has fixed them: remove the workarounds if older versions need not be supported."""
    import keras
    from keras.src.backend.tensorflow import trainer

    from trireme.keras._tensorflow import affected

    assert affected(trainer) == ["symbolic build", "mean of scalars"], f"Keras {keras.__version__} has changed"


def test_the_callback_names_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="unknown event 'epoch_start'; the events are epoch_begin, epoch_end, train_b"):
        ReportCheckpointCallback(checkpoint_on="epoch_start")
    with pytest.raises(ValueError, match="report_metrics_on="):
        ReportCheckpointCallback(report_metrics_on=["epoch_end", "never"])
    with pytest.raises(TypeError, match=r"metrics=\[1\]\): expected None, a str, a list of str or a dict of str"):
        ReportCheckpointCallback(metrics=[1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="expected SYNC or ASYNC"):
        ReportCheckpointCallback(checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)


def reporting(config: dict[str, Any]) -> None:
    """Without a strategy: one worker."""
    network = model()
    rows = np.ones((8, 4), "float32")
    missing = ReportCheckpointCallback([], "train_begin", "mae", on_preemption=False)
    with pytest.raises(KeyError, match="no metric mae at 'train_begin'; the metrics are: none"):
        network.fit(rows, rows[:, :1], batch_size=4, verbose=0, callbacks=[missing])
    events = ["train_begin", "train_batch_end", "test_end", "epoch_end", "train_end"]
    callback = ReportCheckpointCallback([], events, on_preemption=False)
    network.fit(rows, rows[:, :1], batch_size=4, verbose=0, validation_data=(rows, rows[:, :1]), callbacks=[callback])
    network.predict(rows, verbose=0, callbacks=[ReportCheckpointCallback("predict_end", [], on_preemption=False)])


def test_every_hook_reports() -> None:
    result = TensorflowTrainer(reporting, scaling_config=ScalingConfig(num_workers=1)).fit()
    reports = result.metrics_dataframe
    assert len(reports) == 7  # begin, two steps, validation, epoch, end; and the predictions
    assert reports["loss"].notna().tolist() == [False, True, True, True, True, True, False]
    assert reports["val_mae"].notna().tolist() == [False, False, False, False, True, True, False]
    assert Path(result.checkpoint.path, "model.keras").is_file()


TORCH = """
import os

os.environ["KERAS_BACKEND"] = "torch"
import json
import signal
import sys

import keras
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import trireme
from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.keras import ReportCheckpointCallback, completed_epochs, load_model
from trireme.torch import TorchTrainer, prepare_data_loader

ROWS, EPOCHS = 40, 2


def train(config):
    context = trireme.get_context()
    checkpoint = trireme.get_checkpoint()
    rows = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(0))
    loader = prepare_data_loader(DataLoader(TensorDataset(rows, rows[:, :1] * 2), batch_size=8 // config["workers"]))
    if checkpoint is None:
        keras.utils.set_random_seed(context.get_world_rank())  # fit() begins with the weights of rank 0
        model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    else:
        model = load_model(checkpoint)

    class Kill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            steps = int(model.optimizer.iterations)
            if steps == config["kill_at"] and context.get_world_rank() == 1 and context._attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    callbacks = [Kill(), ReportCheckpointCallback(config["checkpoint_on"])]
    held_out = prepare_data_loader(DataLoader(TensorDataset(rows, rows[:, :1] * 2), batch_size=8 // config["workers"]))
    history = model.fit(
        loader, validation_data=held_out, epochs=EPOCHS, initial_epoch=completed_epochs(checkpoint), verbose=0,
        callbacks=callbacks,
    )
    if context.get_world_size() > 1:
        everyone = [None] * context.get_world_size()
        torch.distributed.all_gather_object(everyone, [each.tolist() for each in model.get_weights()])
        assert everyone[0] == everyone[1]
    return [
        [each.tolist() for each in model.get_weights()],
        int(model.optimizer.iterations),
        history.history["val_loss"][-1],
        loader.epoch,
    ]


def fit(name, workers=2, kill_at=0, checkpoint_on=("train_batch_end", "epoch_end")):
    return TorchTrainer(
        train,
        train_loop_config={"kill_at": kill_at, "workers": workers, "checkpoint_on": checkpoint_on},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name=name, failure_config=FailureConfig(max_failures=1)),
    ).fit().return_value


if __name__ == "__main__":
    found = {"whole": fit("whole"), "alone": fit("alone", workers=1), "killed": fit("killed", kill_at=7)}
    found["between"] = fit("between", kill_at=6, checkpoint_on="train_batch_end")
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
"""


def test_the_torch_backend_trains_one_model(tmp_path: Path) -> None:
    runs = run_script(TORCH, tmp_path)
    weights, steps, loss, _ = runs["whole"]
    assert steps == 2 * 5
    for ours, theirs in zip(weights, runs["alone"][0], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert loss == pytest.approx(runs["alone"][2], rel=1e-4)
    assert runs["killed"][:2] == runs["whole"][:2]
    assert runs["between"][:2] == runs["whole"][:2]


JAX = """
import os

os.environ["KERAS_BACKEND"] = "jax"
import json
import signal
import sys

import keras
import numpy as np
from jax.experimental import multihost_utils

import trireme
from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.jax import JaxTrainer
from trireme.keras import ReportCheckpointCallback, completed_epochs, load_model

ROWS, BATCH, EPOCHS = 40, 8, 3


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return ROWS // BATCH

    def __getitem__(self, index):
        context = trireme.get_context()
        rows = np.random.default_rng(index).standard_normal((BATCH, 4)).astype("float32")
        mine = np.split(rows, context.get_world_size())[context.get_world_rank()]
        return mine, mine[:, :1] * 3


def train(config):
    context = trireme.get_context()
    if config["distributed"]:
        keras.distribution.initialize()  # as in a script for other launchers
        keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    checkpoint = trireme.get_checkpoint()
    if checkpoint is None:
        keras.utils.set_random_seed(0)
        layers = [keras.layers.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    else:
        model = load_model(checkpoint)

    class Kill(keras.callbacks.Callback):
        steps = 0

        def on_train_batch_end(self, batch, logs=None):
            self.steps += 1
            if self.steps == config["kill_at"] and context.get_world_rank() == 1 and context._attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    first = completed_epochs(checkpoint)
    callbacks = [Kill(), ReportCheckpointCallback()]
    history = model.fit(Rows(), epochs=EPOCHS, initial_epoch=first, shuffle=False, verbose=0, callbacks=callbacks)
    weights = [np.asarray(each) for each in model.get_weights()]
    for each in weights:
        copies = multihost_utils.process_allgather(each)
        assert (copies == copies[:1]).all()
    loss = model.evaluate(Rows(), verbose=0)
    steps = int(model.optimizer.iterations.value)
    return [[each.tolist() for each in weights], steps, history.history["loss"], loss, first]


def fit(name, workers=2, kill_at=0, distributed=True):
    return JaxTrainer(
        train,
        train_loop_config={"kill_at": kill_at, "distributed": distributed},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name=name, failure_config=FailureConfig(max_failures=1)),
    ).fit().return_value


if __name__ == "__main__":
    found = {"whole": fit("whole"), "alone": fit("alone", workers=1), "killed": fit("killed", kill_at=8)}
    try:
        fit("separate", distributed=False)
    except trireme.TrainingFailedError as error:
        found["separate"] = str(error)
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
"""


def test_the_jax_backend_trains_one_model(tmp_path: Path) -> None:
    runs = run_script(JAX, tmp_path)
    weights, steps, losses, loss, _ = runs["whole"]
    assert steps == 3 * 5
    for ours, theirs in zip(weights, runs["alone"][0], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert losses == pytest.approx(runs["alone"][2], rel=1e-4)
    assert loss == pytest.approx(runs["alone"][3], rel=1e-4)
    assert runs["killed"][:2] == [weights, steps] and runs["killed"][3:] == [loss, 1]
    assert "Keras on JAX without a distribution: each of the 2 workers would train a model of its" in runs["separate"]


def hanging() -> int:
    import tensorflow as tf

    context = trireme.get_context()
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        network = model()

    class Hang(tf.keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            while context.get_world_rank() == 1 and context._attempt == 0:
                signal.pause()

    rows = np.ones((16, 4), "float32")
    callbacks = [Hang(), ReportCheckpointCallback([], "train_batch_end")]
    network.fit(rows, rows[:, :1], batch_size=8, callbacks=callbacks, verbose=0)
    return context._attempt


def test_a_rank_that_hangs_in_fit_is_named_and_replaced() -> None:
    failures = FailureConfig(max_failures=1, hang_timeout_s=8, on_hang="restart")
    result = TensorflowTrainer(
        hanging, scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(failure_config=failures)
    ).fit()
    assert result.return_value == 1
    log = [json.loads(line) for line in Path(result.path, "events.jsonl").read_text().splitlines()]
    assert any("on_train_batch_end" in event["summary"] for event in log if event["event"] == "hang_detected")
    assert next(event["cause"] for event in log if event["event"] == "worker_failed") == "hang"


def with_the_wrong_backend(config: dict[str, Any]) -> str:
    network = model()
    with pytest.raises(RuntimeError) as raised:
        network.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
    return str(raised.value)


@pytest.mark.parametrize(("trainer", "backend"), [(TorchTrainer, "torch"), (JaxTrainer, "jax")])
def test_a_backend_that_is_not_the_trainers_is_refused(trainer: Any, backend: str) -> None:
    message = trainer(with_the_wrong_backend, scaling_config=ScalingConfig(num_workers=2)).fit().return_value
    assert message.startswith(
        "Keras with the backend 'tensorflow': each of the 2 workers would train a model of its own"
    )
    assert message.endswith(
        f"use TensorflowTrainer, or set KERAS_BACKEND={backend} in the environment before keras is imported"
    )
