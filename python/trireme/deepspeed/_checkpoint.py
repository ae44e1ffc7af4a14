"""save_checkpoint() and load_checkpoint(): an engine's files as a checkpoint of the run."""

from __future__ import annotations

import os
from typing import Any

from trireme._checkpoint import Checkpoint

_TAG = "engine"
_CLIENT_STATE = "trireme_client_state"


def save_checkpoint(engine: Any, client_state: dict[str, Any] | None = None, **options: Any) -> Checkpoint:
    """Return a checkpoint of the engine, for report(). Every worker must call both functions: each stores its part of
    the model and of the optimizer, and the states of its random numbers.

    client_state: values that load_checkpoint() returns, for example the epoch.
    options: passed to `engine.save_checkpoint()`.
    """
    from trireme.torch._rank_folders import saved_by_all_ranks

    if client_state is not None and not isinstance(client_state, dict):
        raise TypeError(f"save_checkpoint(client_state=...) expects a dict, got {type(client_state).__name__}")
    _check(engine, "save_checkpoint")

    def save(folder: str) -> None:
        engine.save_checkpoint(folder, tag=_TAG, client_state={_CLIENT_STATE: client_state or {}}, **options)
        _save_random_states(folder, engine.global_rank)

    return saved_by_all_ranks(save, {"deepspeed": _kind(engine)})


def load_checkpoint(engine: Any, checkpoint: Checkpoint, **options: Any) -> dict[str, Any]:
    """Load a checkpoint of save_checkpoint() into a new engine, and return its client_state. Every worker must call it.

    If the number of workers has changed, the checkpoint is first converted to DeepSpeed's universal format, in a
    temporary directory.

    options: passed to `engine.load_checkpoint()`, for example load_module_only=True.
    """
    from trireme.torch._rank_folders import record_of

    _check(engine, "load_checkpoint")
    with checkpoint.as_directory() as folder:
        record = record_of(folder)
        if "deepspeed" not in record:
            raise ValueError(
                f"load_checkpoint(): {checkpoint.path} was not written by trireme.deepspeed.save_checkpoint(); load it "
                "with engine.load_checkpoint(folder), where folder is checkpoint.as_directory()"
            )
        if record["deepspeed"] != (mine := _kind(engine)):
            raise ValueError(
                f"load_checkpoint(): {checkpoint.path} was written with {record['deepspeed']}, and this engine has "
                f"{mine}; use the same zero_optimization.stage and precision"
            )
        if record["workers"] == engine.world_size or _needs_no_partitions(engine, options):
            _, found = engine.load_checkpoint(folder, tag=_TAG, **options)
        else:
            from trireme.deepspeed._universal import load_universal

            found = load_universal(engine, folder, _TAG, record["workers"], options)
        if found is None:
            raise RuntimeError(f"load_checkpoint(): DeepSpeed could not read {checkpoint.path}")
        _load_random_states(folder, engine.global_rank)
    state: dict[str, Any] = found[_CLIENT_STATE]
    return state


def _check(engine: Any, caller: str) -> None:
    from deepspeed.runtime.engine import DeepSpeedEngine

    if not isinstance(engine, DeepSpeedEngine):
        raise TypeError(
            f"{caller}() expects the engine that deepspeed.initialize() returns, got {type(engine).__name__}"
        )


def _needs_no_partitions(engine: Any, options: dict[str, Any]) -> bool:
    """Without ZeRO nothing is partitioned; before stage 3, only the optimizer's state is."""
    stage = int(engine.zero_optimization_stage())
    return stage == 0 or (stage < 3 and bool(options.get("load_module_only")))


def _kind(engine: Any) -> str:
    precision = "bf16" if engine.bfloat16_enabled() else "fp16" if engine.fp16_enabled() else "fp32"
    return f"ZeRO stage {int(engine.zero_optimization_stage())} in {precision}"


def _random_file(folder: str, rank: int) -> str:
    return os.path.join(folder, f"random_states_{rank}.pt")


def _save_random_states(folder: str, rank: int) -> None:
    import torch

    from trireme.torch._random_states import random_states

    torch.save(random_states(), _random_file(folder, rank))


def _load_random_states(folder: str, rank: int) -> None:
    import torch

    from trireme.torch._random_states import set_random_states

    file = _random_file(folder, rank)
    if os.path.exists(file):  # otherwise there are more workers than before
        set_random_states(torch.load(file, map_location="cpu", weights_only=False))
