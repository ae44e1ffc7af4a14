"""Lightning on two workers: one model, the same as in one process, and the same after a kill."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from regression import ROWS, first_time, fit, rows
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, get_worker_info

import trireme
from trireme import CheckpointUploadMode, FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
from trireme.torch import TorchTrainer


def model(package: str, dropout: float = 0.0) -> Any:
    pl = importlib.import_module(package)

    class Model(pl.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(4, 1)
            self.seen: list[float] = []

        def training_step(self, batch: Any, index: int) -> Any:
            self.seen += batch[0][:, 0].tolist()
            loss = (self.layer(torch.nn.functional.dropout(batch[0], dropout)) - batch[1]).square().mean()
            self.log("loss", loss, sync_dist=True)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("distance", (self.layer(batch[0]) - batch[1]).abs().mean(), sync_dist=True)

        def predict_step(self, batch: Any, index: int) -> Any:
            return self.layer(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.1)

    return Model()


QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "max_epochs": 2,
}


class Stream(IterableDataset):  # type: ignore[misc]
    """Divided by the rank and the worker of the loader, as scripts do it. Its loader has no length."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        parts = 2 * (info.num_workers if info else 1)
        mine = 2 * (info.id if info else 0) + torch.distributed.get_rank()
        return iter([rows()[index] for index in range(mine, ROWS, parts)])


def loader_of(kind: str) -> Any:
    if kind == "stream":
        return DataLoader(Stream(), batch_size=4, num_workers=2)
    if kind == "distributed sampler":
        return DataLoader(rows(), batch_size=4, sampler=DistributedSampler(rows(), shuffle=True))
    if kind == "stateful":
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader(rows(), batch_size=4, shuffle=True)
    return DataLoader(rows(), batch_size=4, shuffle=True)


def train(config: dict[str, Any]) -> Any:
    from trireme.lightning import ReportCallback, prepare_trainer

    package = config.get("package", "lightning.pytorch")
    pl = importlib.import_module(package)

    class Kill(pl.Callback):  # type: ignore[name-defined, misc]
        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            if config.get("kill_at") == trainer.global_step and trainer.global_rank == 1 and first_time(config["mark"]):
                os.kill(os.getpid(), signal.SIGKILL)

    report = ReportCallback(**config.get("report", {}))
    options = QUIET | {"devices": "auto", "callbacks": [report, Kill()]} | config.get("trainer", {})
    trainer = prepare_trainer(pl.Trainer(**options))
    loader = loader_of(config.get("loader", ""))
    network = model(package, config.get("dropout", 0.0))
    torch.manual_seed(trainer.global_rank)
    arguments: dict[str, Any] = {"train_dataloaders": loader, "val_dataloaders": DataLoader(rows(), batch_size=8)}
    if checkpoint := trireme.get_checkpoint():
        with checkpoint.as_directory() as folder:
            trainer.fit(network, ckpt_path=os.path.join(folder, "checkpoint.ckpt"), **arguments)
    else:
        trainer.fit(network, **arguments)
    weights = [parameter.detach().flatten().tolist() for parameter in network.parameters()]
    everyone: list[Any] = [None] * trireme.get_context().get_world_size()
    torch.distributed.all_gather_object(everyone, (weights, network.seen))
    return everyone


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_workers_train_one_model_on_all_rows(package: str) -> None:
    result = fit(train, {"package": package})
    (weights, seen), (other_weights, other_seen) = result.return_value
    assert weights == other_weights
    inputs = sorted(rows().tensors[0][:, 0].tolist())
    for epoch in range(2):
        taken = [*seen[epoch * 16 : (epoch + 1) * 16], *other_seen[epoch * 16 : (epoch + 1) * 16]]
        assert sorted(taken) == inputs
    assert result.metrics["epoch"] == 1 and result.metrics["step"] == 8
    assert {"loss", "distance"} <= result.metrics.keys()


def test_the_model_is_that_of_one_process_on_the_same_global_batches() -> None:
    ((weights, seen), (_, other_seen)) = fit(train, {}).return_value
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for step in range(8):
        taken = [*seen[step * 4 : step * 4 + 4], *other_seen[step * 4 : step * 4 + 4]]
        batch = torch.tensor(taken).reshape(8, 1)
        optimizer.zero_grad()
        (layer(batch.repeat(1, 4)) - batch * 3).square().mean().backward()
        optimizer.step()
    expected = [parameter.detach().flatten() for parameter in layer.parameters()]
    for mine, theirs in zip(weights, expected, strict=True):
        torch.testing.assert_close(torch.tensor(mine), theirs)


@pytest.mark.parametrize(
    "report",
    [
        {"every_n_train_steps": 3},
        {"every_n_train_steps": 3, "checkpoint_upload_mode": CheckpointUploadMode.ASYNC},
        {},  # at the end of the epoch
        {"on_train_epoch_end": False, "on_validation_end": True},
    ],
    ids=["sync", "async", "epoch end", "validation end"],
)
def test_a_kill_in_the_middle_of_an_epoch_changes_nothing(tmp_path: Path, report: dict[str, Any]) -> None:
    config = {"report": report, "dropout": 0.5}
    undisturbed = fit(train, config, "undisturbed").return_value
    result = fit(train, config | {"kill_at": 7, "mark": str(tmp_path / "mark")}, "killed")
    assert (tmp_path / "mark").exists()
    for (weights, seen), (expected, all_seen) in zip(result.return_value, undisturbed, strict=True):
        assert weights == expected
        assert seen == all_seen[-len(seen) :] and 0 < len(seen) < len(all_seen)


@pytest.mark.parametrize("kind", ["stream", "distributed sampler", "stateful"])
def test_the_position_of_other_loaders(tmp_path: Path, kind: str) -> None:
    config = {"loader": kind, "report": {"every_n_train_steps": 3}}
    undisturbed = fit(train, config, "undisturbed").return_value
    result = fit(train, config | {"kill_at": 7, "mark": str(tmp_path / "mark")}, "killed").return_value
    for (weights, seen), (expected, all_seen) in zip(result, undisturbed, strict=True):
        assert weights == expected
        assert seen == all_seen[24:] and len(all_seen) == 32  # from the sixth step of eight


def test_a_run_resumes_with_another_number_of_workers() -> None:
    report = {"every_n_train_steps": 3, "on_train_epoch_end": False}
    first = fit(train, {"report": report, "trainer": {"max_steps": 3}})
    seen = [row for _, part in first.return_value for row in part]
    second = fit(train, {"report": report, "trainer": {"max_epochs": 1}}, workers=1)
    ((_, rest),) = second.return_value
    assert len(seen) == 24
    assert sorted([*seen, *rest]) == sorted(rows().tensors[0][:, 0].tolist())


@pytest.mark.parametrize("trainer", [{"devices": 1}, {"devices": "auto", "strategy": "ddp"}])
def test_without_prepare_trainer_a_wrong_device_count_is_an_error(trainer: dict[str, Any]) -> None:
    def alone(config: dict[str, Any]) -> None:
        import lightning.pytorch as pl

        network = model("lightning.pytorch")
        pl.Trainer(**(QUIET | config)).fit(network, DataLoader(rows(), batch_size=4))

    with pytest.raises(WorkerGroupError, match=r"Lightning has found 1 process and the run has 2 workers.*devices=2"):
        TorchTrainer(alone, train_loop_config=trainer, scaling_config=ScalingConfig(num_workers=2)).fit()


def test_a_script_for_torchrun_needs_no_change() -> None:
    def plain() -> Any:
        import lightning.pytorch as pl

        network = model("lightning.pytorch")
        trainer = pl.Trainer(**(QUIET | {"devices": 2, "strategy": "ddp", "max_epochs": 1}))
        trainer.fit(network, DataLoader(rows(), batch_size=4))
        everyone: list[Any] = [None, None]
        torch.distributed.all_gather_object(everyone, [each.tolist() for each in network.parameters()])
        return everyone

    first, second = TorchTrainer(plain, scaling_config=ScalingConfig(num_workers=2)).fit().return_value
    assert first == second


def test_lightnings_callbacks_and_its_other_loops(tmp_path: Path) -> None:
    def all_loops(config: dict[str, Any]) -> Any:
        import lightning.pytorch as pl
        from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

        from trireme.lightning import ReportCallback, prepare_trainer

        network = model("lightning.pytorch")
        best = ModelCheckpoint(config["out"], monitor="distance", save_top_k=1)
        # No validation can be better than the first by this much: the second epoch is the last.
        stop = EarlyStopping("distance", min_delta=100.0, patience=1)
        options = QUIET | {"max_epochs": 9, "enable_checkpointing": True, "accumulate_grad_batches": 2}
        trainer = prepare_trainer(pl.Trainer(callbacks=[ReportCallback(), best, stop], **options))
        loader = DataLoader(rows(), batch_size=4)
        trainer.fit(network, loader, loader)
        (validated,) = trainer.validate(ckpt_path="best", dataloaders=loader, verbose=False)
        predicted = trainer.predict(network, loader)
        everyone: list[Any] = [None, None]
        mine = (trainer.current_epoch, trainer.global_step, best.best_model_path, validated, len(predicted))
        torch.distributed.all_gather_object(everyone, mine)
        return everyone

    result = fit(all_loops, {"out": str(tmp_path / "best")})
    first, second = result.return_value
    assert first == second
    assert first[:2] == (2, 4) and first[4] == 4 and os.path.exists(first[2])
    assert first[3]["distance"] == pytest.approx(result.metrics["distance"], rel=1e-4)
    assert result.metrics["step"] == 4


def test_refused_arguments() -> None:
    def refused() -> list[str]:
        import lightning.pytorch as pl

        from trireme.lightning import ReportCallback, prepare_trainer

        texts = []
        for call in (
            lambda: ReportCallback(every_n_train_steps=0),
            lambda: ReportCallback(on_train_epoch_end=False),
            lambda: ReportCallback(checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD),
            lambda: prepare_trainer(object()),
            lambda: prepare_trainer(pl.Trainer(**QUIET, devices=1, strategy=pl.strategies.ModelParallelStrategy())),
        ):
            try:
                call()
            except (TypeError, ValueError) as error:
                texts.append(str(error))
        return texts

    texts = TorchTrainer(refused).fit().return_value
    assert len(texts) == 5
    for text, part in zip(
        texts,
        [
            "every_n_train_steps=0",
            "would never report",
            "expected SYNC or ASYNC",
            "got builtins.object",
            "ModelParallel",
        ],
        strict=True,
    ):
        assert part in text


def test_batches_of_a_dataset_resume_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    import trireme.data

    def over_shard(config: dict[str, Any]) -> Any:
        import lightning.pytorch as pl

        from trireme.lightning import ReportCallback, prepare_trainer

        class Model(pl.LightningModule):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)
                self.seen: list[int] = []

            def training_step(self, batch: Any, index: int) -> Any:
                self.seen += batch["id"].tolist()
                if config["kill"] and len(self.seen) == 16 and self.global_rank == 1 and first_time(config["mark"]):
                    os.kill(os.getpid(), signal.SIGKILL)
                return self.layer(batch["id"].float().reshape(-1, 1)).mean()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.01)

        network = Model()
        report = ReportCallback(every_n_train_steps=2, on_train_epoch_end=False)
        trainer = prepare_trainer(pl.Trainer(**(QUIET | {"max_epochs": 1, "callbacks": [report]})))
        batches = trireme.get_dataset_shard("train").iter_torch_batches(batch_size=4)
        checkpoint = trireme.get_checkpoint()
        folder = checkpoint.to_directory(config["mark"] + f"_{trainer.global_rank}") if checkpoint else None
        trainer.fit(network, batches, ckpt_path=f"{folder}/checkpoint.ckpt" if folder else None)
        everyone: list[Any] = [None, None]
        torch.distributed.all_gather_object(everyone, network.seen)
        return everyone

    seen = {}
    for kill in (False, True):
        result = TorchTrainer(
            over_shard,
            train_loop_config={"kill": kill, "mark": str(tmp_path / "mark")},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(name=f"shard_{kill}", failure_config=FailureConfig(max_failures=1)),
            datasets={"train": trireme.data.range(48).random_shuffle(seed=3)},
        ).fit()
        seen[kill] = result.return_value
    assert sorted(row for part in seen[False] for row in part) == list(range(48))
    for part, whole in zip(seen[True], seen[False], strict=True):
        assert part == whole[-len(part) :] and 0 < len(part) < len(whole)
