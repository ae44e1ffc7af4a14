"""A small regression that tests of several frameworks train: data, network, the same in one process, and fits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import TensorDataset

from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer

ROWS = 32
Weights = dict[str, list[float]]


def rows() -> TensorDataset:
    inputs = torch.arange(float(ROWS)).reshape(ROWS, 1) / ROWS
    return TensorDataset(inputs.repeat(1, 4), inputs * 3)


def network(dropout: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Dropout(dropout), torch.nn.Linear(8, 1))


def in_one_process(
    batches: list[list[float]], optimizer: Callable[..., torch.optim.Optimizer], every: int = 1
) -> Weights:
    """Plain torch. batches: the inputs of all workers in each step. every: batches of an optimizer step."""
    model = network()
    steps = optimizer(model.parameters())
    for number, batch in enumerate(batches, 1):
        inputs = torch.tensor(batch).reshape(-1, 1)
        ((model(inputs.repeat(1, 4)) - inputs * 3).square().mean() / every).backward()
        if number % every == 0:
            steps.step()
            steps.zero_grad()
    return {name: value.flatten().tolist() for name, value in model.state_dict().items()}


def global_batches(seen: Sequence[list[float]], size: int = 4) -> list[list[float]]:
    """seen: the inputs that each rank has seen, in batches of this size."""
    return [[value for part in seen for value in part[step : step + size]] for step in range(0, len(seen[0]), size)]


def assert_equal(mine: Weights, expected: Weights, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    assert mine.keys() == expected.keys()
    for name, values in mine.items():
        torch.testing.assert_close(torch.tensor(values), torch.tensor(expected[name]), rtol=rtol, atol=atol)


def first_time(mark: str) -> bool:
    """Creates the file. False in the attempts after the first."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def fit(function: Any, config: dict[str, Any], name: str = "run", workers: int = 2, **more: Any) -> Any:
    return TorchTrainer(
        function,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(name=name, failure_config=FailureConfig(max_failures=1)),
        **more,
    ).fit()
