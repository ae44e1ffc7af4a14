"""prepare_data_loader: every rank sees its part of a shuffled set, all of it in every epoch."""

import torch
from compat_record import STORAGE, described, record
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, enable_reproducibility, prepare_data_loader
from torch.utils.data import DataLoader, TensorDataset


def train_func():
    enable_reproducibility(seed=1)
    loader = prepare_data_loader(DataLoader(TensorDataset(torch.arange(40.0)), batch_size=5, shuffle=True))
    seen = []
    for _ in range(2):
        total = torch.zeros(1)
        for (batch,) in loader:
            total += batch.sum()
        torch.distributed.all_reduce(total)
        seen.append(total.item())
    return {
        "seen": seen,
        "batches": len(loader),
        "backend": torch.distributed.get_backend(),
        "world": torch.distributed.get_world_size(),
    }


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        torch_config=TorchConfig(backend="gloo", timeout_s=600),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="torch_loader", storage_path=STORAGE),
    ).fit()
    record(result=described(result))
