"""A small GPT-2 with the Hugging Face Trainer."""

from __future__ import annotations

import os
from typing import Any

import torch
from harness import STEPS, Config, Steps, main, set_rank_variables
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Stamp(TrainerCallback):
    def __init__(self, done: Steps) -> None:
        self.done = done

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.done()


def train(config: Config) -> None:
    done = Steps(config, set_rank_variables(config))
    sizes = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
    arguments = TrainingArguments(
        output_dir=os.path.join(config["folder"], "output"),
        max_steps=STEPS,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
    )
    text = {"input_ids": list(range(16)), "labels": list(range(16))}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    trainer = Trainer(model=model, args=arguments, train_dataset=[text] * 1024, callbacks=[Stamp(done)])
    if config["mode"] == "trireme":
        from trireme.transformers import prepare_trainer

        trainer = prepare_trainer(trainer)
    elif config["mode"] == "ray":
        from ray.train.huggingface.transformers import prepare_trainer

        trainer = prepare_trainer(trainer)
    trainer.train()
    done.end(torch.distributed.barrier)


if __name__ == "__main__":
    main(train)
