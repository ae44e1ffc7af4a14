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

    if accelerator.distributed_type == "FSDP" and not accelerator.is_fsdp2 and accelerator.device.type == "cpu":
        raise ValueError(
            "save_state(): torch cannot collect the state of a model of FSDP 1 on workers without GPUs; use "
            "FullyShardedDataParallelPlugin(fsdp_version=2)"
        )
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
