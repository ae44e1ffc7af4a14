"""TensorFlow on two workers: one model, the same as without TensorFlow, also after a kill."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trireme
import trireme.data
from trireme import ConfigError, FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
from trireme.tensorflow import TensorflowConfig, TensorflowTrainer

ROWS, STEPS, RATE = 40, 10, 0.1
TWO = ScalingConfig(num_workers=2)


def inputs() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, 4)).astype("float32")


def targets(rows: np.ndarray) -> np.ndarray:
    return rows @ np.array([[1.0], [-2.0], [3.0], [0.5]], "float32")


def reference() -> np.ndarray:
    """The same training with NumPy: batches of 4 rows, the mean of the gradients."""
    weights = np.zeros((4, 1), "float32")
    for rows in inputs().reshape(STEPS, 4, 4):
        weights -= RATE * 2 * rows.T @ (rows @ weights - targets(rows)) / len(rows)
    return weights


def train(config: dict[str, Any]) -> list[Any]:
    import tensorflow as tf

    context = trireme.get_context()
    rank = context.get_world_rank()
    own = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][rank]
    reserved = bind_again(own)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weights = tf.Variable(tf.zeros([4, 1]))
    if checkpoint := trireme.get_checkpoint():
        weights.assign(checkpoint.to_dict()["weights"])

    @tf.function  # type: ignore[untyped-decorator]
    def step(rows: Any, wanted: Any) -> Any:
        def of_replica(rows: Any, wanted: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((rows @ weights - wanted) ** 2)
            gradient = tape.gradient(loss, [weights])
            (mean,) = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
            weights.assign_sub(RATE * mean)
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(of_replica, args=(rows, wanted)), axis=None)

    shard = trireme.get_dataset_shard("train")
    for batch in shard.iter_tf_batches(global_batch_size=4):
        loss = step(batch["x"], batch["y"])
        mine = trireme.Checkpoint.from_dict({"weights": weights.numpy()}) if rank == 0 else None
        trireme.report({"loss": float(loss), "reserved": reserved, "address": own}, checkpoint=mine)
        if shard.state()["rows"] == 24 and config["signal"] == signal.SIGTERM and context._attempt == 0:
            time.sleep(600)  # until the workers are replaced
        if shard.state()["rows"] == 20 and context._attempt == 0:
            if rank == 1:
                os.kill(os.getpid(), config["signal"])
            while config["signal"] == signal.SIGTERM and trireme.get_preemption_info() is None:
                time.sleep(0.01)
    everyone = strategy.gather(weights[tf.newaxis], axis=0).numpy()
    return [everyone, strategy.num_replicas_in_sync]


def bind_again(address: str) -> str:
    """What another program of this machine gets when it binds the port before TensorFlow does."""
    with socket.socket() as probe:
        try:
            probe.bind(("", int(address.rpartition(":")[2])))
        except OSError as error:
            return errno.errorcode[error.errno or 0]
    return "bound"


def dataset() -> Any:
    rows = inputs()
    return trireme.data.from_items([{"x": x, "y": y} for x, y in zip(rows, targets(rows), strict=True)])


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_or_preempted_rank_changes_nothing(sent: signal.Signals, results: Path) -> None:
    result = TensorflowTrainer(
        train,
        train_loop_config={"signal": sent},
        datasets={"train": dataset()},
        scaling_config=TWO,
        run_config=RunConfig(name="killed", failure_config=FailureConfig(max_failures=1, preemption_grace_s=300)),
    ).fit()
    everyone, replicas = result.return_value
    assert replicas == 2
    assert np.array_equal(everyone[0], everyone[1])
    np.testing.assert_allclose(everyone[0], reference(), rtol=1e-4)
    reports = result.metrics_dataframe
    assert set(reports["reserved"]) == {"EADDRINUSE"}
    assert len(reports) == STEPS
    log = [json.loads(line) for line in (results / "killed" / "events.jsonl").read_text().splitlines()]
    (failed,) = [event for event in log if event["event"] == "attempt_failed"]
    assert (failed["budget"] == "max_preemption_failures") == (sent == signal.SIGTERM)
    assert len(set(reports["address"])) == 2  # the second attempt has a cluster of its own


def separate(config: dict[str, Any]) -> list[str]:
    import tensorflow as tf

    found = []
    for wrong in (tf.distribute.MirroredStrategy, one_worker, fit_without_strategy):
        try:
            wrong()
        except RuntimeError as error:
            found.append(str(error))
    return found


def one_worker() -> None:
    import tensorflow as tf

    given = os.environ.pop("TF_CONFIG")
    try:
        tf.distribute.MultiWorkerMirroredStrategy()
    finally:
        os.environ["TF_CONFIG"] = given


def fit_without_strategy() -> None:
    import keras

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(inputs(), targets(inputs()), verbose=0)


def test_workers_that_would_train_separate_models_raise() -> None:
    mirrored, alone, keras = TensorflowTrainer(separate, scaling_config=TWO).fit().return_value
    assert mirrored.startswith("tf.distribute.MirroredStrategy spans the devices of one worker, and the run has 2")
    assert alone.startswith("TensorFlow has found 1 worker and the run has 2 workers, so every worker would train a")
    assert "create tf.distribute.MultiWorkerMirroredStrategy() in the training function" in mirrored
    assert keras.startswith("a Keras model without a strategy for several workers: each of the 2 workers would train a")


def test_a_worker_whose_gpu_tensorflow_does_not_find(declared_gpu: None) -> None:
    with pytest.raises(WorkerGroupError, match=r"TensorFlow 2\.\d+\.\d+ finds no GPU: install a build with CUDA"):
        TensorflowTrainer(separate, scaling_config=ScalingConfig(num_workers=1, use_gpu=True)).fit()


@pytest.fixture
def declared_gpu() -> Any:
    trireme.set_capacity(num_gpus=1)
    yield
    trireme.set_capacity(num_gpus=0)


def test_refused_before_anything_starts(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(workers: int = 2, run_config: RunConfig | None = None, **roles: Any) -> None:
        config = TensorflowConfig(roles=roles or None)
        scaling = ScalingConfig(num_workers=workers)
        TensorflowTrainer(separate, tensorflow_config=config, scaling_config=scaling, run_config=run_config).fit()

    with pytest.raises(ConfigError, match="unknown role 'parameter_server'; the roles are 'chief', 'worker', 'ps'"):
        fit(parameter_server=1)
    with pytest.raises(ConfigError, match=r"roles\['ps'\]: expected an integer of 0 or more, got -1"):
        fit(chief=1, ps=-1)
    with pytest.raises(ConfigError, match="a cluster has one chief at most, got 2"):
        fit(chief=2)
    with pytest.raises(ConfigError, match="a cluster with 'ps' needs a 'chief'"):
        fit(ps=1)
    with pytest.raises(ConfigError, match="is for 3 workers, and num_workers is 2; leave out 'worker'"):
        fit(chief=1, worker=2)
    with pytest.raises(ConfigError, match="needs num_workers of 3 or more, got 2"):
        fit(chief=1, ps=1)
    with pytest.raises(ConfigError, match="and parameter servers exclude each other"):
        TensorflowTrainer(
            separate,
            tensorflow_config=TensorflowConfig(roles={"chief": 1, "ps": 1}),
            scaling_config=ScalingConfig(num_workers=3),
            datasets={"train": dataset()},
        ).fit()
    with pytest.raises(ConfigError, match=r"TensorflowConfig\.timeout_s: expected a positive number of seconds, got 0"):
        TensorflowConfig(timeout_s=0)
    with pytest.raises(TypeError, match="tensorflow_config must be of type TensorflowConfig"):
        TensorflowTrainer(separate, tensorflow_config={})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"TF_CONFIG is already set, to \{\}: TensorflowTrainer sets it on"):
        fit(run_config=RunConfig(worker_runtime_env={"env_vars": {"TF_CONFIG": "{}"}}))
    monkeypatch.setenv("TF_CONFIG", "{}")
    with pytest.raises(ConfigError, match="remove it from the environment"):
        fit()
    assert not results.exists() or not os.listdir(results)


def test_checkpoints_of_models(tmp_path: Path) -> None:
    import keras
    import tensorflow as tf

    from trireme.tensorflow import TensorflowCheckpoint, prepare_dataset_shard

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
    stored = TensorflowCheckpoint.from_model(model, preprocessor={"a": 1})
    assert os.listdir(stored.path) and stored.get_preprocessor() == {"a": 1}
    np.testing.assert_array_equal(stored.get_model().get_weights()[0], model.get_weights()[0])
    model.save(tmp_path / "own.h5")
    legacy = TensorflowCheckpoint.from_h5(tmp_path / "own.h5")
    legacy.set_metadata({})  # without the name of the file
    np.testing.assert_array_equal(legacy.get_model().get_weights()[0], model.get_weights()[0])
    model.export(tmp_path / "exported", verbose=False)
    served = TensorflowCheckpoint.from_saved_model(tmp_path / "exported").get_model()
    np.testing.assert_allclose(served.serve(inputs()), model.predict(inputs(), verbose=0), rtol=1e-6)
    with pytest.raises(ValueError, match=r"not an existing \.h5 file"):
        TensorflowCheckpoint.from_h5(tmp_path / "absent.h5")
    with pytest.raises(ValueError, match="not a directory"):
        TensorflowCheckpoint.from_saved_model(tmp_path / "own.h5")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has nothing, and not one model"):
        TensorflowCheckpoint.from_directory(tmp_path / "empty").get_model()
    prepared = prepare_dataset_shard(tf.data.Dataset.range(4))
    off = tf.data.experimental.AutoShardPolicy.OFF
    assert prepared.options().experimental_distribute.auto_shard_policy == off
    assert [int(row) for row in prepared] == [0, 1, 2, 3]


def coordinate(config: dict[str, Any]) -> list[Any]:
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function  # type: ignore[untyped-decorator]
    def add() -> Any:
        total.assign_add(1.0)
        return tf.constant(0)

    first = 0
    if checkpoint := trireme.get_checkpoint():
        state = checkpoint.to_dict()
        first = state["round"] + 1
        total.assign(state["total"])
    for number in range(first, 3):
        for _ in range(4):
            coordinator.schedule(add)
        coordinator.join()
        state = {"round": number, "total": float(total.numpy())}
        trireme.report(state, checkpoint=trireme.Checkpoint.from_dict(state))
        if number == 1 and trireme.get_context()._attempt == 0:
            kill_server(2)
            coordinator.schedule(add)
            coordinator.join()  # fails, or waits for the server until this rank is replaced
    return [float(total.numpy()), total.device]


def kill_server(rank: int) -> None:
    log = Path(trireme.get_context().get_trial_dir(), "events.jsonl").read_text().splitlines()
    (pid,) = {
        event["pid"] for event in map(json.loads, log) if event["event"] == "worker_started" and event["rank"] == rank
    }
    os.kill(pid, signal.SIGKILL)


def test_parameter_servers_also_after_one_was_killed() -> None:
    result = TensorflowTrainer(
        coordinate,
        tensorflow_config=TensorflowConfig(roles={"chief": 1, "ps": 1}),
        scaling_config=ScalingConfig(num_workers=3),
        run_config=RunConfig(name="servers", failure_config=FailureConfig(max_failures=1)),
    ).fit()
    total, device = result.return_value
    assert total == 12.0
    assert device == "/job:ps/replica:0/task:0/device:CPU:0"
    assert len(result.metrics_dataframe) == 3


def hanging(config: dict[str, Any]) -> int:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, attempt = trireme.get_context().get_world_rank(), trireme.get_context()._attempt
    for step in range(3):
        while rank == 1 and step == 1 and attempt == 0:
            signal.pause()
        strategy.reduce("SUM", tf.constant(1.0), axis=None)
        trireme.report({"step": step})
    return attempt


def test_a_rank_that_hangs_is_named_and_replaced(results: Path) -> None:
    failures = FailureConfig(max_failures=1, hang_timeout_s=3, on_hang="restart")
    run_config = RunConfig(name="hangs", failure_config=failures)
    result = TensorflowTrainer(hanging, train_loop_config={}, scaling_config=TWO, run_config=run_config).fit()
    assert result.return_value == 1
    events = [json.loads(line) for line in (results / "hangs" / "events.jsonl").read_text().splitlines()]
    assert any("in hanging" in event["summary"] for event in events if event["event"] == "hang_detected")
    assert next(event["cause"] for event in events if event["event"] == "worker_failed") == "hang"
