"""Lightning Fabric on two workers: one model, resumed in the middle of an epoch, refused if every worker is alone."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from regression import ROWS, first_time, fit
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import trireme
from trireme import Checkpoint, ScalingConfig, WorkerGroupError
from trireme.torch import TorchTrainer

STEPS = 8  # two epochs of 4


class Stream(IterableDataset):  # type: ignore[misc]
    """Divided by rank, as scripts do it."""

    def __init__(self, inputs: torch.Tensor) -> None:
        self.inputs = inputs

    def __iter__(self) -> Iterator[Any]:
        return ((row, row * 3) for row in self.inputs[torch.distributed.get_rank() :: 2])


def train(config: dict[str, Any]) -> Any:
    """A checkpoint after every second step; rank 1 dies in the middle of the second epoch."""
    from trireme.lightning import prepare_fabric

    fabric_package = importlib.import_module(config["package"])
    fabric = prepare_fabric(fabric_package.Fabric(**config.get("fabric", {"accelerator": "cpu"})))
    fabric.launch()
    torch.manual_seed(0)
    layer = torch.nn.Linear(1, 1)
    model, optimizer = fabric.setup(layer, torch.optim.Adam(layer.parameters(), lr=0.1))
    inputs = torch.arange(float(ROWS)).reshape(ROWS, 1) / ROWS
    data = Stream(inputs) if config.get("stream") else TensorDataset(inputs, inputs * 3)
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=4, shuffle=None if config.get("stream") else True))
    state = {"model": model, "optimizer": optimizer, "step": 0}
    if checkpoint := trireme.get_checkpoint():
        with checkpoint.as_directory() as folder:
            fabric.load(os.path.join(folder, "state.ckpt"), state)
    seen = []
    while state["step"] < STEPS:
        for rows, targets in loader:
            if config.get("mark") and state["step"] == 5 and fabric.global_rank == 1 and first_time(config["mark"]):
                os.kill(os.getpid(), signal.SIGKILL)
            seen += rows[:, 0].tolist()
            optimizer.zero_grad()
            fabric.backward((model(rows) - targets).square().mean())
            optimizer.step()
            state["step"] += 1
            if state["step"] % 2 == 0:
                report(fabric, state, config["folder"])
    everyone: list[Any] = [None, None]
    torch.distributed.all_gather_object(everyone, ([each.tolist() for each in layer.parameters()], seen))
    return everyone


def report(fabric: Any, state: dict[str, Any], parent: str) -> None:
    folder = Path(parent, f"step_{state['step']}_{trireme.get_context()._attempt}")
    fabric.save(folder / "state.ckpt", state)  # on all ranks; rank 0 writes
    mine = Checkpoint.from_directory(folder) if fabric.is_global_zero else None
    trireme.report({"step": state["step"]}, checkpoint=mine)


@pytest.mark.parametrize("package", ["lightning.fabric", "lightning_fabric"])
def test_a_kill_in_the_middle_of_an_epoch_changes_nothing(tmp_path: Path, package: str) -> None:
    undisturbed = fit(train, {"package": package, "folder": str(tmp_path / "a")}, "undisturbed").return_value
    mark = tmp_path / "mark"
    config = {"package": package, "folder": str(tmp_path / "b"), "mark": str(mark)}
    killed = fit(train, config, "killed").return_value
    assert mark.exists()
    (first, seen), (second, other_seen) = undisturbed
    assert first == second
    epoch = sorted([*seen[:16], *other_seen[:16]])
    assert epoch == [row / ROWS for row in range(ROWS)]
    for (weights, rest), (_, everything) in zip(killed, undisturbed, strict=True):
        assert weights == first
        assert rest == everything[-len(rest) :] and 0 < len(rest) < len(everything)


def test_a_stream_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    config = {"package": "lightning.fabric", "stream": True}
    undisturbed = fit(train, config | {"folder": str(tmp_path / "a")}, "undisturbed").return_value
    config |= {"folder": str(tmp_path / "b"), "mark": str(tmp_path / "mark")}
    for (weights, rest), (expected, everything) in zip(
        fit(train, config, "killed").return_value, undisturbed, strict=True
    ):
        assert weights == expected
        assert rest == everything[16:] and len(everything) == 32  # from the fourth step of eight


def test_the_options_of_a_script_for_several_devices(tmp_path: Path) -> None:
    """prepare_fabric() keeps the strategy of a script for torchrun, and corrects the number of devices."""
    options = {"accelerator": "cpu", "devices": 3, "strategy": "ddp", "precision": "bf16-mixed"}
    config = {"package": "lightning.fabric", "folder": str(tmp_path), "fabric": options}
    (first, _), (second, _) = fit(train, config).return_value
    assert first == second


def test_a_script_for_torchrun_needs_no_change() -> None:
    def plain() -> Any:
        from lightning.fabric import Fabric

        fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
        fabric.launch()
        torch.manual_seed(fabric.global_rank)
        model, optimizer = fabric.setup(layer := torch.nn.Linear(1, 1), torch.optim.SGD(layer.parameters(), lr=0.1))
        fabric.backward(model(torch.ones(1, 1) * fabric.global_rank).sum())
        optimizer.step()
        return fabric.all_gather(layer.weight.detach()).flatten().tolist()

    first, second = TorchTrainer(plain, scaling_config=ScalingConfig(num_workers=2)).fit().return_value
    assert first == second


@pytest.mark.parametrize("options", [{}, {"devices": 1}, {"strategy": "ddp"}])
def test_workers_that_would_train_alone_are_an_error(options: dict[str, Any]) -> None:
    def alone(config: dict[str, Any]) -> None:
        from lightning.fabric import Fabric

        fabric = Fabric(accelerator="cpu", **config)
        if "strategy" in config:
            fabric.launch()
        fabric.setup(torch.nn.Linear(1, 1))

    text = (
        r"Lightning Fabric has found 1 process and the run has 2 workers.*Fabric\(devices=2.*prepare_fabric\(fabric\)"
    )
    with pytest.raises(WorkerGroupError, match=text):
        TorchTrainer(alone, train_loop_config=options, scaling_config=ScalingConfig(num_workers=2)).fit()


def test_objects_that_are_not_fabric_are_refused() -> None:
    def refused() -> None:
        from trireme.lightning import prepare_fabric

        prepare_fabric(torch.nn.Linear(1, 1))

    with pytest.raises(WorkerGroupError, match=r"prepare_fabric\(\) expects a lightning.fabric.Fabric.*got torch.nn"):
        TorchTrainer(refused).fit()
