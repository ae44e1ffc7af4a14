"""Two workers train on Parquet files. One is killed in the middle of an epoch; no row is lost or repeated."""

import os
import signal
import tempfile

import torch

import trireme
import trireme.data
from trireme import Checkpoint, DataConfig, FailureConfig, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer, prepare_model

WEIGHTS = torch.tensor([2.0, -1.0, 0.5])


def write_files(folder):
    """Write 20,000 points to 4 files: three inputs in column x, the target in column y."""

    def point(batch):
        x = torch.rand(len(batch["id"]), 3, generator=torch.Generator().manual_seed(int(batch["id"][0])))
        return {"x": x.numpy(), "y": (x @ WEIGHTS).numpy()}

    points = trireme.data.range(20_000).map_batches(point, batch_size=5_000)
    points.write_parquet(folder, min_rows_per_file=5_000, row_group_size=1_000)


def train(config):
    context = trireme.get_context()
    torch.manual_seed(0)
    network = torch.nn.Linear(3, 1)
    model = prepare_model(network)  # averages the gradients of all workers
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    shard = trireme.get_dataset_shard("train")  # restores its position
    if checkpoint := trireme.get_checkpoint():
        state = checkpoint.to_dict()
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        print(f"resuming in epoch {shard.epoch} at row {shard.state()['rows']}")
    while shard.epoch < config["epochs"]:
        for batch in shard.iter_torch_batches(global_batch_size=200):  # 100 rows for each worker
            loss = torch.nn.functional.mse_loss(model(batch["x"]).squeeze(1), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows = shard.state()["rows"]  # rows of this epoch that all workers have used
            if rows % 5_000 == 0:
                state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
                mine = Checkpoint.from_dict(state) if context.get_world_rank() == 0 else None
                trireme.report({"epoch": shard.epoch, "rows": rows, "loss": loss.item()}, checkpoint=mine)
            if [shard.epoch, rows, context.get_world_rank()] == config["dies_at"] and not checkpoint:
                os.kill(os.getpid(), signal.SIGKILL)
    return network.weight.detach().flatten()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder)
        result = TorchTrainer(
            train,
            train_loop_config={"epochs": 3, "dies_at": [1, 12_000, 1]},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(name="data_parquet", failure_config=FailureConfig(max_failures=1)),
            datasets={"train": trireme.data.read_parquet(folder).random_shuffle(seed=1)},
            dataset_config=DataConfig(log_samples=True),
        ).fit()
    print("weights", " ".join(f"{weight:.2f}" for weight in result.return_value))
    print(f"check that every epoch used each row once: trireme data verify {result.path}")
