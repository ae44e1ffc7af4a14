"""A DataConfig with an own configure(), from the guide for data loading, and limits of the execution."""

import ray.data
import ray.train
from compat_record import STORAGE, described, record
from ray.train import DataConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


class TrainOnly(DataConfig):
    """Splits the first rows of one dataset; every worker reads the others."""

    def __init__(self, limit):
        super().__init__(datasets_to_split=["train"])
        self.limit = limit

    def configure(self, datasets, world_size, worker_handles, worker_node_ids, **kwargs):
        assert len(worker_node_ids) == world_size
        shards = [{} for _ in range(world_size)]
        for name, dataset in datasets.items():
            if name == "train":
                parts = dataset.limit(self.limit).streaming_split(world_size, equal=True)
            else:
                parts = [dataset.iterator() for _ in range(world_size)]
            for shard, part in zip(shards, parts, strict=True):
                shard[name] = part
        return shards


def train_func():
    train, valid = ray.train.get_dataset_shard("train"), ray.train.get_dataset_shard("valid")
    rows = [len(batch["id"]) for _ in range(2) for batch in train.iter_batches(batch_size=4)]
    everything = sorted(value for batch in valid.iter_batches(batch_size=None) for value in batch["id"].tolist())
    try:
        ray.train.get_dataset_shard("other")
    except KeyError:
        return [sum(rows), everything]


if __name__ == "__main__":
    options = DataConfig.default_ingest_options()
    options.resource_limits = options.resource_limits.copy(cpu=2)
    limited = ray.data.ExecutionOptions(resource_limits=ray.data.ExecutionResources.for_limits(object_store_memory=1e9))
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    results = [
        TorchTrainer(
            train_func,
            datasets={"train": ray.data.range(43), "valid": lambda: ray.data.range(5)},
            dataset_config=config,
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(name=f"custom_data_config_{index}", storage_path=STORAGE),
        ).fit()
        for index, config in enumerate(
            [TrainOnly(33), DataConfig(datasets_to_split=["train"], execution_options=options)]
        )
    ]
    record(
        results=[described(result) for result in results],
        default=[options.is_resource_limits_default(), ray.data.ExecutionOptions().is_resource_limits_default()],
        limited=limited.is_resource_limits_default(),
    )
