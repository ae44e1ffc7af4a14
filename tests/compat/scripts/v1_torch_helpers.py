"""The helpers of the first version: accelerate, backward, TorchCheckpoint, datasets, scores, restore()."""

import os
import tempfile

import ray.data
import ray.train
import ray.train.torch
import torch
from compat_record import STORAGE, described, error_name, record
from ray.air import session
from ray.train import Checkpoint, CheckpointConfig, DataConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchCheckpoint, TorchTrainer


def train_func(config):
    ray.train.torch.enable_reproducibility(seed=3)
    model = ray.train.torch.prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    optimizer = ray.train.torch.prepare_optimizer(optimizer)
    epoch = 0
    if checkpoint := session.get_checkpoint():
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "epoch")) as file:
            epoch = int(file.read()) + 1
    shard = session.get_dataset_shard("train")
    while epoch < config["epochs"]:
        rows = 0
        for batch in shard.iter_torch_batches(batch_size=100, dtypes=torch.float32):
            loss = torch.nn.functional.mse_loss(model(batch["x"].unsqueeze(1)).squeeze(1), 3 * batch["x"])
            optimizer.zero_grad()
            ray.train.torch.backward(loss)
            optimizer.step()
            rows += len(batch["x"])
        total = torch.tensor([loss.item()])
        torch.distributed.all_reduce(total)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "epoch"), "w") as file:
                file.write(str(epoch))
            saved = TorchCheckpoint.from_model(model.module)
            with saved.as_directory() as made:
                os.replace(os.path.join(made, "model.pt"), os.path.join(folder, "model.pt"))
            checkpoint = Checkpoint.from_directory(folder) if session.get_world_rank() == 0 else None
            score = [1, 3, 2, 0][epoch]
            session.report({"loss": total.item(), "rows": rows, "epoch": epoch, "score": score}, checkpoint=checkpoint)
        epoch += 1
        if config["fail"] and epoch == 3:
            raise RuntimeError("stop here")


def trainer(**changes):
    return TorchTrainer(
        train_func,
        train_loop_config={"lr": 0.1, "epochs": 4, "fail": True, **changes},
        scaling_config=ScalingConfig(num_workers=2, trainer_resources={"CPU": 0}),
        run_config=RunConfig(
            name="v1_torch_helpers",
            storage_path=STORAGE,
            failure_config=FailureConfig(max_failures=0),
            checkpoint_config=CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="score", checkpoint_score_order="max"
            ),
        ),
        datasets={"train": dataset()},
        dataset_config=DataConfig(datasets_to_split=["train"]),
    )


def dataset():
    return ray.data.from_items([{"x": float(i) / 10} for i in range(20)])


if __name__ == "__main__":
    path = os.path.join(STORAGE, "v1_torch_helpers")
    before = TorchTrainer.can_restore(path)
    try:
        trainer().fit()
        failed = None
    except Exception as error:
        failed = [type(error).__name__, error_name(error.__cause__)]
    restorable = TorchTrainer.can_restore(path)
    again = TorchTrainer.restore(
        path, train_loop_config={"lr": 0.1, "epochs": 4, "fail": False}, datasets={"train": dataset()}
    ).fit()
    loaded = TorchCheckpoint(again.checkpoint.path).get_model(torch.nn.Linear(1, 1))
    (folder,) = [name for name in os.listdir(path) if name.startswith("TorchTrainer")]
    record(
        before=before,
        failed=failed,
        restorable=restorable,
        result=described(again, first_version=True),
        files=sorted(name for name in os.listdir(again.checkpoint.path) if not name.startswith(".")),
        kept=sorted(name for name in os.listdir(os.path.join(path, folder)) if name.startswith("checkpoint_")),
        weight=loaded.weight.item(),
        best=again.get_best_checkpoint("score", "max").path.rpartition("/")[2],
    )
