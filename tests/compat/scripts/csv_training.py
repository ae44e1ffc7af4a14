"""Files to tensors: read_csv and read_parquet, preprocessing, a split, collate functions, a resumed epoch."""

import os
import tempfile

import ray
import ray.data
import ray.train
import ray.train.torch
import torch
from compat_record import STORAGE, described, record
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def as_tensors(batch):
    features = torch.as_tensor([list(row) for row in zip(batch["a"], batch["b"], strict=True)], dtype=torch.float32)
    return features, torch.as_tensor(batch["y"], dtype=torch.float32)


def train_func(config):
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    first = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.module.load_state_dict(state["model"])
        first = state["epoch"] + 1
    train = ray.train.get_dataset_shard("train")
    valid = ray.train.get_dataset_shard("valid")
    for epoch in range(first, 4):
        rows = 0
        # None: Ray's batches are its blocks, so the number of steps is not recorded.
        for features, labels in train.iter_torch_batches(batch_size=None, collate_fn=as_tensors):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(features).squeeze(1), labels).backward()
            optimizer.step()
            rows += len(labels)
        seen = sum(float(batch["y"].sum()) for batch in valid.iter_torch_batches(batch_size=4, dtypes=torch.float64))
        totals = torch.tensor([float(rows), seen], dtype=torch.float64)
        torch.distributed.all_reduce(totals)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                torch.save({"model": model.module.state_dict(), "epoch": epoch}, os.path.join(folder, "state.pt"))
                checkpoint = Checkpoint.from_directory(folder)
            metrics = {"epoch": epoch, "rows": totals[0].item(), "valid": totals[1].item(), "first": first}
            ray.train.report(metrics, checkpoint=checkpoint)
        if epoch == 1 and first == 0:
            ray.train.get_all_reported_checkpoints()  # waits until Ray knows of the reports
            raise RuntimeError("once")


if __name__ == "__main__":
    ray.data.DataContext.get_current().execution_options.preserve_order = True  # Ray splits blocks in any order
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "rows.csv"), "w") as file:
        file.write("a,b,y\n")
        file.writelines(f"{i},{i % 3},{2 * i + 1}\n" for i in range(20))
    rows = ray.data.read_csv(folder).map_batches(lambda batch: {**batch, "a": batch["a"] / 20, "y": batch["y"] / 20})
    train, valid = rows.train_test_split(test_size=0.2)
    valid.write_parquet(os.path.join(folder, "valid"))
    again = ray.data.read_parquet(os.path.join(folder, "valid"))
    train = train.filter(lambda row: row["b"] >= 0).materialize()
    result = TorchTrainer(
        train_func,
        train_loop_config={"lr": 0.1},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="csv_training", storage_path=STORAGE, failure_config=FailureConfig(max_failures=1)),
        datasets={"train": train, "valid": again},
    ).fit()
    grouped = rows.groupby("b").count().to_pandas().sort_values("b")
    record(
        result=described(result),
        counts=[rows.count(), train.count(), again.count()],
        columns=again.columns(),
        types=[str(kind) for kind in again.schema().types],
        sums=[round(rows.sum("y"), 4), round(train.mean("a"), 4), rows.max("b")],
        groups=grouped["count()"].tolist(),
        unique=sorted(rows.unique("b")),
        take=[sorted(row) for row in again.take(2)],
        batch=sorted(again.take_batch(3)),
    )
