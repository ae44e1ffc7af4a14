from __future__ import annotations

import copy
import io
from typing import Any

import pytest

import trireme
from trireme import Result, ScalingConfig
from trireme.torch import (
    TorchTrainer,
    accelerate,
    backward,
    enable_reproducibility,
    prepare_model,
    prepare_optimizer,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def fit(function: Any, workers: int = 2, **options: Any) -> Result:
    return TorchTrainer(function, scaling_config=ScalingConfig(num_workers=workers), **options).fit()


class Notes(torch.nn.Module):  # type: ignore[misc]
    """Records the type that its layer computes in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, inputs: Any) -> Any:
        outputs = self.layer(inputs)
        self.computed_in = outputs.dtype
        return outputs


@pytest.mark.parametrize("amp", [False, True, torch.bfloat16, torch.float16])
def test_accelerate(amp: Any) -> None:
    dtype = {False: torch.float32, True: torch.bfloat16}.get(amp, amp)

    def train() -> Any:
        accelerate(amp=amp)
        torch.manual_seed(0)
        network = Notes()
        model = prepare_model(network)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        prepared = prepare_optimizer(optimizer)
        assert (prepared is optimizer) == (dtype != torch.float16)
        schedule = torch.optim.lr_scheduler.ExponentialLR(prepared, 0.9)
        inputs = torch.ones(2, 4)
        losses = []
        for _ in range(12):  # the scaler must first find its scale
            prepared.zero_grad()
            loss = (model(inputs) - 1).float().square().mean()
            backward(loss)
            prepared.step()
            schedule.step()
            losses.append(loss.item())
        assert network.computed_in is dtype
        assert network.layer.weight.dtype is torch.float32
        assert isinstance(prepared, torch.optim.Optimizer)
        assert prepared.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.9**12)
        prepared.load_state_dict(prepared.state_dict())
        copies = [copy.deepcopy(network), _pickled(network)]
        assert all(torch.equal(other(inputs), network(inputs)) for other in copies)
        assert all(other.computed_in is dtype for other in copies)
        return losses

    losses = fit(train).return_value
    assert losses[-1] < losses[0] / 2


def _pickled(module: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def test_gradients_that_overflow_leave_a_step_out() -> None:
    def train() -> None:
        accelerate(amp=torch.float16)
        model = prepare_model(torch.nn.Linear(1, 1))
        optimizer = prepare_optimizer(torch.optim.SGD(model.parameters(), lr=1))
        before = [parameter.clone() for parameter in model.parameters()]
        backward(model(torch.ones(1, 1)).float().sum() * float("inf"))
        optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        optimizer.zero_grad()
        backward(model(torch.ones(1, 1)).float().sum())
        optimizer.step()
        assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        with pytest.raises(RuntimeError, match="closure"):
            optimizer.step(lambda: 1.0)
        with pytest.raises(ValueError, match="already prepared"):
            prepare_optimizer(optimizer)

    assert fit(train, 0).error is None


def test_refused() -> None:
    def train() -> None:
        with pytest.raises(ValueError, match="expected a bool"):
            accelerate(amp=torch.float64)
        accelerate(amp=True)
        with pytest.raises(RuntimeError, match="was already called"):
            accelerate(amp=True)

    assert fit(train, 0).error is None
    assert fit(train, 0).error is None  # another training function starts without it


@pytest.mark.parametrize(
    "call",
    [
        lambda: accelerate(),
        lambda: prepare_optimizer(torch.optim.SGD([torch.zeros(1)], lr=1)),
        lambda: backward(torch.zeros(1)),
        lambda: enable_reproducibility(),
    ],
)
def test_outside_of_a_worker(call: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot be used outside"):
        call()


def test_enable_reproducibility() -> None:
    def train() -> Any:
        import os
        import random

        import numpy

        enable_reproducibility(7)
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
        return random.random(), numpy.random.rand(), torch.rand(1).item(), trireme.get_context().get_world_rank()

    assert fit(train, 1).return_value == fit(train, 1).return_value
