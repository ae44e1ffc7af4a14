"""Datasets: shards, an undivided one, batches, epochs."""

import ray
import ray.data
import ray.train
from compat_record import STORAGE, described, record
from ray.data import DataContext, ExecutionOptions
from ray.train import DataConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func():
    import torch

    shard = ray.train.get_dataset_shard("train")
    whole = ray.train.get_dataset_shard("whole")
    epochs = []
    for _ in range(2):
        total, rows = torch.zeros(1), torch.zeros(1)
        for batch in shard.iter_torch_batches(batch_size=8, dtypes=torch.float32):
            total += batch["x"].sum()
            rows += len(batch["x"])
        torch.distributed.all_reduce(total)
        torch.distributed.all_reduce(rows)
        epochs.append([total.item(), rows.item()])
    seen = sum(len(batch["y"]) for batch in whole.iter_batches(batch_size=3))
    try:
        ray.train.get_dataset_shard("unknown")
    except KeyError:
        error = "KeyError"
    return epochs, seen, error, sorted(row["y"] for row in whole.iter_rows())


if __name__ == "__main__":
    train = ray.data.range(40).map(lambda row: {"x": row["id"] * 2})
    whole = ray.data.from_items([{"y": i} for i in range(7)]).map_batches(lambda batch: {"y": batch["y"] + 1})
    DataContext.get_current().enable_progress_bars = False
    result = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="datasets", storage_path=STORAGE),
        datasets={"train": train, "whole": whole},
        dataset_config=DataConfig(datasets_to_split=["train"]),
    ).fit()
    record(
        result=described(result),
        count=train.count(),
        options=ExecutionOptions().preserve_order in (True, False),
    )
