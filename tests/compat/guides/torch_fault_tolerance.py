"""The guides for checkpoints and fault tolerance: resume after a failure, top K, listing, a run that is continued."""

import os
import tempfile
import uuid

import ray
import ray.train
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_fn_per_worker(train_loop_config: dict):
    model = torch.nn.Linear(1, 1)
    start_epoch = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            state = torch.load(os.path.join(checkpoint_dir, "checkpoint.pt"))
        model.load_state_dict(state["model"])
        start_epoch = state["epoch"] + 1
    for epoch in range(start_epoch, train_loop_config["num_epochs"]):
        metrics = {"loss": 1 / (epoch + 1), "epoch": epoch}
        rank = ray.train.get_context().get_world_rank()
        with tempfile.TemporaryDirectory() as tempdir:
            torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(tempdir, "checkpoint.pt"))
            checkpoint = Checkpoint.from_directory(tempdir) if rank == 0 else None
            ray.train.report(metrics, checkpoint=checkpoint)
        if epoch == 1 and start_epoch == 0:
            raise RuntimeError("Simulated failure")


storage_path = os.environ.get("GUIDE_STORAGE", tempfile.mkdtemp())
name = f"train_run_{uuid.uuid4().hex}"


def trainer(num_epochs):
    return TorchTrainer(
        train_fn_per_worker,
        train_loop_config={"num_epochs": num_epochs},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name=name,
            storage_path=storage_path,
            failure_config=FailureConfig(max_failures=3),
            checkpoint_config=CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
            ),
        ),
    )


result = trainer(4).fit()
assert result.metrics["epoch"] == 3 and len(result.best_checkpoints) == 2
assert [metrics["epoch"] for _, metrics in result.best_checkpoints] == [2, 3]
continued = trainer(6).fit()
assert continued.metrics["epoch"] == 5 and continued.path == result.path
found = ray.train.Result.from_path(os.path.join(storage_path, name))
assert found.checkpoint.path == continued.checkpoint.path
assert found.get_best_checkpoint("loss", "min").path == continued.checkpoint.path
print("GUIDE DONE")
