"""The Hugging Face Trainer on two workers: a small GPT-2 learns sequences, from a dataset that the run streams."""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

import numpy as np
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import trireme
import trireme.data
from trireme import FailureConfig, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer
from trireme.transformers import ReportCallback, prepare_trainer


def sequences(count: int) -> list[dict[str, Any]]:
    """Counting upwards, from any number: what the model has to learn."""
    starts = np.random.default_rng(0).integers(0, 32, count)
    return [{"input_ids": text, "labels": text} for text in ((starts[:, None] + np.arange(8)) % 32).tolist()]


def train(config: dict[str, Any]) -> None:
    sizes = {"vocab_size": 32, "n_positions": 8, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(
        output_dir=config["folder"],
        max_steps=config["steps"],  # batches of a shard have no length
        save_steps=20,
        eval_strategy="steps",
        eval_steps=20,
        logging_steps=20,
        learning_rate=3e-3,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=trireme.get_dataset_shard("train").iter_torch_batches(batch_size=16),
        eval_dataset=trireme.get_dataset_shard("valid").iter_torch_batches(batch_size=16),
        callbacks=[ReportCallback()],
    )
    trainer = prepare_trainer(trainer)
    if checkpoint := trireme.get_checkpoint():
        with checkpoint.as_directory() as folder:
            trainer.train(resume_from_checkpoint=os.path.join(folder, "checkpoint"))
    else:
        trainer.train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--name", default=None)
    given = parser.parse_args()
    rows = trireme.data.from_items(sequences(1100))
    valid, fitted = rows.split_at_indices([100])
    with tempfile.TemporaryDirectory() as folder:
        result = TorchTrainer(
            train,
            train_loop_config={"steps": given.steps, "folder": folder},
            scaling_config=ScalingConfig(num_workers=given.num_workers),
            run_config=RunConfig(name=given.name, failure_config=FailureConfig(max_failures=1)),
            datasets={"train": fitted.random_shuffle(seed=0), "valid": valid},
        ).fit()
    print(f"evaluation loss {result.metrics['eval_loss']:.2f} after {result.metrics['step']} steps")
