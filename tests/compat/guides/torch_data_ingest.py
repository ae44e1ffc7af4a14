"""The guide for data loading: a preprocessed dataset, batches of tensors, collate functions, a fitted preprocessor."""

import os
import tempfile

import numpy as np
import ray
import ray.data
import ray.train
import torch
from ray.data.collate_fn import NumpyBatchCollateFn
from ray.data.preprocessors import Concatenator, StandardScaler
from ray.train import Checkpoint, DataConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch import nn

ray.init(num_cpus=8)
ray.data.DataContext.get_current().execution_options.locality_with_output = True

# A preprocessed dataset: [x0, x1] and the target.
rows = [{"x0": float(i), "x1": float(i % 3), "y": float(i % 5)} for i in range(60)]
train_dataset = ray.data.from_items(rows)
train_dataset, valid_dataset = train_dataset.train_test_split(test_size=0.2)
scaler = StandardScaler(columns=["x0", "x1"])
train_dataset = scaler.fit_transform(train_dataset)
valid_dataset = scaler.transform(valid_dataset)
concatenator = Concatenator(columns=["x0", "x1"], output_column_name="x", dtype=np.float32)
train_dataset = concatenator.transform(train_dataset).random_shuffle().materialize()
valid_dataset = concatenator.transform(valid_dataset)


class CollateFn(NumpyBatchCollateFn):
    def __call__(self, batch):
        return {name: torch.as_tensor(value, dtype=torch.float32) for name, value in batch.items()}


def train_func():
    model = ray.train.torch.prepare_model(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train_data_shard = ray.train.get_dataset_shard("train")
    train_dataloader = train_data_shard.iter_torch_batches(batch_size=8, dtypes=torch.float32)
    valid_dataloader = ray.train.get_dataset_shard("valid").iter_torch_batches(batch_size=4, collate_fn=CollateFn())
    for epoch in range(2):
        for batch in train_dataloader:
            loss = nn.functional.mse_loss(model(batch["x"]), batch["y"].unsqueeze(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rows = sum(len(batch["y"]) for batch in valid_dataloader)
        with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                torch.save(model.module.state_dict(), os.path.join(temp_checkpoint_dir, "model.pt"))
                checkpoint = Checkpoint.from_directory(temp_checkpoint_dir)
                checkpoint.set_metadata({"preprocessor": scaler.serialize()})
            ray.train.report({"loss": loss.item(), "rows": rows, "epoch": epoch}, checkpoint=checkpoint)


trainer = TorchTrainer(
    train_func,
    datasets={"train": train_dataset, "valid": valid_dataset},
    scaling_config=ScalingConfig(num_workers=2),
    dataset_config=DataConfig(datasets_to_split=["train"]),
)
result = trainer.fit()
restored = StandardScaler.deserialize(result.checkpoint.get_metadata()["preprocessor"])
assert result.metrics["rows"] == 12 and restored.columns == ["x0", "x1"]
print("GUIDE DONE")
