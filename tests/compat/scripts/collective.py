"""barrier and broadcast, and a run without reports."""

import ray.train
import ray.train.collective
from compat_record import STORAGE, described, record
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def train_func(config):
    rank = ray.train.get_context().get_world_rank()
    ray.train.collective.barrier()
    got = ray.train.collective.broadcast_from_rank_zero({"from": rank, "config": config})
    ray.train.report({"rank": rank})
    return got


if __name__ == "__main__":
    result = DataParallelTrainer(
        train_func,
        train_loop_config={"a": 1},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="collective", storage_path=STORAGE),
    ).fit()
    record(result=described(result))
