"""Strategies of Lightning that divide the model, under Trireme's and Ray Train's names, and its loggers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import trireme
from trireme import RunConfig, ScalingConfig, WorkerGroupError
from trireme.torch import TorchTrainer

ROWS = torch.arange(64.0).reshape(16, 4) / 64
QUIET = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}


def model(shard: Any = None) -> Any:
    import lightning.pytorch as pl

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

        def configure_model(self) -> None:
            if shard is not None:
                shard(self)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.layers(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Model()


def expected() -> list[torch.Tensor]:
    """Plain torch, one process, the same global batches: 4 of 4 rows, two epochs."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    for batch in [*ROWS.split(4), *ROWS.split(4)]:
        optimizer.zero_grad()
        layers(batch).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in layers.parameters()]


def fully_sharded(module: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    for layer in (module.layers[0], module.layers[2]):
        fully_shard(layer, mesh=module.device_mesh["data_parallel"])


def train(config: dict[str, Any]) -> Any:
    import lightning.pytorch as pl

    from trireme.lightning import DeepSpeedStrategy, ModelParallelStrategy, ReportCallback, prepare_trainer

    zero = config["zero"]
    if zero is None:
        strategy: Any = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
    else:
        strategy = DeepSpeedStrategy(stage=zero)
    network = model(fully_sharded if zero is None else None)
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=config["epochs"], strategy=strategy, logger=False,
        callbacks=[ReportCallback()], **QUIET,
    )  # fmt: skip
    trainer = prepare_trainer(trainer)
    checkpoint = trireme.get_checkpoint()
    trainer.fit(network, DataLoader(ROWS, batch_size=2), ckpt_path=_file(checkpoint))
    return _whole(trainer.strategy.lightning_module_state_dict()) if zero is None else _gathered(network)


def _gathered(network: Any) -> list[list[float]]:
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(network.parameters())):
        return [parameter.detach().flatten().tolist() for parameter in network.parameters()]


def _file(checkpoint: Any) -> str | None:
    return os.path.join(checkpoint.path, "checkpoint.ckpt") if checkpoint else None


def _whole(state: dict[str, Any]) -> list[list[float]]:
    from torch.distributed.tensor import DTensor

    whole = [value.full_tensor() if isinstance(value, DTensor) else value for value in state.values()]
    return [value.flatten().tolist() for value in whole]


@pytest.mark.parametrize("zero", [None, 2, 3], ids=["ModelParallelStrategy", "DeepSpeed 2", "DeepSpeed 3"])
def test_a_sharded_model_is_that_of_one_process_also_when_it_resumes(zero: int | None) -> None:
    for epochs in (1, 2):
        result = TorchTrainer(
            train,
            train_loop_config={"epochs": epochs, "zero": zero},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(name="sharded"),
        ).fit()
    assert result.metrics["epoch"] == 1 and result.metrics["step"] == 8
    assert result.checkpoint.path.endswith("checkpoint_000001")
    for mine, theirs in zip(result.return_value, expected(), strict=True):
        torch.testing.assert_close(torch.tensor(mine), theirs.flatten())


@pytest.mark.parametrize(
    ("ours", "given", "text"),
    [
        (False, "fsdp", "strategy `fsdp` requires a GPU"),
        (True, "FSDPStrategy", r"trireme.lightning.FSDPStrategy.*ModelParallelStrategy"),
        # Lightning derives it from its DDPStrategy.
        (
            False,
            "deepspeed",
            r"Trainer\(strategy=DeepSpeedStrategy\).*pass strategy=trireme.lightning.DeepSpeedStrategy",
        ),
        (False, "model_parallel", r"pass strategy=trireme.lightning.ModelParallelStrategy"),
    ],
)
def test_strategies_that_are_refused_on_cpus(ours: bool, given: str, text: str) -> None:
    def refused() -> None:
        import lightning.pytorch as pl

        import trireme.lightning

        strategy: Any = getattr(trireme.lightning, given)() if ours else given
        if given == "model_parallel":
            strategy = pl.strategies.ModelParallelStrategy()
        trainer = pl.Trainer(accelerator="cpu", strategy=strategy, logger=False, **QUIET)
        trireme.lightning.prepare_trainer(trainer).fit(model(), DataLoader(ROWS))

    with pytest.raises(WorkerGroupError, match=text):
        TorchTrainer(refused, scaling_config=ScalingConfig(num_workers=2)).fit()


def test_a_script_written_for_ray_train(tmp_path: Path) -> None:
    """The function of Ray's guide, with its names. The logger of the trainer writes on rank 0."""

    def train_func(config: dict[str, Any]) -> Any:
        import lightning.pytorch as pl
        from lightning.pytorch.loggers import CSVLogger

        from trireme.lightning import (
            RayDDPStrategy,
            RayLightningEnvironment,
            RayTrainReportCallback,
            prepare_trainer,
        )

        class Data(pl.LightningDataModule):  # type: ignore[misc]
            def train_dataloader(self) -> Any:
                return DataLoader(ROWS, batch_size=2)

        network = model()
        trainer = pl.Trainer(
            max_epochs=2, devices="auto", accelerator="auto", strategy=RayDDPStrategy(),
            plugins=[RayLightningEnvironment()], callbacks=[RayTrainReportCallback()],
            logger=CSVLogger(config["logs"], flush_logs_every_n_steps=1), log_every_n_steps=1, **QUIET,
        )  # fmt: skip
        trainer = prepare_trainer(trainer)
        trainer.fit(network, datamodule=Data())
        return [parameter.detach().flatten().tolist() for parameter in network.parameters()]

    result = TorchTrainer(
        train_func,
        train_loop_config={"logs": str(tmp_path / "logs")},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
    ).fit()
    for mine, theirs in zip(result.return_value, expected(), strict=True):
        torch.testing.assert_close(torch.tensor(mine), theirs.flatten())
    from trireme.lightning import RayTrainReportCallback

    with result.checkpoint.as_directory() as folder:
        file = os.path.join(folder, RayTrainReportCallback.CHECKPOINT_NAME)
        assert torch.load(file, weights_only=True)["global_step"] == 8
    (metrics,) = (tmp_path / "logs").rglob("metrics.csv")
    assert len(metrics.read_text().splitlines()) == 9


def test_a_missing_plugin_of_the_environment_is_added_and_a_foreign_one_refused() -> None:
    def foreign() -> None:
        import lightning.pytorch as pl
        from lightning.fabric.plugins.environments import LightningEnvironment

        from trireme.lightning import DDPStrategy, prepare_trainer

        options: dict[str, Any] = {"accelerator": "cpu", "strategy": DDPStrategy(), "logger": False, **QUIET}
        assert prepare_trainer(pl.Trainer(**options)).world_size == 2
        options["strategy"] = DDPStrategy(cluster_environment=LightningEnvironment())
        prepare_trainer(pl.Trainer(**options))

    with pytest.raises(WorkerGroupError, match=r"plugins=\[LightningEnvironment\(\)\]\) contradicts the workers"):
        TorchTrainer(foreign, scaling_config=ScalingConfig(num_workers=2)).fit()
