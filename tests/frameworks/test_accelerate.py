"""Accelerate on two workers: one model, the same as in one process, the same after a kill; plugins and config files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from regression import ROWS, assert_equal, first_time, fit, global_batches, in_one_process, network, rows
from torch.utils.data import DataLoader, IterableDataset

import trireme
from trireme import WorkerGroupError


class Stream(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Iterator[Any]:
        return iter([rows()[index] for index in range(ROWS)])


def plugin(name: str | None) -> dict[str, Any]:
    from accelerate import DeepSpeedPlugin, FullyShardedDataParallelPlugin

    if name in ("fsdp1", "fsdp2"):
        return {"fsdp_plugin": FullyShardedDataParallelPlugin(fsdp_version=int(name[-1]))}
    if name == "deepspeed":
        zero: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": 4,
            "gradient_clipping": 0.0,  # DeepSpeedPlugin(gradient_clipping=0.0) leaves DeepSpeed's default, which is 1.0
            "zero_optimization": {"stage": 2},
        }
        return {"deepspeed_plugin": DeepSpeedPlugin(hf_ds_config=zero)}
    return {}


def train(config: dict[str, Any]) -> Any:
    """Every step is a report. Returns what each rank has seen, and the weights."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    from trireme.accelerate import load_state, save_state

    loaders = DataLoaderConfiguration(**config.get("loaders", {}))
    accelerator = Accelerator(
        dataloader_config=loaders, **plugin(config.get("plugin")), **config.get("accelerator", {})
    )
    model = network(config.get("dropout", 0.0))
    if config.get("plugin") == "fsdp1":  # it replaces the parameters
        model = accelerator.prepare(model)
    optimizer = adam(model.parameters())
    data: Any = DataLoader(Stream(), batch_size=4) if config.get("stream") else DataLoader(rows(), 4, shuffle=True)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    if checkpoint := trireme.get_checkpoint():
        load_state(accelerator, checkpoint)
    if accelerator.log_with:
        accelerator.init_trackers("digits")
    seen: list[float] = []
    for epoch in range(data.iteration, config.get("epochs", 2)):
        for inputs, targets in data:
            kills = config.get("kill_at") == len(seen) // 4 and accelerator.process_index == 1
            if kills and first_time(config["mark"]):
                os.kill(os.getpid(), signal.SIGKILL)
            seen += inputs[:, 0].tolist()
            with accelerator.accumulate(model):
                loss = (model(inputs) - targets).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                accelerator.log({"loss": loss.item()})
                trireme.report({"epoch": epoch, "loss": loss.item()}, checkpoint=save_state(accelerator))
            if config.get("stop_at") == len(seen) // 4:
                return gather(accelerator, model, seen)
    return gather(accelerator, model, seen)


def gather(accelerator: Any, model: Any, seen: list[float]) -> Any:
    everyone: list[Any] = [None] * accelerator.num_processes
    mine = (weights_of(accelerator, model), seen, accelerator.distributed_type.value)
    torch.distributed.all_gather_object(everyone, mine)
    return everyone


def weights_of(accelerator: Any, model: Any) -> dict[str, list[float]]:
    from torch.distributed.tensor import DTensor

    kind = accelerator.distributed_type.value
    if kind == "FSDP" and not accelerator.is_fsdp2:
        from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            state = model.state_dict()
    else:
        state = accelerator.unwrap_model(model).state_dict()
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).float().flatten().tolist()
        for name, value in state.items()
    }


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.05)


def global_batches_of(parts: list[Any]) -> list[list[float]]:
    return global_batches([seen for _, seen, _ in parts])


@pytest.mark.parametrize("kind", [None, "fsdp1", "fsdp2", "deepspeed"])
def test_the_model_is_that_of_one_process_on_the_same_global_batches(kind: str | None) -> None:
    result = fit(train, {"plugin": kind})
    parts = result.return_value
    assert parts[0][0] == parts[1][0]
    assert parts[0][2] == {None: "MULTI_CPU", "deepspeed": "DEEPSPEED"}.get(kind, "FSDP")
    inputs = sorted(rows().tensors[0][:, 0].tolist())
    for epoch in range(2):
        assert sorted(value for _, seen, _ in parts for value in seen[epoch * 16 : epoch * 16 + 16]) == inputs
    assert_equal(parts[0][0], in_one_process(global_batches_of(parts), adam))


def test_gradients_are_accumulated_and_rank_zero_logs_to_tensorboard(tmp_path: Path) -> None:
    options = {"gradient_accumulation_steps": 2, "log_with": "tensorboard", "project_dir": str(tmp_path)}
    result = fit(train, {"accelerator": options, "epochs": 1})
    parts = result.return_value
    assert parts[0][0] == parts[1][0]
    assert result.metrics["epoch"] == 0
    assert len([path for path in tmp_path.rglob("events.out.tfevents.*") if path.parent.name == "digits"]) == 1
    assert_equal(parts[0][0], in_one_process(global_batches_of(parts), adam, every=2))


@pytest.mark.parametrize(
    "config",
    [
        {"dropout": 0.5},
        {"loaders": {"use_seedable_sampler": True}, "accelerator": {"mixed_precision": "bf16"}},
        {"plugin": "fsdp1"},
        {"plugin": "fsdp2"},
        {"plugin": "deepspeed"},
        {"stream": True},
        {"stream": True, "loaders": {"dispatch_batches": False}},
        {"loaders": {"use_stateful_dataloader": True}},
    ],
    ids=["ddp", "seedable_bf16", "fsdp1", "fsdp2", "deepspeed", "stream", "stream read by all", "stateful"],
)
def test_a_kill_in_the_middle_of_an_epoch_changes_nothing(tmp_path: Path, config: dict[str, Any]) -> None:
    undisturbed = fit(train, config, "undisturbed").return_value
    killed = fit(train, config | {"kill_at": 6, "mark": str(tmp_path / "mark")}, "killed").return_value
    assert (tmp_path / "mark").exists()
    for mine, expected in zip(killed, undisturbed, strict=True):
        assert mine[0] == expected[0]
        assert mine[1] == expected[1][-len(mine[1]) :] and 0 < len(mine[1]) < len(expected[1])


def test_a_run_resumes_twice_in_an_epoch_and_with_another_number_of_workers() -> None:
    seen = []
    for _ in range(2):
        seen += [value for _, part, _ in fit(train, {"stop_at": 1}).return_value for value in part]
    ((_, rest, _),) = fit(train, {"epochs": 1}, workers=1).return_value
    assert len(seen) == 16
    assert sorted([*seen, *rest]) == sorted(rows().tensors[0][:, 0].tolist())


def over_shard(config: dict[str, Any]) -> Any:
    from accelerate import Accelerator

    from trireme.accelerate import load_state, save_state

    accelerator = Accelerator()
    model = network()
    model, optimizer = accelerator.prepare(model, adam(model.parameters()))
    batches = trireme.get_dataset_shard("train").iter_torch_batches(batch_size=4)
    checkpoint = trireme.get_checkpoint()
    if checkpoint:
        load_state(accelerator, checkpoint)
    seen: list[int] = []
    for step, batch in enumerate(accelerator.prepare(batches)):
        if config["kill"] and step == 4 and accelerator.process_index == 1 and not checkpoint:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += batch["id"].tolist()
        inputs = batch["id"].float().reshape(-1, 1) / 48
        accelerator.backward((model(inputs.repeat(1, 4)) - inputs).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        trireme.report({}, checkpoint=save_state(accelerator))
    return gather(accelerator, model, seen)


def test_dataset_shards_resume_in_the_middle_of_an_epoch() -> None:
    whole, killed = (
        fit(over_shard, {"kill": kill}, f"shard_{kill}", datasets={"train": trireme.data.range(48)})
        for kill in (False, True)
    )
    seen = [part for _, part, _ in whole.return_value]
    assert sorted(row for part in seen for row in part) == list(range(48))
    for (weights, part, _), expected in zip(killed.return_value, whole.return_value, strict=True):
        assert weights == expected[0]
        assert part == expected[1][-len(part) :] and 0 < len(part) < len(expected[1])


CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: NO_WRAP
  fsdp_state_dict_type: SHARDED_STATE_DICT
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
use_cpu: false
"""


def test_a_config_file_sets_the_model_and_must_fit_the_workers(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(CONFIG)
    bad.write_text(CONFIG.replace("num_processes: 2", "num_processes: 8") + "main_process_ip: 10.0.0.7\n")

    def configured(config: dict[str, Any]) -> Any:
        from accelerate import Accelerator

        from trireme.accelerate import load_config

        problem = ""
        try:
            load_config(config["bad"])
        except ValueError as error:
            problem = str(error)
        load_config(config["good"])
        accelerator = Accelerator()
        return accelerator.distributed_type.value, accelerator.mixed_precision, accelerator.is_fsdp2, problem

    files = {"good": str(good), "bad": str(bad)}
    kind, precision, version_two, problem = fit(configured, files).return_value
    assert (kind, precision, version_two) == ("FSDP", "bf16", True)
    assert "num_processes=8, and the run has 2" in problem
    assert "main_process_ip='10.0.0.7', and workers use the run's own connection" in problem


def test_a_script_of_accelerate_launch_runs_under_trireme_launch(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from accelerate import Accelerator\n"
        "import torch\n"
        "accelerator = Accelerator()\n"
        "rank = accelerator.gather(torch.tensor([accelerator.process_index]))\n"
        "print('found', accelerator.num_processes, rank.tolist(), accelerator.mixed_precision)\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text("distributed_type: MULTI_CPU\nmixed_precision: bf16\nnum_processes: 2\n")
    command = [str(Path(sys.executable).parent / "trireme"), "launch", "-n", "2"]
    command += ["--env", f"ACCELERATE_CONFIG_FILE={config}", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "found 2 [0, 1] bf16" in done.stdout


PLUGIN_SCRIPT = """
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model = torch.nn.Sequential(torch.nn.Linear(4, 1))
loader = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters()), loader)
accelerator.backward(model(torch.ones(4, 4)).square().mean())
optimizer.step()
accelerator.save_state("state")
kinds = accelerator.num_processes, accelerator.distributed_type.value, accelerator.gradient_accumulation_steps
print("trained", *kinds, len(accelerator.get_state_dict(model)))
"""
DEEPSPEED_CONFIG = """
distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_multinode_launcher: standard
  gradient_accumulation_steps: 2
  zero3_init_flag: false
  zero_stage: 2
mixed_precision: 'no'
num_processes: 2
"""
VERSION_1 = CONFIG.replace("fsdp_version: 2", "fsdp_version: 1").replace("bf16", "'no'")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (CONFIG.replace("bf16", "'no'"), "trained 2 FSDP 1 2"),
        (
            VERSION_1.replace("NO_WRAP", "NO_WRAP\n  fsdp_sync_module_states: true"),
            "fsdp_version=1, sync_module_states=True) needs GPUs",
        ),
        (DEEPSPEED_CONFIG, "trained 2 DEEPSPEED 2 2"),
    ],
    ids=["fsdp2", "fsdp1 synchronized", "deepspeed"],
)
def test_plugins_of_a_config_file_under_trireme_launch(tmp_path: Path, config: str, text: str) -> None:
    """Here Accelerate creates the process group, and chooses the device."""
    (tmp_path / "script.py").write_text(PLUGIN_SCRIPT)
    (tmp_path / "config.yaml").write_text(config)
    command = [str(Path(sys.executable).parent / "trireme"), "launch", "-n", "2"]
    command += ["--env", f"ACCELERATE_CONFIG_FILE={tmp_path}/config.yaml", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    output = done.stdout + done.stderr
    assert text in output, output
    assert (done.returncode == 0) == text.startswith("trained"), output


def test_refused_calls(tmp_path: Path) -> None:
    def refused(config: dict[str, Any]) -> list[str]:
        import accelerate

        from trireme import Checkpoint
        from trireme.accelerate import load_config, load_state

        accelerator = accelerate.Accelerator()
        texts = []
        for call in (
            lambda: accelerate.notebook_launcher(print, ()),
            lambda: accelerate.debug_launcher(print),
            lambda: load_config(config["missing"]),
            lambda: load_state(accelerator, Checkpoint.from_dict({"step": 1})),
        ):
            try:
                call()
            except (OSError, RuntimeError, ValueError) as error:
                texts.append(str(error))
        return texts

    texts = fit(refused, {"missing": str(tmp_path / "missing.yaml")}, workers=1).return_value
    for text, part in zip(
        texts,
        ["notebook_launcher() was called in a worker", "debug_launcher()", "missing.yaml", "was not written by"],
        strict=True,
    ):
        assert part in text


def test_an_optimizer_of_parameters_that_fsdp_1_has_replaced() -> None:
    def refused(config: dict[str, Any]) -> None:
        from accelerate import Accelerator, FullyShardedDataParallelPlugin

        from trireme.accelerate import save_state

        accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=1, use_orig_params=False))
        model = network()
        accelerator.prepare(model, adam(model.parameters()))
        save_state(accelerator)

    with pytest.raises(WorkerGroupError, match=r"FSDP 1 has replaced.*before you create the optimizer"):
        fit(refused, {})


def test_workers_that_would_train_alone_are_an_error() -> None:
    def separate(config: dict[str, Any]) -> None:
        from accelerate import Accelerator

        os.environ["ACCELERATE_USE_CPU"] = "false"
        Accelerator()

    with pytest.raises(WorkerGroupError, match="Accelerate has found 1 process and the run has 2 workers"):
        fit(separate, {})
