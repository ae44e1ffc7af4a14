"""The guide for Transformers: a Trainer over shards of datasets, with Ray's callback."""

import os

import numpy as np
import ray.data
import ray.train
import ray.train.huggingface.transformers
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

SIZES = {
    "vocab_size": 16,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 8,
    "max_position_embeddings": 8,
}


def collate(batch):
    return {name: torch.as_tensor(np.stack(value)) for name, value in batch.items()}


def train_func():
    train_ds = ray.train.get_dataset_shard("train").iter_torch_batches(batch_size=4, collate_fn=collate)
    eval_ds = ray.train.get_dataset_shard("eval").iter_torch_batches(batch_size=4, collate_fn=collate)
    training_args = TrainingArguments(
        output_dir=os.path.join(os.environ["GUIDE_FOLDER"], "output"),
        eval_strategy="epoch",
        save_strategy="epoch",
        max_steps=8,
        logging_steps=2,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(BertConfig(**SIZES)),
        args=training_args,
        train_dataset=train_ds,
        eval_dataset=eval_ds,
    )
    callback = ray.train.huggingface.transformers.RayTrainReportCallback()
    trainer.add_callback(callback)
    trainer = ray.train.huggingface.transformers.prepare_trainer(trainer)
    trainer.train()


if __name__ == "__main__":
    rows = [{"input_ids": [i % 16, 1, 2], "attention_mask": [1, 1, 1], "labels": i % 2} for i in range(32)]
    ray_trainer = TorchTrainer(
        train_func,
        scaling_config=ScalingConfig(num_workers=2),
        datasets={"train": ray.data.from_items(rows), "eval": ray.data.from_items(rows[:8])},
        run_config=RunConfig(
            name="transformers_guide", worker_runtime_env={"env_vars": {"TOKENIZERS_PARALLELISM": "false"}}
        ),
    )
    result = ray_trainer.fit()
    with result.checkpoint.as_directory() as checkpoint_dir:
        path = os.path.join(checkpoint_dir, ray.train.huggingface.transformers.RayTrainReportCallback.CHECKPOINT_NAME)
        model = BertForSequenceClassification.from_pretrained(path)
    assert model.config.hidden_size == 8 and result.metrics["step"] == 8, result.metrics
    print("GUIDE DONE")
