"""Training functions as Ray Train's guides for Accelerate and DeepSpeed write them, with changed imports only.

Those of Lightning and Transformers are in test_lightning_strategies.py and test_transformers_data.py.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from regression import first_time

import trireme
import trireme.data
from trireme import Checkpoint, DataConfig, FailureConfig, RunConfig, ScalingConfig
from trireme.torch import TorchTrainer

ROWS = 40
SIZES = {
    "vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8,
    "max_position_embeddings": 8,
}  # fmt: skip


def classifier() -> Any:
    from transformers import BertConfig, BertForSequenceClassification, set_seed

    set_seed(0)
    return BertForSequenceClassification(BertConfig(**SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def collate(batch: Any) -> dict[str, torch.Tensor]:
    """Rows have different lengths, as sentences."""
    longest = max(len(tokens) for tokens in batch["tokens"])
    ids = torch.tensor([[*tokens, *[0] * (longest - len(tokens))] for tokens in batch["tokens"]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.LongTensor(batch["label"])}


def with_accelerate(config: dict[str, Any]) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator()
    train = trireme.get_dataset_shard("train").iter_torch_batches(batch_size=4, collate_fn=collate)
    valid = trireme.get_dataset_shard("validation").iter_torch_batches(batch_size=4, collate_fn=collate)
    model = classifier()
    optimizer = torch.optim.AdamW(params=model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    first = 0
    if checkpoint := trireme.get_checkpoint():
        with checkpoint.as_directory() as folder:
            (name,) = (name for name in os.listdir(folder) if name.endswith(".bin"))
            state = torch.load(os.path.join(folder, name), weights_only=False)
        accelerator.unwrap_model(model).load_state_dict(state.state_dict())
        first = int(name.removesuffix(".bin").removeprefix("ckpt_")) + 1
    for epoch in range(first, 2):
        model.train()
        for batch in train:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        die_once(config, epoch)
        model.eval()
        right = rows = 0
        for batch in valid:
            with torch.no_grad():
                predicted = model(**batch).logits.argmax(dim=-1)
            predicted, labels = accelerator.gather_for_metrics((predicted, batch["labels"]))
            right, rows = right + int((predicted == labels).sum()), rows + len(labels)
        with TemporaryDirectory() as folder:
            accelerator.save(accelerator.unwrap_model(model), f"{folder}/ckpt_{epoch}.bin")
            metrics = {"accuracy": right / rows, "rows": rows, "epoch": epoch}
            trireme.report(metrics=metrics, checkpoint=Checkpoint.from_directory(folder))


def with_deepspeed(config: dict[str, Any]) -> None:
    import deepspeed
    from deepspeed.accelerator import get_accelerator
    from torchmetrics.classification import BinaryAccuracy

    model = classifier()
    train = trireme.get_dataset_shard("train").iter_torch_batches(batch_size=4, collate_fn=collate)
    valid = trireme.get_dataset_shard("validation").iter_torch_batches(batch_size=4, collate_fn=collate)
    zero = {
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4}},
        "zero_optimization": {
            "stage": 3, "offload_optimizer": {"device": "none"}, "offload_param": {"device": "none"},
        },
        "gradient_accumulation_steps": 1,
        "gradient_clipping": True,
        "train_micro_batch_size_per_gpu": 4,
    }  # fmt: skip
    model, optimizer, _, schedule = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=zero)
    device = get_accelerator().device_name(model.local_rank)
    accuracy = BinaryAccuracy().to(device)
    first = 0
    if checkpoint := trireme.get_checkpoint():
        with checkpoint.as_directory() as folder:
            _, state = model.load_checkpoint(folder)
        first = state["epoch"] + 1
    for epoch in range(first, 2):
        model.train()
        for batch in train:
            batch = {name: value.to(device) for name, value in batch.items()}
            model.backward(model(**batch).loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        die_once(config, epoch)
        model.eval()
        rows = 0
        for batch in valid:
            with torch.no_grad():
                predicted = model(**batch).logits.argmax(dim=-1)
            accuracy.update(predicted, batch["labels"])
            rows += 2 * len(batch["labels"])
        metrics = {"accuracy": accuracy.compute().item(), "rows": rows, "epoch": epoch}
        accuracy.reset()
        with TemporaryDirectory() as folder:
            model.save_checkpoint(folder, client_state={"epoch": epoch})
            torch.distributed.barrier()
            trireme.report(metrics=metrics, checkpoint=Checkpoint.from_directory(folder))


def die_once(config: dict[str, Any], epoch: int) -> None:
    if epoch == 1 and trireme.get_context().get_world_rank() == 1 and first_time(config["mark"]):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("train", [with_accelerate, with_deepspeed])
def test_a_guide_of_ray_train(tmp_path: Path, train: Any) -> None:
    rows = [{"tokens": [1 + (row + at) % 7 for at in range(2 + row % 3)], "label": row % 2} for row in range(ROWS)]
    trainer = TorchTrainer(
        train,
        train_loop_config={"mark": str(tmp_path / "mark")},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=1)),
        datasets={"train": trireme.data.from_items(rows), "validation": trireme.data.from_items(rows[:16])},
        dataset_config=DataConfig(datasets_to_split=["train", "validation"]),
    )
    result = trainer.fit()
    assert (tmp_path / "mark").exists()
    assert result.metrics["epoch"] == 1 and result.metrics["rows"] == 16
    assert len(result.best_checkpoints) == 2
    with result.checkpoint.as_directory() as folder:
        names = {path.name for path in Path(folder).rglob("*") if path.is_file()}
    if train is with_deepspeed:
        assert {f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1)} | {"latest"} <= names
    else:
        assert "ckpt_1.bin" in names
