"""Accelerator.save_state() and load_state() as checkpoints of the run."""

from __future__ import annotations

from typing import Any

from trireme._checkpoint import Checkpoint
from trireme._core import count_of

# Its optimizer state is in one file for each rank.
_NEEDS_EQUAL_SIZE = "DEEPSPEED"


def save_state(accelerator: Any, **options: Any) -> Checkpoint:
    """Return a checkpoint of everything that `accelerator.save_state()` stores, for report(). Every worker must call
    both functions: each stores its own files.

    options: passed to `accelerator.save_state()`.
    """
    from trireme.torch._rank_folders import saved_by_all_ranks

    if accelerator.distributed_type == "FSDP" and not accelerator.is_fsdp2:
        _check_parameters(accelerator)
    return saved_by_all_ranks(
        lambda folder: accelerator.save_state(folder, **options), {"accelerate": accelerator.distributed_type.value}
    )


def load_state(accelerator: Any, checkpoint: Checkpoint, **options: Any) -> None:
    """Load a checkpoint of save_state(), after `accelerator.prepare()`. Every worker must call it.

    options: passed to `accelerator.load_state()`.
    """
    from trireme.torch._rank_folders import record_of

    with checkpoint.as_directory() as folder:
        record = record_of(folder)
        kind = record.get("accelerate")
        if kind is None:
            raise ValueError(
                f"load_state(): {checkpoint.path} was not written by trireme.accelerate.save_state(); load it with "
                "accelerator.load_state(folder), where folder is checkpoint.as_directory()"
            )
        mine = accelerator.distributed_type.value
        # One model, stored as a whole: Accelerate loads it on any number of processes.
        whole = {"NO", "MULTI_CPU", "MULTI_GPU"}
        if kind != mine and not {kind, mine} <= whole:
            raise ValueError(
                f"load_state(): {checkpoint.path} was written with distributed_type {kind}, and this Accelerator has "
                f"{mine}; use the same plugin"
            )
        if kind == _NEEDS_EQUAL_SIZE and record["workers"] != accelerator.num_processes:
            raise ValueError(
                f"load_state(): {checkpoint.path} was written by {count_of(record['workers'], 'worker')} and the run "
                f"has {accelerator.num_processes}. Accelerate cannot change the number of DeepSpeed's partitions; run "
                "with the same number of workers, or use trireme.deepspeed"
            )
        accelerator.load_state(folder, **options)


def _check_parameters(accelerator: Any) -> None:
    """FSDP 1 replaces parameters when it wraps a model. torch raises a KeyError that names nothing."""
    known = {id(parameter) for model in accelerator._models for parameter in model.parameters()}
    groups = [group for optimizer in accelerator._optimizers for group in optimizer.param_groups]
    if any(id(parameter) not in known for group in groups for parameter in group["params"]):
        raise ValueError(
            "save_state(): the optimizer has parameters that FSDP 1 has replaced, so it does not train the model; call "
            "accelerator.prepare(model) before you create the optimizer, or use "
            "FullyShardedDataParallelPlugin(use_orig_params=True) or fsdp_version=2"
        )
