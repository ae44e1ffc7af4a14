from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trireme
from trireme import Checkpoint, ScalingConfig
from trireme.torch import TorchCheckpoint, TorchTrainer, prepare_model

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def network(width: int = 3, **options: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(2, width, **options), torch.nn.Linear(width, 1, **options))


def equal(a: Any, b: Any) -> bool:
    states = a.state_dict(), b.state_dict()
    return states[0].keys() == states[1].keys() and all(
        torch.equal(states[0][key], states[1][key]) for key in states[0]
    )


def test_a_state_dict() -> None:
    stored = network()
    checkpoint = TorchCheckpoint.from_state_dict({f"module.{key}": value for key, value in stored.state_dict().items()})
    assert sorted(path.name for path in Path(checkpoint.path).iterdir()) == ["model.pt"]
    target = network()
    assert checkpoint.get_model(target, allow_pickle=False) is target
    assert equal(target, stored)
    with pytest.raises(ValueError, match="pass the model"):
        checkpoint.get_model()


def test_a_part_that_is_called_module() -> None:
    stored, target = [torch.nn.ModuleDict({"module": torch.nn.Linear(1, 1)}) for _ in range(2)]
    TorchCheckpoint.from_state_dict(stored.state_dict()).get_model(target)
    assert equal(target, stored)


def test_a_whole_model() -> None:
    stored = network()
    checkpoint = TorchCheckpoint.from_model(stored)
    assert equal(checkpoint.get_model(), stored)
    assert equal(checkpoint.get_model(network()), stored)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        checkpoint.get_model(allow_pickle=False)


def test_the_preprocessor() -> None:
    checkpoint = TorchCheckpoint.from_model(network(), preprocessor={"mean": 3})
    assert checkpoint.get_preprocessor() == {"mean": 3}
    checkpoint.update_metadata({"more": 1})
    checkpoint.set_preprocessor([1, 2])
    assert checkpoint.get_preprocessor() == [1, 2]
    assert checkpoint.get_metadata()["more"] == 1
    assert TorchCheckpoint.from_state_dict({}).get_preprocessor() is None


def test_through_a_run() -> None:
    def train() -> None:
        model = prepare_model(network())
        rank = trireme.get_context().get_world_rank()
        trireme.report({}, checkpoint=TorchCheckpoint.from_model(model, preprocessor="p") if rank == 0 else None)
        trireme.report({}, checkpoint=TorchCheckpoint.from_state_dict(model.state_dict()) if rank == 0 else None)

    result = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit()
    whole, state = [TorchCheckpoint(checkpoint.path) for checkpoint, _ in result.best_checkpoints or []]
    assert whole.get_preprocessor() == "p"
    assert equal(whole.get_model(), state.get_model(network()))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: torch.nn.Sequential(torch.nn.Linear(2, 3)), ["unexpected: 1.weight", "unexpected: 1.bias"]),
        (lambda: torch.nn.Sequential(*network(), torch.nn.Linear(1, 1)), ["missing: 2.weight", "missing: 2.bias"]),
        (lambda: network(4), ["0.weight: stored (3, 2) float32, the model has (4, 2) float32"]),
        (lambda: network(dtype=torch.float64), ["0.weight: stored (3, 2) float32, the model has (3, 2) float64"]),
        (lambda: torch.nn.Sequential(*[torch.nn.Linear(1, 1)] * 9), ["and 9 more"]),
    ],
)
def test_another_model(model: Any, words: list[str]) -> None:
    target = model()
    before = {key: value.clone() for key, value in target.state_dict().items()}
    with pytest.raises(ValueError) as caught:
        TorchCheckpoint.from_state_dict(network().state_dict()).get_model(target)
    for word in words:
        assert word in str(caught.value)
    assert all(torch.equal(before[key], value) for key, value in target.state_dict().items())


def test_no_model_inside() -> None:
    plain = Checkpoint.from_dict({"a": 1})
    with pytest.raises(RuntimeError, match=r"has no model\.pt"):
        TorchCheckpoint(plain.path).get_model()
