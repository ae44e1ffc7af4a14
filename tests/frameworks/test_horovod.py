"""HorovodTrainer with two real workers. `make horovod` builds the wheel that these tests need."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trireme
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
