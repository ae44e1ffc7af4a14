from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

import trireme
from trireme import Result, ScalingConfig
from trireme.torch import TorchTrainer, prepare_model

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def fit(function: Any, workers: int = 2, **options: Any) -> Result:
    return TorchTrainer(function, scaling_config=ScalingConfig(num_workers=workers), **options).fit()


def test_data_parallel_equals_one_worker_with_all_the_data() -> None:
    def train() -> Any:
        import torch.distributed as dist

        rank, workers = dist.get_rank(), dist.get_world_size()
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
        torch.manual_seed(rank)  # different weights; those of rank 0 are used
        model = prepare_model(torch.nn.Linear(4, 1))
        assert type(model).__name__ == ("DistributedDataParallel" if workers > 1 else "Linear")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(inputs[rank::workers]).square().mean().backward()
            optimizer.step()
        weights: list[Any] = [None] * workers
        dist.all_gather_object(weights, [parameter.tolist() for parameter in model.parameters()])
        assert all(other == weights[0] for other in weights)
        return [parameter.detach() for parameter in model.parameters()]

    two, one = fit(train).return_value, fit(train, 1).return_value
    for ours, reference in zip(two, one, strict=True):
        torch.testing.assert_close(ours, reference)


@pytest.mark.slow
def test_the_default_backend_of_torch_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles a C++ program, in processes that the worker starts. examples/python/torch_compile.py trains."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    class Network(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, inputs: Any) -> Any:  # torch skips its own: those of Linear or Sequential
            return super().forward(inputs).sin().softmax(dim=1)

    def train() -> None:
        network = Network(4, 2)
        inputs = torch.randn(8, 4)
        with torch.no_grad():
            expected = network(inputs)
            network.compile()
            torch.testing.assert_close(prepare_model(network)(inputs), expected)

    fit(train, 1)
    assert list(tmp_path.rglob("*.so"))


def test_fully_sharded_equals_one_worker_with_all_the_data() -> None:
    def train() -> Any:
        import torch.distributed as dist
        from torch.distributed.tensor import DTensor

        rank, workers = dist.get_rank(), dist.get_world_size()
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
        torch.manual_seed(rank)
        network = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 1))
        options = {"layers": [torch.nn.Linear], "reshard_after_forward": True}
        model = prepare_model(network, parallel_strategy="fsdp", parallel_strategy_kwargs=options)
        if workers > 1:
            parameters = list(model.parameters())
            assert all(isinstance(parameter, DTensor) for parameter in parameters)
            assert parameters[0].to_local().shape == (3, 4)
            assert type(model[0]).__name__ == "FSDPLinear"  # by itself, as asked for
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(inputs[rank::workers]).square().mean().backward()
            optimizer.step()
        return [getattr(p, "full_tensor", lambda p=p: p)().detach() for p in model.parameters()]

    two, one = fit(train).return_value, fit(train, 1).return_value
    for ours, reference in zip(two, one, strict=True):
        torch.testing.assert_close(ours, reference)


def test_strategy_none_and_the_device() -> None:
    def train() -> None:
        frozen = torch.nn.Linear(2, 2).requires_grad_(False)
        assert prepare_model(frozen, parallel_strategy=None) is frozen
        trained = torch.nn.Linear(2, 2)
        moved = prepare_model(trained, move_to_device=torch.device("meta"), parallel_strategy=None)
        assert moved.weight.is_meta
        model = prepare_model(torch.nn.Linear(2, 2), parallel_strategy_kwargs={"find_unused_parameters": True})
        assert model.find_unused_parameters

    assert fit(train).error is None


def different_modules(rank: int) -> dict[str, tuple[Any, str]]:
    linear, first = torch.nn.Linear, rank == 0
    frozen = linear(2, 2)
    frozen.bias.requires_grad_(first)
    return {
        "shape": (
            torch.nn.Sequential(linear(2, 2), linear(2, 3 if first else 4)),
            r"parameter 1\.weight is \(3, 2\) float32 on rank 0 but \(4, 2\) float32 on rank 1",
        ),
        "type": (
            linear(2, 2, dtype=torch.float32 if first else torch.float64),
            r"weight is \(2, 2\) float32 on rank 0 but \(2, 2\) float64 on rank 1",
        ),
        "missing": (linear(2, 2, bias=first), r"parameter bias \(2,\) float32 of rank 0 is not on rank 1"),
        "more": (linear(2, 2, bias=not first), r"parameter bias \(2,\) float32 of rank 1 is not on rank 0"),
        "frozen": (frozen, r"bias is \(2,\) float32 on rank 0 but \(2,\) float32, frozen on rank 1"),
        "order": (
            torch.nn.Sequential(OrderedDict((name, linear(2, 2)) for name in (("a", "b") if first else ("b", "a")))),
            r"item 0 is parameter a.weight on rank 0 but parameter b.weight on rank 1",
        ),
    }


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_ranks_with_different_modules(strategy: str) -> None:
    def train() -> None:
        for model, words in different_modules(trireme.get_context().get_world_rank()).values():
            with pytest.raises(ValueError, match=words):
                prepare_model(model, parallel_strategy=strategy)

    assert fit(train).error is None


def test_only_the_ranks_of_the_group_are_compared() -> None:
    def train() -> None:
        import torch.distributed as dist

        groups = [dist.new_group([rank]) for rank in range(2)]
        rank = dist.get_rank()
        stage = torch.nn.Linear(2, 2 + rank)  # as in a pipeline, each rank its own
        prepare_model(stage, parallel_strategy_kwargs={"process_group": groups[rank]})

    assert fit(train).error is None


@pytest.mark.parametrize("workers", [0, 2])
def test_refused(workers: int) -> None:
    def train() -> None:
        linear = torch.nn.Linear(2, 2)
        prepared = prepare_model(linear)
        for again in (prepared, linear):
            with pytest.raises(ValueError, match=r"this .* is already prepared"):
                prepare_model(again)
        with pytest.raises(ValueError, match="ReLU has no parameters"):
            prepare_model(torch.nn.ReLU())
        with pytest.raises(ValueError, match="none of Linear's 2 parameters requires grad"):
            prepare_model(torch.nn.Linear(2, 2).requires_grad_(False))
        with pytest.raises(TypeError, match="got dict"):
            prepare_model({})  # type: ignore[arg-type]
        for options, words in [
            (("ddp", {"reshard_after_forward": True}), "'reshard_after_forward' is an option of 'fsdp'"),
            (("fsdp", {"find_unused_parameters": True}), "'find_unused_parameters' is an option of 'ddp'"),
            (("fsdp", {"sharding": 3}), "'sharding' is unknown; .*'fsdp' accepts .*layers, mesh"),
            ((None, {"bucket_cap_mb": 3}), "accepts no options"),
            (("deepspeed", {}), "parallel_strategy='deepspeed'"),
        ]:
            with pytest.raises(ValueError, match=words):
                prepare_model(torch.nn.Linear(2, 2), True, *options)

    assert fit(train, workers).error is None


def test_outside_of_a_worker() -> None:
    with pytest.raises(RuntimeError, match="`prepare_model` cannot be used outside"):
        prepare_model(torch.nn.Linear(2, 2))


def test_without_a_process_group() -> None:
    def train() -> None:
        prepare_model(torch.nn.Linear(2, 2))

    with pytest.raises(trireme.WorkerGroupError, match=r"use trireme\.torch.TorchTrainer"):
        trireme.DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit()
