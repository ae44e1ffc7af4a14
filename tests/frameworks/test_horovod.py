"""HorovodTrainer with two real workers. `make horovod` builds the wheel that these tests need."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scripts import run_script

import trireme
import trireme.data
from trireme import ConfigError, FailureConfig, RunConfig, ScalingConfig

pytest.importorskip("horovod", reason="`make horovod` builds the wheel of Horovod")

from trireme.horovod import HorovodConfig, HorovodTrainer

TWO = ScalingConfig(num_workers=2)
STEPS, BATCH, FEATURES = 24, 8, 4


def rows(step: int) -> tuple[np.ndarray, np.ndarray]:
    """The same global batch for any number of workers."""
    inputs = np.random.default_rng(step).standard_normal((BATCH, FEATURES)).astype("float32")
    return inputs, inputs.sum(1, keepdims=True)


def network() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(FEATURES, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def step_of(model: torch.nn.Module, optimizer: Any, parts: list[np.ndarray]) -> float:
    inputs, targets = map(torch.from_numpy, parts)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def elastic(config: dict[str, Any]) -> dict[str, Any]:
    """A script for hvd.elastic, without a line for Trireme but the fault."""
    import horovod.torch as hvd

    hvd.init()
    model, inner = network()
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
    began_at = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        began_at.append(state.batch)
        while state.batch < STEPS:
            parts = [np.split(each, hvd.size())[hvd.rank()] for each in rows(state.batch)]
            state.loss = step_of(state.model, state.optimizer, parts)
            state.batch += 1
            if config["killed"] == hvd.rank() and state.batch == 14 and trireme.get_context()._attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if state.batch % 6 == 0:
                state.commit()

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0, loss=None)
    train(state)
    everyone = hvd.allgather(torch.cat([each.detach().flatten() for each in model.parameters()])[None])
    assert hvd.rank() == trireme.get_context().get_world_rank()
    return {"weights": everyone.tolist(), "began_at": began_at, "batch": state.batch, "size": hvd.size()}


def train(killed: int | None = None) -> trireme.Result:
    return HorovodTrainer(
        elastic,
        train_loop_config={"killed": killed},
        scaling_config=TWO,
        run_config=RunConfig(failure_config=FailureConfig(max_failures=1)),
    ).fit()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> trireme.Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIREME_RESULTS", str(tmp_path_factory.mktemp("undisturbed")))
        return train()


def test_two_workers_equal_a_single_process(undisturbed: trireme.Result) -> None:
    first, second = undisturbed.return_value["weights"]
    assert first == second
    assert undisturbed.return_value["size"] == 2
    assert undisturbed.metrics == {"commits": 4}
    model, optimizer = network()
    for step in range(STEPS):
        step_of(model, optimizer, list(rows(step)))
    alone = torch.cat([each.detach().flatten() for each in model.parameters()])
    torch.testing.assert_close(torch.tensor(first), alone)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_elastic_state_continues_after_a_killed_rank(undisturbed: trireme.Result, rank: int) -> None:
    killed = train(killed=rank)
    assert killed.return_value["began_at"] == [12]
    assert killed.return_value["weights"] == undisturbed.return_value["weights"]
    log = Path(killed.path, "events.jsonl").read_text().splitlines()
    failed = [event for event in map(json.loads, log) if event["event"] == "worker_failed"]
    assert (failed[0]["rank"], failed[0]["cause"]) == (rank, "signal")
    assert all(event["collateral"] for event in failed[1:])


def with_shard(config: dict[str, Any]) -> dict[str, Any]:
    """A loop with report(), and a dataset of the trainer."""
    import horovod.torch as hvd

    hvd.init()
    model, inner = network()
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
    if checkpoint := trireme.get_checkpoint():
        state = checkpoint.to_dict()
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    shard = trireme.get_dataset_shard("train")
    began_at = shard.state()["rows"]
    for batch in shard.iter_batches(global_batch_size=BATCH, batch_format="numpy"):
        loss = step_of(model, optimizer, [batch["x"], batch["x"].sum(1, keepdims=True)])
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        stored = trireme.Checkpoint.from_dict(state) if hvd.rank() == 0 else None
        trireme.report({"loss": loss}, checkpoint=stored)
        if config["preempted"] and trireme.get_context()._attempt == 0:
            if shard.state()["rows"] == 3 * BATCH:
                time.sleep(600)  # until the workers are replaced
            if shard.state()["rows"] == 2 * BATCH:
                if hvd.rank() == 1:
                    os.kill(os.getpid(), signal.SIGTERM)
                while trireme.get_preemption_info() is None:
                    time.sleep(0.01)
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    return {"weights": weights.tolist(), "began_at": began_at}


def test_a_preemption_notice_in_the_middle_of_an_epoch() -> None:
    inputs = np.random.default_rng(0).standard_normal((8 * BATCH, FEATURES)).astype("float32")
    results = [
        HorovodTrainer(
            with_shard,
            train_loop_config={"preempted": preempted},
            datasets={"train": trireme.data.from_items([{"x": row} for row in inputs])},
            scaling_config=TWO,
            run_config=RunConfig(failure_config=FailureConfig(preemption_grace_s=300)),
        ).fit()
        for preempted in (False, True)
    ]
    whole, preempted = (result.return_value for result in results)
    assert (whole["began_at"], preempted["began_at"]) == (0, 3 * BATCH)
    assert preempted["weights"] == whole["weights"]
    log = Path(results[1].path, "events.jsonl").read_text().splitlines()
    (failed,) = [event for event in map(json.loads, log) if event["event"] == "attempt_failed"]
    assert failed["budget"] == "max_preemption_failures"


def with_tensorflow(_: Any) -> list[Any]:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    with pytest.raises(ImportError, match=r"does not work with Keras 3.*trireme\.tensorflow\.TensorflowTrainer"):
        import horovod.tensorflow.keras  # noqa: F401
    weights = tf.Variable(tf.fill([FEATURES, 1], float(hvd.rank())))
    hvd.broadcast_variables([weights], root_rank=0)
    for step in range(STEPS):
        inputs, targets = (np.split(each, hvd.size())[hvd.rank()] for each in rows(step))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((inputs @ weights - targets) ** 2)
        (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
        weights.assign_sub(0.05 * gradient)
    found: list[Any] = hvd.allgather(tf.reshape(weights, [1, FEATURES])).numpy().tolist()
    return found


def test_tensorflow_equals_a_single_process() -> None:
    first, second = HorovodTrainer(with_tensorflow, train_loop_config={}, scaling_config=TWO).fit().return_value
    assert first == second
    weights = np.zeros((FEATURES, 1))
    for step in range(STEPS):
        inputs, targets = rows(step)
        weights -= 0.05 * 2 / BATCH * inputs.T @ (inputs @ weights - targets)
    np.testing.assert_allclose(first, weights[:, 0], rtol=1e-4)


def with_keras(_: Any) -> list[Any]:
    import horovod.tensorflow as hvd
    import keras
    import tensorflow as tf

    class OwnStep(keras.Sequential):  # type: ignore[misc]
        def train_step(self, batch: Any) -> dict[str, Any]:
            inputs, targets = batch
            with tf.GradientTape() as tape:
                loss = self.compute_loss(inputs, targets, self(inputs, training=True))
            weights = self.trainable_variables
            gradients = hvd.DistributedGradientTape(tape).gradient(loss, [each.value for each in weights])
            self.optimizer.apply(gradients, weights)
            return {"loss": loss}

    def fit(kind: Any) -> Any:
        keras.utils.set_random_seed(0)
        model = kind([keras.layers.Input((FEATURES,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(*rows(hvd.rank()), verbose=0)
        return model.get_weights()[0]

    hvd.init()
    with pytest.raises(RuntimeError, match=r"Keras 3 in a HorovodTrainer: each of.*use TensorflowTrainer"):
        fit(keras.Sequential)
    found: list[Any] = hvd.allgather(fit(OwnStep).reshape(1, FEATURES)).numpy().tolist()
    return found


def test_fit_of_keras_that_would_train_separate_models_is_refused() -> None:
    first, second = HorovodTrainer(with_keras, train_loop_config={}, scaling_config=TWO).fit().return_value
    assert first == second


def elastic_with_tensorflow(config: dict[str, Any]) -> list[Any]:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    weights, momentum = tf.Variable(tf.zeros([FEATURES, 1])), tf.Variable(tf.zeros([FEATURES, 1]))

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.batch < STEPS:
            inputs, targets = (np.split(each, hvd.size())[hvd.rank()] for each in rows(state.batch))
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((inputs @ weights - targets) ** 2)
            (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
            momentum.assign(0.9 * momentum + gradient)
            weights.assign_sub(0.01 * momentum)
            state.batch += 1
            if config["killed"] == hvd.rank() and state.batch == 14 and trireme.get_context()._attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if state.batch % 6 == 0:
                state.commit()

    train(hvd.elastic.TensorFlowState(variables=[weights, momentum], batch=0))
    found: list[Any] = hvd.allgather(tf.reshape(weights, [1, FEATURES])).numpy().tolist()
    return found


def test_a_state_of_tensorflow_continues_after_a_killed_rank() -> None:
    found = [
        HorovodTrainer(
            elastic_with_tensorflow,
            train_loop_config={"killed": killed},
            scaling_config=TWO,
            run_config=RunConfig(failure_config=FailureConfig(max_failures=1)),
        )
        .fit()
        .return_value
        for killed in (None, 1)
    ]
    assert found[0][0] == found[0][1]
    assert found[0] == found[1]


LEGACY = """
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import json
import signal
import sys

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from horovod.tensorflow import DistributedGradientTape

import trireme
from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.horovod import HorovodTrainer


def train(config):
    hvd.init()
    tf.keras.utils.set_random_seed(hvd.rank())
    model = tf.keras.Sequential([tf.keras.layers.Dense(4, input_shape=(4,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.Adam(0.01)
    model.build((None, 4))
    began_at = []

    @hvd.elastic.run
    def loop(state):
        began_at.append(state.batch)
        while state.batch < 12:
            rows = np.random.default_rng(state.batch).standard_normal((8, 4)).astype("float32")
            mine = np.split(rows, hvd.size())[hvd.rank()]
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(mine) - mine[:, :1]) ** 2)
            gradients = DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            state.batch += 1
            if config["killed"] and hvd.rank() == 1 and state.batch == 8 and trireme.get_context()._attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if state.batch % 3 == 0:
                state.commit()

    loop(hvd.elastic.KerasState(model, optimizer, batch=0))
    return [[each.tolist() for each in model.get_weights()], began_at]


def fit():
    hvd.init()
    tf.keras.utils.set_random_seed(hvd.rank())
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    rows = np.random.default_rng(hvd.rank()).standard_normal((8, 4)).astype("float32")
    model.compile("sgd", "mse")
    try:
        model.fit(rows, rows[:, :1], verbose=0)
    except RuntimeError as error:
        refused = str(error)
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(rows, rows[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=callbacks)
    return [hvd.allgather(model.get_weights()[0].reshape(1, 4)).numpy().tolist(), refused]


if __name__ == "__main__":
    found = [
        HorovodTrainer(
            train,
            train_loop_config={"killed": killed},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(failure_config=FailureConfig(max_failures=1)),
        ).fit().return_value
        for killed in (False, True)
    ]
    found.append(HorovodTrainer(fit, scaling_config=ScalingConfig(num_workers=2)).fit().return_value)
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
"""


def test_legacy_keras_continues_with_its_optimizer_and_needs_horovods(tmp_path: Path) -> None:
    whole, killed, fitted = run_script(LEGACY, tmp_path)
    assert (whole[1], killed[1]) == ([0], [6])
    assert whole[0] == killed[0]
    (first, second), refused = fitted
    assert first == second
    assert refused.startswith("tf_keras without Horovod's optimizer: each of the 2 workers would train a model of its")


def test_a_rank_that_hangs_is_replaced() -> None:
    def train() -> int:
        import horovod.torch as hvd

        hvd.init()
        attempt: int = trireme.get_context()._attempt
        for step in range(3):
            while hvd.rank() == 1 and step == 1 and attempt == 0:
                signal.pause()
            hvd.allreduce(torch.ones(1))
            trireme.report({"step": step})
        return attempt

    failures = FailureConfig(max_failures=1, hang_timeout_s=3, on_hang="restart")
    result = HorovodTrainer(train, scaling_config=TWO, run_config=RunConfig(failure_config=failures)).fit()
    assert result.return_value == 1
    events = [json.loads(line) for line in Path(result.path, "events.jsonl").read_text().splitlines()]
    assert next(event["cause"] for event in events if event["event"] == "worker_failed") == "hang"


def test_a_gpu_that_horovod_cannot_use() -> None:
    trireme.set_capacity(num_gpus=1)
    try:
        with pytest.raises(trireme.TrainingFailedError, match="this Horovod was built without support for GPUs: build"):
            HorovodTrainer(alone, scaling_config=ScalingConfig(use_gpu=True)).fit()
    finally:
        trireme.set_capacity(num_gpus=0)


def alone() -> None:
    import horovod.torch as hvd

    os.environ.update(HOROVOD_RANK="0", HOROVOD_SIZE="1", HOROVOD_LOCAL_SIZE="1", HOROVOD_LOCAL_RANK="0")
    hvd.init()


def test_ranks_that_do_not_form_one_group_are_refused() -> None:
    with pytest.raises(trireme.TrainingFailedError, match=r"Horovod has found rank 0 of 1, and this worker is rank"):
        HorovodTrainer(alone, scaling_config=TWO).fit()


def test_a_rank_that_returns_early_is_blamed() -> None:
    def train() -> None:
        import horovod.torch as hvd

        hvd.init()
        for _ in range(1 + hvd.rank()):
            hvd.allreduce(torch.ones(1))

    with pytest.raises(trireme.TrainingFailedError, match="returned from the training function while rank 1 waited"):
        HorovodTrainer(train, scaling_config=TWO).fit()


def test_settings() -> None:
    with pytest.warns(UserWarning, match=r"HorovodConfig\(ssh_port=\.\.\.\) has no effect: no ssh is used"):
        HorovodConfig(ssh_port=22)
    with pytest.raises(ConfigError, match=r"nics: expected a list of names, got 'eth0'; use \['eth0'\]"):
        HorovodConfig(nics="eth0")
    with pytest.raises(ConfigError, match="timeout_s: expected 1 second or more, got 0"):
        HorovodConfig(timeout_s=0)
    with pytest.raises(TypeError, match="horovod_config"):
        HorovodTrainer(alone, horovod_config=object())
