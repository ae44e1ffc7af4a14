"""DeepSpeed on two workers: every ZeRO stage trains the model of one process, after a kill and with other workers."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from regression import (
    ROWS,
    Weights,
    assert_equal,
    first_time,
    fit,
    global_batches,
    in_one_process,
    network,
    rows,
)
from torch.utils.data import DataLoader

import trireme
from trireme import WorkerGroupError
from trireme.torch._deepspeed import resolved


def settings(stage: int, **more: Any) -> dict[str, Any]:
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": 0.05, "weight_decay": 0.01}},
        "gradient_clipping": 0.0,  # 1.0 by default
        "zero_optimization": {"stage": stage, "reduce_bucket_size": "auto"},
    } | more


def train(config: dict[str, Any]) -> Any:
    import deepspeed

    from trireme.deepspeed import load_checkpoint, save_checkpoint
    from trireme.torch import prepare_data_loader

    os.environ["TORCH_EXTENSIONS_DIR"] = config.get("operators", "")

    model = network(config.get("dropout", 0.0))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config["deepspeed"])
    data = prepare_data_loader(DataLoader(rows(), batch_size=4, shuffle=True))
    first = 0
    if checkpoint := trireme.get_checkpoint():
        first = load_checkpoint(engine, checkpoint)["step"]
    dtype = torch.bfloat16 if engine.bfloat16_enabled() else torch.float32
    seen: list[float] = []
    step = first
    for epoch in range(data.epoch, config.get("epochs", 2)):
        for inputs, targets in data:
            kills = config.get("kill_at") == step and engine.global_rank == 1 and first_time(config["mark"])
            if kills and config["before"] == "step":
                os.kill(os.getpid(), signal.SIGKILL)
            seen += inputs[:, 0].tolist()
            loss = (engine(inputs.to(dtype)).float() - targets).square().mean()
            engine.backward(loss)
            engine.step()
            step += 1
            saved = save_checkpoint(engine, {"step": step})
            if kills:
                os.kill(os.getpid(), signal.SIGKILL)
            trireme.report({"epoch": epoch, "step": step, "loss": loss.item()}, checkpoint=saved)
            if config.get("stop_at") == step:
                return gather(engine, seen, first)
    return gather(engine, seen, first)


def gather(engine: Any, seen: list[float], first: int) -> Any:
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        weights = {name: value.detach().float().flatten().tolist() for name, value in engine.module.named_parameters()}
    everyone: list[Any] = [None] * engine.world_size
    torch.distributed.all_gather_object(everyone, (weights, seen, first))
    return everyone


def alone(parts: list[Any]) -> Weights:
    """Plain torch in this process, on the global batches of the parts."""
    batches = global_batches([seen for _, seen, _ in parts])
    return in_one_process(batches, functools.partial(torch.optim.AdamW, lr=0.05, weight_decay=0.01))


@pytest.mark.parametrize(("stage", "before"), [(0, "step"), (1, "step"), (2, "report"), (3, "report")])
def test_a_kill_in_the_middle_of_an_epoch_changes_nothing(tmp_path: Path, stage: int, before: str) -> None:
    precision = {"bf16": {"enabled": True}} if stage in (1, 3) else {"bf16": {"enabled": "auto"}}
    config = {"deepspeed": settings(stage, **precision), "dropout": 0.5}
    undisturbed = fit(train, config, "undisturbed").return_value
    config |= {"kill_at": 5, "before": before, "mark": str(tmp_path / "mark")}
    killed = fit(train, config, "killed")
    assert (tmp_path / "mark").exists()
    assert undisturbed[0][0] == undisturbed[1][0]
    for mine, expected in zip(killed.return_value, undisturbed, strict=True):
        assert mine[0] == expected[0]
        assert mine[1] == expected[1][-len(mine[1]) :] and 0 < len(mine[1]) < len(expected[1])
        # Without the part of rank 1, the checkpoint of the sixth step was not committed.
        assert mine[2] in ((4, 5) if before == "step" else (5,))
    with killed.checkpoint.as_directory() as folder:
        names = {path.name for path in Path(folder).rglob("*.pt")}
    parts = {f"{'bf16_' if stage in (1, 3) else ''}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1)}
    assert parts <= names if stage else "mp_rank_00_model_states.pt" in names


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_model_is_that_of_one_process_and_another_number_of_workers_continues(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], stage: int
) -> None:
    file = tmp_path / "deepspeed.json"
    file.write_text(json.dumps(settings(stage)))
    operators = tmp_path / "compiled"
    first = fit(train, {"deepspeed": str(file), "stop_at": 2, "operators": str(operators)}).return_value
    assert not operators.exists()  # DeepSpeed compiles into it
    assert capfd.readouterr().out.count("AdamW of the config is torch's on CPUs") == 1
    assert first[0][0] == first[1][0]
    assert_equal(first[0][0], alone(first), rtol=1e-4, atol=1e-5)
    # One worker takes the rest of the epoch: twice as many steps of half the size.
    ((_, rest, begin),) = fit(train, {"deepspeed": str(file), "epochs": 1}, workers=1).return_value
    seen = [value for _, part, _ in first for value in part]
    assert begin == 2 and len(seen) == 16
    assert sorted([*seen, *rest]) == sorted(rows().tensors[0][:, 0].tolist())


def with_sgd(config: dict[str, Any]) -> Any:
    """One step, or the error and the weights of loading it."""
    import deepspeed

    from trireme.deepspeed import load_checkpoint, save_checkpoint

    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05)
    zero = settings(config["stage"]) | {"zero_allow_untested_optimizer": True}
    del zero["optimizer"]
    engine, *_ = deepspeed.initialize(model=model, optimizer=sgd, config=zero)
    problem = ""
    if checkpoint := trireme.get_checkpoint():
        try:
            load_checkpoint(engine, checkpoint)
        except RuntimeError as error:
            problem = str(error)
        if config["stage"] < 3:
            assert load_checkpoint(engine, checkpoint, load_module_only=True) == {"step": 1}
    else:
        inputs, targets = rows()[:4]
        engine.backward((engine(inputs) - targets).square().mean())
        engine.step()
        trireme.report({}, checkpoint=save_checkpoint(engine, {"step": 1}))
    ((weights, *_), *_) = gather(engine, [], 0)
    return problem, weights


@pytest.mark.parametrize("stage", [2, 3])
def test_what_deepspeed_cannot_convert_is_refused_with_the_reason(stage: int) -> None:
    _, weights = fit(with_sgd, {"stage": stage}).return_value
    problem, loaded = fit(with_sgd, {"stage": stage}, workers=1).return_value
    reason = {2: "KeyError('exp_avg')", 3: "KeyError(0)"}[stage]  # it converts states of Adam
    assert f"was written by 2 workers, and DeepSpeed cannot load it with 1: {reason}" in problem
    if stage == 3:
        assert problem.endswith("or collect the weights with the checkpoint's zero_to_fp32.py")
    else:
        assert problem.endswith("or pass load_module_only=True to load only the weights")
        assert loaded == weights


def over_shard(config: dict[str, Any]) -> Any:
    import deepspeed

    from trireme.deepspeed import load_checkpoint, save_checkpoint

    model = network()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings(2))
    shard = trireme.get_dataset_shard("train")
    checkpoint = trireme.get_checkpoint()
    if checkpoint:
        load_checkpoint(engine, checkpoint)
    seen: list[int] = []
    for step, batch in enumerate(shard.iter_torch_batches(batch_size=4)):
        if config["kill"] and step == 4 and not checkpoint:
            assert len(trireme.get_all_reported_checkpoints()) == 4  # when they are stored
            if engine.global_rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        seen += batch["id"].tolist()
        inputs = batch["id"].float().reshape(-1, 1) / 48
        engine.backward((engine(inputs.repeat(1, 4)) - inputs).square().mean())
        engine.step()
        mode = trireme.CheckpointUploadMode.ASYNC
        trireme.report({}, checkpoint=save_checkpoint(engine), checkpoint_upload_mode=mode)
    return gather(engine, seen, 0)


def test_dataset_shards_resume_from_a_checkpoint_stored_in_the_background() -> None:
    whole, killed = (
        fit(over_shard, {"kill": kill}, f"shard_{kill}", datasets={"train": trireme.data.range(48)})
        for kill in (False, True)
    )
    seen = [part for _, part, _ in whole.return_value]
    assert sorted(row for part in seen for row in part) == list(range(48))
    for (weights, part, _), expected in zip(killed.return_value, whole.return_value, strict=True):
        assert weights == expected[0]
        assert part == expected[1][16:]


def with_training_data(config: dict[str, Any]) -> Any:
    """DeepSpeed makes the loader, as in its tutorials."""
    import deepspeed

    from trireme.deepspeed import load_checkpoint, save_checkpoint

    model = network()
    engine, _, loader, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), training_data=rows(), config=settings(1)
    )
    if checkpoint := trireme.get_checkpoint():
        load_checkpoint(engine, checkpoint)
    seen: list[float] = []
    for _ in range(loader.epoch, 2):
        for inputs, targets in loader:
            if config["kill"] and len(seen) == 20 and engine.global_rank == 1 and first_time(config["mark"]):
                os.kill(os.getpid(), signal.SIGKILL)
            seen += inputs[:, 0].tolist()
            engine.backward((engine(inputs) - targets).square().mean())
            engine.step()
            trireme.report({}, checkpoint=save_checkpoint(engine))
    assert len(loader) == 4
    return gather(engine, seen, 0)


def test_the_loader_of_training_data_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    config = {"mark": str(tmp_path / "mark")}
    whole, killed = (
        fit(with_training_data, config | {"kill": kill}, f"data_{kill}").return_value for kill in (False, True)
    )
    assert (tmp_path / "mark").exists()
    first, second = ([value for _, seen, _ in whole for value in seen[begin : begin + 16]] for begin in (0, 16))
    assert sorted(first) == sorted(second) == sorted(rows().tensors[0][:, 0].tolist()) and first != second
    for mine, expected in zip(killed, whole, strict=True):
        assert mine[0] == expected[0]
        assert mine[1] == expected[1][-len(mine[1]) :] and 0 < len(mine[1]) < len(expected[1])


def test_a_script_of_the_deepspeed_launcher_runs_under_trireme_launch(tmp_path: Path) -> None:
    script, config = tmp_path / "script.py", tmp_path / "deepspeed.json"
    config.write_text(json.dumps(settings(1)))
    script.write_text(
        "import argparse, deepspeed, torch\n"
        "parser = deepspeed.add_config_arguments(argparse.ArgumentParser())\n"
        "deepspeed.init_distributed()\n"
        "torch.manual_seed(0)\n"
        "model = torch.nn.Linear(1, 1, bias=False)\n"
        "args, weights = parser.parse_args(), model.parameters()\n"
        "engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=weights)\n"
        "engine.backward((engine(torch.full((4, 1), 1.0 + engine.global_rank)) - 2).square().mean())\n"
        "engine.step()\n"
        "every = [torch.zeros(1, 1) for _ in range(engine.world_size)]\n"
        "torch.distributed.all_gather(every, model.weight.detach())\n"
        "print('trained', engine.train_batch_size(), len({each.item() for each in every}))\n"
    )
    command = [str(Path(sys.executable).parent / "trireme"), "launch", "-n", "2", str(script)]
    command += ["--deepspeed", "--deepspeed_config", str(config)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trained 8 1" in done.stdout


def test_batch_sizes_follow_from_the_workers() -> None:
    made = resolved(settings(2, bf16={"enabled": "auto"}), 3)
    assert (made["train_batch_size"], made["gradient_accumulation_steps"]) == (12, 1)
    assert made["bf16"] == {} and made["zero_optimization"] == {"stage": 2}
    sizes = {"train_batch_size": 24, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2}
    assert resolved(sizes, 3)["train_micro_batch_size_per_gpu"] == 4
    sizes = {"train_batch_size": 24, "train_micro_batch_size_per_gpu": 4}
    assert resolved(sizes, 3)["gradient_accumulation_steps"] == 2


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        (
            (24, 4, 2),
            "=24 is not 4 (train_micro_batch_size_per_gpu) x 2 (gradient_accumulation_steps) x 2 (workers) = 16",
        ),
        ((10, 4, None), "=10 is not a multiple of 4 (train_micro_batch_size_per_gpu) x 2 (workers) = 8"),
        ((9, "auto", None), "train_batch_size=9 is not a multiple of 2 (workers); change"),
        (("auto", "auto", 2), "so the batch size is unknown"),
        ((8, 0, None), "train_micro_batch_size_per_gpu is 0; expected a positive integer"),
        ((8, "4", None), "train_micro_batch_size_per_gpu is '4'"),
    ],
)
def test_batch_sizes_that_contradict_the_workers_are_an_error(sizes: tuple[Any, Any, Any], problem: str) -> None:
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    with pytest.raises(ValueError, match=re.escape(problem)):
        resolved(dict(zip(names, sizes, strict=True)), 2)


def test_refused_calls() -> None:
    def refused(config: dict[str, Any]) -> list[str]:
        import deepspeed

        from trireme import Checkpoint
        from trireme.deepspeed import load_checkpoint, save_checkpoint

        model = network()

        def start(**more: Any) -> Any:
            return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings(0, **more))[0]

        engine = start()
        texts = []
        for call in (
            lambda: start(train_batch_size=10),
            lambda: start(optimizer={"type": "AdamW", "params": {"lr": "auto"}}),
            lambda: save_checkpoint(model),
            lambda: save_checkpoint(engine, [1]),  # type: ignore[arg-type]
            lambda: load_checkpoint(engine, Checkpoint.from_dict({"step": 1})),
        ):
            try:
                call()
            except (TypeError, ValueError) as error:
                texts.append(str(error))
        return texts

    texts = fit(refused, {}).return_value
    for text, part in zip(
        texts,
        ["train_batch_size=10 is not", "lr is 'auto'", "got Sequential", "expects a dict", "was not written by"],
        strict=True,
    ):
        assert part in text


def test_workers_that_would_train_alone_are_an_error() -> None:
    def separate(config: dict[str, Any]) -> None:
        import deepspeed

        torch.distributed.destroy_process_group()
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        model = network()
        deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings(0))

    with pytest.raises(WorkerGroupError, match="DeepSpeed has found 1 process and the run has 2 workers"):
        fit(separate, {})


def test_the_transformers_trainer_with_deepspeed(tmp_path: Path) -> None:
    def transformers(config: dict[str, Any]) -> Any:
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

        from trireme.transformers import ReportCallback, prepare_trainer

        set_seed(0)
        size = {"vocab_size": 32, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
        model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
        zero = {
            "train_batch_size": "auto",
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
            "zero_optimization": {"stage": 2},
        }
        arguments = TrainingArguments(
            output_dir=config["out"], deepspeed=zero, per_device_train_batch_size=4, max_steps=4, save_steps=2,
            report_to=[], disable_tqdm=True,
        )  # fmt: skip
        texts = torch.randint(0, 32, (ROWS, 8), generator=torch.Generator().manual_seed(1))
        data = [{"input_ids": text, "labels": text} for text in texts]
        trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[ReportCallback()])
        prepare_trainer(trainer).train()
        weights = [value.detach().float().sum().item() for value in trainer.model.parameters()]
        everyone: list[Any] = [None, None]
        torch.distributed.all_gather_object(everyone, (weights, trainer.accelerator.distributed_type.value))
        return everyone

    result = fit(transformers, {"out": str(tmp_path / "out")})
    first, second = result.return_value
    assert first == second and first[1] == "DEEPSPEED"
    with result.checkpoint.as_directory() as folder:
        names = {path.name for path in Path(folder).rglob("*optim_states.pt")}
    assert len(names) == 2
