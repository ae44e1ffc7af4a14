"""Loggers of the frameworks, on rank 0 beside our reports: TensorBoard, Weights & Biases (offline) and MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from regression import network, rows
from torch.utils.data import DataLoader

import trireme
from trireme import RunConfig, ScalingConfig
from trireme.horovod import HorovodTrainer
from trireme.jax import JaxTrainer
from trireme.tensorflow import TensorflowTrainer
from trireme.torch import TorchTrainer

STEPS = 4
EVERY = ("tensorboard", "wandb", "mlflow")


def with_lightning(config: dict[str, Any]) -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger

    from trireme.lightning import ReportCallback, prepare_trainer

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: Any, index: int) -> Any:
            loss = (self.network(batch[0]) - batch[1]).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    out = config["out"]
    loggers = [
        TensorBoardLogger(out),
        WandbLogger(save_dir=out, offline=True),
        MLFlowLogger(tracking_uri=os.environ["MLFLOW_TRACKING_URI"]),
    ]
    options: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 1}
    # With a logger and Lightning's own checkpoints, which both need a folder that all ranks agree on.
    trainer = pl.Trainer(
        accelerator="cpu",
        logger=loggers,
        log_every_n_steps=1,
        callbacks=[ReportCallback()],
        default_root_dir=out,
        **options,
    )
    prepare_trainer(trainer).fit(Model(), DataLoader(rows(), batch_size=4))


def with_transformers(config: dict[str, Any]) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from trireme.transformers import ReportCallback, prepare_trainer

    sizes = {"vocab_size": 8, "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1}
    arguments = TrainingArguments(
        output_dir=config["out"], max_steps=STEPS, logging_steps=1, report_to=list(EVERY), disable_tqdm=True
    )
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    texts = [{"input_ids": [row % 8] * 4, "labels": [row % 8] * 4} for row in range(64)]
    trainer = Trainer(model=model, args=arguments, train_dataset=texts, callbacks=[ReportCallback()])
    prepare_trainer(trainer).train()


def with_deepspeed(config: dict[str, Any]) -> None:
    import deepspeed

    from trireme.deepspeed import save_checkpoint

    out = {"enabled": True, "output_path": config["out"], "job_name": "rows"}
    settings = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
        "steps_per_print": 1,  # also how often it logs
        "tensorboard": out,
        "csv_monitor": out,
        "wandb": {"enabled": True, "project": "rows"},
    }
    model = network()
    engine, _, data, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), training_data=rows(), config=settings
    )
    for inputs, targets in data:
        loss = (engine(inputs) - targets).square().mean()
        engine.backward(loss)
        engine.step()
        trireme.report({"loss": loss.item()}, checkpoint=save_checkpoint(engine))
    if engine.global_rank == 0:
        engine.monitor.tb_monitor.summary_writer.flush()


def with_accelerate(config: dict[str, Any]) -> None:
    from accelerate import Accelerator

    from trireme.accelerate import save_state

    accelerator = Accelerator(log_with=list(EVERY), project_dir=config["out"])
    accelerator.init_trackers("digits", config={"lr": 0.1})
    model = network()
    model, optimizer, data = accelerator.prepare(
        model, torch.optim.Adam(model.parameters()), DataLoader(rows(), batch_size=4)
    )
    for step, (inputs, targets) in enumerate(data):
        loss = (model(inputs) - targets).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"loss": loss.item()}, step=step)
        trireme.report({"loss": loss.item()}, checkpoint=save_state(accelerator))
    accelerator.end_training()


class Loggers:
    """What a training function without a framework's logger calls on rank 0."""

    def __init__(self, out: str) -> None:
        import mlflow
        import wandb
        from torch.utils.tensorboard import SummaryWriter

        self.active = trireme.get_context().get_world_rank() == 0
        if self.active:
            self.wandb, self.mlflow, self.board = wandb.init(project="rows"), mlflow, SummaryWriter(out)
            mlflow.start_run()

    def __call__(self, step: int, loss: float) -> None:
        if self.active:
            self.wandb.log({"loss": loss})
            self.mlflow.log_metric("loss", loss, step=step)
            self.board.add_scalar("loss", loss, step)
        state = trireme.Checkpoint.from_dict({"step": step}) if self.active else None
        trireme.report({"loss": loss}, checkpoint=state)

    def end(self) -> None:
        if self.active:
            self.wandb.finish()
            self.mlflow.end_run()
            self.board.close()


def with_tensorflow(config: dict[str, Any]) -> None:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    log = Loggers(config["out"])
    for step in range(STEPS):
        log(step, float(strategy.reduce("SUM", tf.constant(1.0), axis=None)))
    log.end()


def with_keras(config: dict[str, Any]) -> None:
    import keras
    import mlflow
    import numpy as np
    import tensorflow as tf
    import wandb
    from mlflow.tensorflow import MlflowCallback
    from wandb.integration.keras import WandbMetricsLogger

    from trireme.keras import ReportCheckpointCallback

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    callbacks: list[Any] = [ReportCheckpointCallback()]
    first = trireme.get_context().get_world_rank() == 0
    if first:
        run = wandb.init(project="rows")
        mlflow.start_run()
        callbacks += [keras.callbacks.TensorBoard(config["out"]), WandbMetricsLogger(), MlflowCallback()]
        callbacks += [keras.callbacks.CSVLogger(f"{config['out']}/epochs.csv")]
    model.fit(
        np.ones((8, 4), "float32"),
        np.zeros((8, 1), "float32"),
        batch_size=8,
        epochs=STEPS,
        callbacks=callbacks,
        verbose=0,
    )
    if first:
        run.finish()
        mlflow.end_run()
        assert len(Path(config["out"], "epochs.csv").read_text().splitlines()) == STEPS + 1


def with_horovod(config: dict[str, Any]) -> None:
    import horovod.torch as hvd

    hvd.init()
    log = Loggers(config["out"])
    for step in range(STEPS):
        log(step, hvd.allreduce(torch.ones(1)).item())
    log.end()


def with_jax(config: dict[str, Any]) -> None:
    import numpy as np
    from jax.experimental import multihost_utils

    log = Loggers(config["out"])
    for step in range(STEPS):
        log(step, float(multihost_utils.process_allgather(np.ones(1)).sum()))
    log.end()


WITHOUT_HOROVOD = pytest.mark.skipif(find_spec("horovod") is None, reason="`make horovod` builds the wheel of Horovod")


@pytest.mark.parametrize(
    ("trainer", "train"),
    [
        (TorchTrainer, with_lightning),
        (TorchTrainer, with_transformers),
        (TorchTrainer, with_accelerate),
        (TorchTrainer, with_deepspeed),
        (TensorflowTrainer, with_tensorflow),
        (TensorflowTrainer, with_keras),
        pytest.param(HorovodTrainer, with_horovod, marks=WITHOUT_HOROVOD),
        (JaxTrainer, with_jax),
    ],
)
def test_each_logger_has_one_run_of_rank_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: Any, train: Callable[[dict[str, Any]], None]
) -> None:
    """Also beside the callbacks of the run, which log in the driver."""
    from trireme.integrations.mlflow import MLflowCallback
    from trireme.integrations.tensorboard import TensorBoardCallback
    from trireme.integrations.wandb import WandbCallback

    out = tmp_path / "out"
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(out),
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }.items():
        monkeypatch.setenv(name, value)
    out.mkdir()
    callbacks = [
        MLflowCallback(tracking_uri=f"file://{tmp_path}/of_the_run"),
        WandbCallback(project="run", dir=str(tmp_path / "of_the_run")),
        TensorBoardCallback(),
    ]
    (tmp_path / "of_the_run").mkdir()
    result = trainer(
        train,
        train_loop_config={"out": str(out)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(callbacks=callbacks),
    ).fit()
    assert result.checkpoint is not None and result.metrics["loss"] > 0
    assert "loss" in Path(result.path, "metrics.csv").read_text().splitlines()[0].split(",")
    assert sum(b"loss" in path.read_bytes() for path in Path(result.path).rglob("events.out.tfevents.*")) == 1
    # Accelerate writes the configuration into a second file. The name has the process: tfevents.TIME.HOST.PID.NUMBER
    events = list(out.rglob("events.out.tfevents.*"))
    assert len({path.name.split(".")[-2] for path in events}) == 1
    logged = b"Samples/lr" if train is with_deepspeed else b"loss"  # DeepSpeed leaves losses to the script
    assert sum(logged in path.read_bytes() for path in events) == 1
    for folder, name in ((out, logged), (tmp_path / "of_the_run", b"loss")):
        (offline,) = folder.rglob("run-*.wandb")
        until(lambda file=offline, name=name: name in file.read_bytes())  # a process of W&B writes it
    if train is with_deepspeed:  # it has no MLflow
        (rates,) = out.rglob("Train_Samples_lr.csv")
        assert len(rates.read_text().splitlines()) == STEPS + 1
    else:
        assert losses_in_mlflow(tmp_path / "mlruns") == STEPS
    assert losses_in_mlflow(tmp_path / "of_the_run") >= 1


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def losses_in_mlflow(folder: Path) -> int:
    (losses,) = (path for path in folder.rglob("loss") if path.parent.name == "metrics")
    return len(losses.read_text().splitlines())
