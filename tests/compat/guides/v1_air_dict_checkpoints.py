"""The documents of 2022 and 2023: ray.air, dict checkpoints, a preprocessor, resume_from_checkpoint."""

import ray
import ray.train as train
import torch
import torch.nn as nn
from ray import air
from ray.air import Checkpoint, session
from ray.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.data.preprocessors import Concatenator
from ray.train.torch import TorchTrainer

input_size, layer_size, output_size = 1, 15, 1


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(input_size, layer_size)
        self.relu = nn.ReLU()
        self.layer2 = nn.Linear(layer_size, output_size)

    def forward(self, input):
        return self.layer2(self.relu(self.layer1(input)))


def train_loop_per_worker(config):
    dataset_shard = session.get_dataset_shard("train")
    model = NeuralNetwork()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    epoch_start = 0
    checkpoint = session.get_checkpoint()
    if checkpoint:
        state = checkpoint.to_dict()
        model.load_state_dict(state["model_weights"])
        epoch_start = state["epoch"] + 1
    model = train.torch.prepare_model(model)
    for epoch in range(epoch_start, config["num_epochs"]):
        for batches in dataset_shard.iter_torch_batches(batch_size=32, dtypes=torch.float):
            inputs, labels = torch.unsqueeze(batches["x"], 1), torch.unsqueeze(batches["y"], 1)
            loss = nn.functional.mse_loss(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        session.report(
            {"epoch": epoch, "loss": loss.item(), "rank": session.get_world_rank()},
            checkpoint=Checkpoint.from_dict(dict(epoch=epoch, model_weights=model.module.state_dict())),
        )


def trainer(**options):
    return TorchTrainer(
        train_loop_per_worker=train_loop_per_worker,
        datasets={"train": ray.data.from_items([{"x": x, "y": 2 * x + 1} for x in range(200)])},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False, trainer_resources={"CPU": 0}),
        run_config=RunConfig(
            checkpoint_config=CheckpointConfig(num_to_keep=1),
            failure_config=FailureConfig(max_failures=1),
            verbose=1,
        ),
        **options,
    )


ray.init(ignore_reinit_error=True)
result = trainer(train_loop_config={"num_epochs": 2}).fit()
assert result.metrics["training_iteration"] == 2 and result.metrics["epoch"] == 1
assert result.checkpoint.to_dict()["epoch"] == 1
more = trainer(train_loop_config={"num_epochs": 4}, resume_from_checkpoint=result.checkpoint).fit()
assert more.metrics["epoch"] == 3 and more.metrics["training_iteration"] == 2
assert more.metrics["config"]["train_loop_config"] == {"num_epochs": 4}
copied = air.Checkpoint.from_bytes(more.checkpoint.to_bytes())
assert copied.to_dict()["epoch"] == 3
assert Concatenator is not None
print("GUIDE DONE")
