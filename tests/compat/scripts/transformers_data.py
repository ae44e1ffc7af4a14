"""A transformers.Trainer on two workers with datasets of Ray: prepare_trainer, evaluation, resumption."""

import os
import tempfile

import ray.data
import ray.train
import ray.train.huggingface.transformers
from compat_record import STORAGE, described, record
from ray.train import CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func(config):
    import numpy
    import torch
    from transformers import GPT2Config, GPT2ForSequenceClassification, Trainer, TrainingArguments

    torch.manual_seed(0)
    sizes = GPT2Config(
        vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1, num_labels=2, pad_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2ForSequenceClassification(sizes)

    def collate(batch):
        return {
            "input_ids": torch.as_tensor(numpy.stack(list(batch["input_ids"]))).long(),
            "labels": torch.as_tensor(batch["labels"]).long(),
        }

    train = ray.train.get_dataset_shard("train").iter_torch_batches(batch_size=2, collate_fn=collate)
    valid = ray.train.get_dataset_shard("valid").iter_torch_batches(batch_size=2, collate_fn=collate)
    arguments = TrainingArguments(
        output_dir=os.path.join(config["folder"], "out"),
        max_steps=8,
        eval_strategy="steps",
        save_strategy="steps",
        logging_strategy="steps",
        eval_steps=4,
        save_steps=4,
        logging_steps=4,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        seed=0,
        learning_rate=1e-2,
        ddp_backend="gloo",
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=train, eval_dataset=valid)
    trainer.add_callback(ray.train.huggingface.transformers.RayTrainReportCallback())
    trainer = ray.train.huggingface.transformers.prepare_trainer(trainer)
    trainer.train()
    losses = [each["eval_loss"] for each in trainer.state.log_history if "eval_loss" in each]
    return [trainer.state.global_step, len(losses), losses[-1] < losses[0], trainer.args.world_size]


if __name__ == "__main__":
    rows = [{"input_ids": [1 + (i + j) % 2 * 5 for j in range(4)], "labels": i % 2} for i in range(16)]
    result = TorchTrainer(
        train_func,
        train_loop_config={"folder": tempfile.mkdtemp()},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name="transformers_data", storage_path=STORAGE, checkpoint_config=CheckpointConfig(num_to_keep=1)
        ),
        datasets={"train": ray.data.from_items(rows), "valid": ray.data.from_items(rows[:8])},
    ).fit()
    shown = described(result)
    with result.checkpoint.as_directory() as folder:
        files = sorted(os.listdir(os.path.join(folder, "checkpoint")))
    record(
        value=shown["value"],
        steps={name: shown["metrics"].get(name) for name in ("step", "epoch")},
        keys=sorted(name for name in shown["metrics"] if name not in ("step", "epoch")),
        names=[name for name, _ in shown["best"]],
        columns=shown["columns"],
        files=files,
    )
