"""A transformers.Trainer with Ray's callback."""

import os
import tempfile

import ray.train.huggingface.transformers
from compat_record import STORAGE, described, record
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func(config):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    tokens = torch.arange(8) % 16
    rows = [{"input_ids": tokens, "labels": tokens} for _ in range(8)]
    arguments = TrainingArguments(
        output_dir=config["folder"],
        max_steps=4,
        save_steps=2,
        logging_steps=2,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.add_callback(ray.train.huggingface.transformers.RayTrainReportCallback())
    trainer = ray.train.huggingface.transformers.prepare_trainer(trainer)
    trainer.train()
    return trainer.state.global_step


if __name__ == "__main__":
    result = TorchTrainer(
        train_func,
        train_loop_config={"folder": tempfile.mkdtemp()},
        scaling_config=ScalingConfig(num_workers=1),
        run_config=RunConfig(name="transformers_fit", storage_path=STORAGE),
    ).fit()
    with result.checkpoint.as_directory() as folder:
        files = sorted(os.listdir(os.path.join(folder, "checkpoint")))
    shown = described(result)
    record(
        steps=shown["value"],
        metrics={name: shown["metrics"][name] for name in ("step", "epoch") if name in shown["metrics"]},
        names=[name for name, _ in shown["best"]],
        files=[name for name in files if name in ("config.json", "model.safetensors", "trainer_state.json")],
    )
