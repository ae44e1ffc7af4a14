"""The HF Trainer with HF datasets, evaluation and the best model, under Ray Train's names, and refused arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import trireme
from trireme import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
from trireme.torch import TorchTrainer

SIZES = {"vocab_size": 16, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 1}
QUIET: dict[str, Any] = {"report_to": [], "disable_tqdm": True}


def model() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel, set_seed

    set_seed(0)
    without_dropout = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    return GPT2LMHeadModel(GPT2Config(**SIZES, **without_dropout, bos_token_id=0, eos_token_id=0))


def texts(count: int) -> list[dict[str, list[int]]]:
    """The first token is no prediction: some versions count it as one."""
    rows = [[(row + i) % 16 for i in range(8)] for row in range(count)]
    return [{"input_ids": row, "labels": [-100, *row[1:]]} for row in rows]


def with_rays_names(config: dict[str, Any]) -> Any:
    """As in Ray's guide: HF datasets, evaluation every epoch, the best model at the end."""
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments

    from trireme.huggingface.transformers import RayTrainReportCallback, prepare_trainer

    arguments = TrainingArguments(
        output_dir=config["out"],
        num_train_epochs=3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        bf16=config["bf16"],
        use_cpu=True,
        learning_rate=0.05,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        **QUIET,
    )
    trainer = Trainer(
        model=model(),
        args=arguments,
        train_dataset=Dataset.from_list(texts(32)),
        eval_dataset=Dataset.from_list(texts(7)),  # not a multiple of the workers
    )
    trainer.add_callback(RayTrainReportCallback())
    trainer = prepare_trainer(trainer)
    trainer.train(resume_from_checkpoint=_folder(trireme.get_checkpoint()))
    loss = trainer.evaluate()["eval_loss"]
    everyone: list[Any] = [None, None]
    torch.distributed.all_gather_object(everyone, (loss, [each.tolist() for each in trainer.model.parameters()]))
    return everyone


def _folder(checkpoint: Any) -> str | None:
    return os.path.join(checkpoint.path, "checkpoint") if checkpoint else None


@pytest.mark.parametrize("bf16", [False, True])
def test_the_best_model_of_hf_datasets(tmp_path: Path, bf16: bool) -> None:
    result = TorchTrainer(
        with_rays_names,
        train_loop_config={"out": str(tmp_path / "out"), "bf16": bf16},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            checkpoint_config=CheckpointConfig(
                num_to_keep=1, checkpoint_score_attribute="eval_loss", checkpoint_score_order="min"
            )
        ),
    ).fit()
    (loss, weights), (other_loss, other_weights) = result.return_value
    assert weights == other_weights and loss == other_loss
    ((best, metrics),) = result.best_checkpoints
    assert metrics["eval_loss"] == pytest.approx(loss, rel=1e-5)
    assert {"loss", "eval_loss", "epoch", "step"} <= metrics.keys()
    with best.as_directory() as folder:
        from transformers import GPT2LMHeadModel

        from trireme.huggingface.transformers import RayTrainReportCallback

        stored = GPT2LMHeadModel.from_pretrained(os.path.join(folder, RayTrainReportCallback.CHECKPOINT_NAME))
    for mine, theirs in zip(stored.parameters(), weights, strict=True):
        assert mine.tolist() == theirs


def uneven(config: dict[str, Any]) -> Any:
    from transformers import Trainer, TrainingArguments

    from trireme.transformers import prepare_trainer

    arguments = TrainingArguments(output_dir=config["out"], max_steps=2, save_strategy="no", **QUIET)
    trainer = Trainer(
        model=model(),
        args=arguments,
        train_dataset=trireme.get_dataset_shard("train").iter_torch_batches(batch_size=2),
        eval_dataset=trireme.get_dataset_shard("valid").iter_torch_batches(batch_size=2),
    )
    trainer = prepare_trainer(trainer)
    trainer.train()
    predicted = trainer.predict(trainer.eval_dataset)
    return trainer.evaluate()["eval_loss"], sorted(predicted.label_ids.tolist()), loss_in_one_process(trainer.model)


def loss_in_one_process(network: Any) -> float:
    rows = [(torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])) for row in texts(9)]
    with torch.no_grad():
        return sum(float(network(input_ids=ids, labels=labels).loss) for ids, labels in rows) / len(rows)


def test_an_evaluation_set_that_workers_cannot_divide_evenly(tmp_path: Path) -> None:
    import trireme.data

    result = TorchTrainer(
        uneven,
        train_loop_config={"out": str(tmp_path / "out")},
        scaling_config=ScalingConfig(num_workers=2),
        datasets={"train": trireme.data.from_items(texts(32)), "valid": trireme.data.from_items(texts(9))},
    ).fit()
    loss, labels, expected = result.return_value
    assert labels == sorted(row["labels"] for row in texts(9))  # each row once
    assert loss == pytest.approx(expected, rel=1e-4)


def part_of_an_epoch(config: dict[str, Any]) -> list[int]:
    """The rows that all ranks have trained on, by their first token."""
    from transformers import Trainer, TrainingArguments

    from trireme.transformers import ReportCallback, prepare_trainer

    seen: list[int] = []

    class Recorded(Trainer):  # type: ignore[misc]
        def training_step(self, model: Any, inputs: Any, *more: Any) -> Any:
            seen.extend(inputs["input_ids"][:, 0].tolist())
            return super().training_step(model, inputs, *more)

    arguments = TrainingArguments(config["out"], max_steps=config["steps"], save_steps=1, use_cpu=True, **QUIET)
    batches = trireme.get_dataset_shard("train").iter_torch_batches(batch_size=2)
    trainer = prepare_trainer(Recorded(model=model(), args=arguments, train_dataset=batches))
    trainer.add_callback(ReportCallback())
    trainer.train(resume_from_checkpoint=_folder(trireme.get_checkpoint()))
    everyone: list[Any] = [None] * trireme.get_context().get_world_size()
    torch.distributed.all_gather_object(everyone, seen)
    return [row for part in everyone for row in part]


def test_batches_of_a_shard_continue_with_another_number_of_workers(tmp_path: Path) -> None:
    import trireme.data

    seen: list[int] = []
    for workers, steps in ((2, 2), (1, 6)):
        result = TorchTrainer(
            part_of_an_epoch,
            train_loop_config={"out": str(tmp_path / "out"), "steps": steps},
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(name="resized"),
            datasets={"train": trireme.data.from_items(texts(16)).random_shuffle(seed=1)},
        ).fit()
        seen += result.return_value
    assert sorted(seen) == list(range(16))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ddp_backend": "nccl"}, r"nccl is not available, please use gloo"),
        ({"bf16": True}, r"bf16.*use_cpu"),
        ({"enable_jit_checkpoint": True}, r"enable_jit_checkpoint=True\) would replace the handler of SIGTERM"),
    ],
)
def test_arguments_that_contradict_the_workers(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    def train(config: dict[str, Any]) -> None:
        from transformers import Trainer, TrainingArguments

        from trireme.transformers import prepare_trainer

        arguments = TrainingArguments(config["out"], max_steps=1, **config["options"], **QUIET)
        prepare_trainer(Trainer(model=model(), args=arguments, train_dataset=texts(8))).train()

    with pytest.raises(WorkerGroupError, match=text):
        TorchTrainer(
            train,
            train_loop_config={"out": str(tmp_path / "out"), "options": options},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(failure_config=FailureConfig(max_failures=0)),
        ).fit()
