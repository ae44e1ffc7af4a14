"""The HF Trainer on two workers: one model, the same after a kill, datasets of the run, refused arguments."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from regression import first_time, fit
from torch.utils.data import IterableDataset

import trireme
from trireme import CheckpointUploadMode, ScalingConfig, WorkerGroupError
from trireme.torch import TorchTrainer

ROWS = 32


def texts() -> torch.Tensor:
    return torch.randint(0, 32, (ROWS, 8), generator=torch.Generator().manual_seed(1))


def model() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel, set_seed

    set_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        )
    )  # fmt: skip


class Stream(IterableDataset):  # type: ignore[misc]
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def arguments(config: dict[str, Any]) -> Any:
    from transformers import TrainingArguments

    options: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "num_train_epochs": 2,
        "save_steps": 3,
        "logging_steps": 1,
        "learning_rate": 0.01,
        "report_to": [],
        "disable_tqdm": True,
    }
    return TrainingArguments(output_dir=config["out"], **(options | config.get("arguments", {})))


def train(config: dict[str, Any]) -> Any:
    from transformers import Trainer, TrainerCallback

    from trireme.transformers import ReportCallback, prepare_trainer

    class Kill(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            rank = trireme.get_context().get_world_rank()
            if config.get("kill_at") == state.global_step and rank == 1 and first_time(config["out"] + "_mark"):
                os.kill(os.getpid(), signal.SIGKILL)

    network = model()
    if config.get("shards"):
        data: Any = trireme.get_dataset_shard("train").iter_torch_batches(batch_size=4)
        valid: Any = {
            name: trireme.get_dataset_shard(name).iter_torch_batches(batch_size=4) for name in ("valid", "other")
        }
    else:
        data = [{"input_ids": text, "labels": text} for text in texts()]
        valid = data[:8]
        data = Stream(data) if config.get("stream") else data
    report = ReportCallback(**config.get("report", {}))
    trainer = prepare_trainer(
        Trainer(
            model=network,
            args=arguments(config),
            train_dataset=data,
            eval_dataset=valid,
            callbacks=[report, Kill()],
        )
    )
    if checkpoint := trireme.get_checkpoint():
        with checkpoint.as_directory() as folder:
            trainer.train(resume_from_checkpoint=os.path.join(folder, "checkpoint"))
    else:
        trainer.train()
    weights = [whole(parameter) for parameter in network.parameters()]
    everyone: list[Any] = [None] * trireme.get_context().get_world_size()
    torch.distributed.all_gather_object(everyone, weights)
    return everyone


def whole(parameter: torch.Tensor) -> list[float]:
    from torch.distributed.tensor import DTensor

    value = parameter.detach()
    return (value.full_tensor() if isinstance(value, DTensor) else value).flatten().tolist()


@pytest.mark.parametrize("mode", list(CheckpointUploadMode)[:2])
def test_a_kill_in_the_middle_of_an_epoch_changes_nothing(tmp_path: Path, mode: CheckpointUploadMode) -> None:
    report = {"checkpoint_upload_mode": mode}
    # With the limit, the HF Trainer deletes folders that may still be uploaded.
    config = {"report": report, "arguments": {"save_total_limit": 1}}
    undisturbed = fit(train, config | {"out": str(tmp_path / "a")}, "undisturbed")
    killed = fit(train, config | {"out": str(tmp_path / "b"), "kill_at": 7}, "killed")
    assert (tmp_path / "b_mark").exists()
    first, second = undisturbed.return_value
    assert first == second
    assert killed.return_value == undisturbed.return_value
    assert killed.metrics["step"] == undisturbed.metrics["step"] == 8
    assert killed.metrics["loss"] == undisturbed.metrics["loss"]
    with undisturbed.checkpoint.as_directory() as folder:
        names = {path.name for path in Path(folder, "checkpoint").iterdir()}
    assert {"model.safetensors", "optimizer.pt", "trainer_state.json", "rng_state_0.pth", "rng_state_1.pth"} <= names
    assert not [path for path in (tmp_path / "a").iterdir() if path.name.startswith(".trireme_")]


def test_fsdp_trains_the_same_model_also_after_a_kill(tmp_path: Path) -> None:
    """On CPUs, Accelerate would silently keep the whole model on every worker."""
    config: dict[str, Any] = {"arguments": {"fsdp": True}}
    undisturbed = fit(train, config | {"out": str(tmp_path / "a")}, "undisturbed").return_value
    killed = fit(train, config | {"out": str(tmp_path / "b"), "kill_at": 7}, "killed")
    assert (tmp_path / "b_mark").exists()
    assert killed.return_value == undisturbed and undisturbed[0] == undisturbed[1]
    (replicated, _) = fit(train, {"out": str(tmp_path / "c")}, "replicated").return_value
    for mine, theirs in zip(undisturbed[0], replicated, strict=True):
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), rtol=1e-4, atol=1e-5)
    with killed.checkpoint.as_directory() as folder:
        assert any(path.name.startswith("pytorch_model_fsdp") for path in Path(folder, "checkpoint").iterdir())


def test_a_stream_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    config = {"stream": True, "arguments": {"max_steps": 8}}
    undisturbed = fit(train, config | {"out": str(tmp_path / "a")}, "undisturbed").return_value
    killed = fit(train, config | {"out": str(tmp_path / "b"), "kill_at": 7}, "killed").return_value
    assert (tmp_path / "b_mark").exists()
    assert killed == undisturbed and killed[0] == killed[1]


def test_shards_as_datasets(tmp_path: Path) -> None:
    import trireme.data

    def rows() -> trireme.data.Dataset:
        return trireme.data.from_items([{"input_ids": text, "labels": text} for text in texts().tolist()])

    config: dict[str, Any] = {"shards": True, "arguments": {"max_steps": 8, "eval_strategy": "steps", "eval_steps": 4}}
    results = {}
    for name, kill_at in (("undisturbed", None), ("killed", 7)):
        results[name] = fit(
            train,
            config | {"out": str(tmp_path / name), "kill_at": kill_at},
            name,
            datasets={"train": rows().random_shuffle(seed=1), "valid": rows().limit(8), "other": rows().limit(16)},
        )
    first, second = results["undisturbed"].return_value
    assert first == second
    assert results["killed"].return_value == results["undisturbed"].return_value
    assert {"eval_valid_loss", "eval_other_loss"} <= results["killed"].metrics.keys()


def test_the_model_is_that_of_one_process_on_the_same_global_batches(tmp_path: Path) -> None:
    """The HF Trainer divides batches so that one process with batches of twice the size has the same."""
    from transformers import Trainer

    options = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5}
    first, second = fit(train, {"out": str(tmp_path / "a"), "arguments": options}).return_value
    assert first == second
    alone = model()
    options |= {"per_device_train_batch_size": 8, "use_cpu": True, "save_strategy": "no"}
    data = [{"input_ids": text, "labels": text} for text in texts()]
    given = arguments({"out": str(tmp_path / "b"), "arguments": options})
    Trainer(model=alone, args=given, train_dataset=data).train()
    for mine, theirs in zip(first, alone.parameters(), strict=True):
        torch.testing.assert_close(torch.tensor(mine), theirs.detach().flatten(), rtol=1e-4, atol=1e-5)


def test_workers_that_would_train_alone_are_an_error(tmp_path: Path) -> None:
    def alone(config: dict[str, Any]) -> None:
        os.environ["ACCELERATE_USE_CPU"] = "false"
        arguments(config).device  # noqa: B018

    with pytest.raises(WorkerGroupError, match=r"Accelerate has found 1 process and the run has 2 workers"):
        TorchTrainer(alone, train_loop_config={"out": str(tmp_path)}, scaling_config=ScalingConfig(num_workers=2)).fit()
