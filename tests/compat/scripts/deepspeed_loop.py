"""DeepSpeed inside a TorchTrainer, from its guide."""

import os
import tempfile

import ray.train
import torch
from compat_record import STORAGE, described, record
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

CONFIG = {
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "train_micro_batch_size_per_gpu": 4,
    "wall_clock_breakdown": False,
}


def train_func(config):
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    rank = ray.train.get_context().get_world_rank()
    features = torch.arange(32.0).reshape(16, 2)[rank::2] / 32
    for epoch in range(2):
        for x in features.split(4):
            loss = torch.nn.functional.mse_loss(engine(x), x.sum(1, keepdim=True))
            engine.backward(loss)
            engine.step()
        with tempfile.TemporaryDirectory() as folder:
            engine.save_checkpoint(folder)
            torch.distributed.barrier()
            ray.train.report({"loss": loss.item(), "epoch": epoch}, checkpoint=Checkpoint.from_directory(folder))
    return engine.world_size


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        train_loop_config=CONFIG,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="deepspeed_loop", storage_path=STORAGE),
    ).fit()
    with result.checkpoint.as_directory() as folder:
        found = sorted(
            os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names
        )
    record(result=described(result), files=[name for name in found if name[0] != "." and not name.endswith(".py")])
