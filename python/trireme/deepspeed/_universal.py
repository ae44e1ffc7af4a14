"""Checkpoints for another number of workers, through DeepSpeed's universal format."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from argparse import Namespace
from typing import Any

import torch.distributed as dist

from trireme._core import count_of
from trireme.torch._group import gathered

_UNIVERSAL = "universal"


def load_universal(engine: Any, folder: str, tag: str, workers: int, options: dict[str, Any]) -> Any:
    """Returns the client state, as engine.load_checkpoint() does."""
    converted = _convert_once_per_machine(os.path.join(folder, tag), workers, engine)
    config = engine._config
    try:
        config.load_universal_checkpoint = True
        _, found = engine.load_checkpoint(converted, tag=_UNIVERSAL, **options)
        return found
    except Exception as error:
        raise _refusal(workers, engine, error) from error
    finally:
        config.load_universal_checkpoint = False
        dist.barrier()  # all ranks have read the files
        if engine.local_rank == 0:
            shutil.rmtree(converted, ignore_errors=True)


def _convert_once_per_machine(source: str, workers: int, engine: Any) -> str:
    """The folder of the converted checkpoint. If the conversion fails on one machine, all ranks raise the error."""
    mine = ""
    problem: Exception | None = None
    if engine.local_rank == 0:
        mine = tempfile.mkdtemp(prefix="trireme_universal_")
        try:
            _convert(source, os.path.join(mine, _UNIVERSAL))
        except Exception as error:
            problem = error
    every = gathered((os.environ.get("NODE_RANK", "0"), mine, repr(problem) if problem else ""))
    failed = next((text for _, _, text in every if text), "")
    if failed:
        shutil.rmtree(mine, ignore_errors=True)
        raise _refusal(workers, engine, problem or RuntimeError(failed))
    here = os.environ.get("NODE_RANK", "0")
    path: str = next(path for node, path, _ in every if node == here and path)
    return path


def _convert(source: str, target: str) -> None:
    from deepspeed.checkpoint import ds_to_universal

    arguments = Namespace(
        input_folder=source,
        output_folder=target,
        num_extract_workers=1,  # in this process
        num_merge_workers=1,
        keep_temp_folder=False,
        strict=True,
        inject_missing_state=True,
    )
    with contextlib.redirect_stdout(io.StringIO()):  # progress bars and steps
        ds_to_universal.main(arguments)


def _refusal(workers: int, engine: Any, error: Exception) -> RuntimeError:
    weights = (
        "collect the weights with the checkpoint's zero_to_fp32.py"
        if engine.zero_optimization_partition_weights()
        else "pass load_module_only=True to load only the weights"
    )
    return RuntimeError(
        f"load_checkpoint(): the checkpoint was written by {count_of(workers, 'worker')}, and DeepSpeed cannot load it "
        f"with {engine.world_size}: {error!r}. Run with the same number of workers, or {weights}"
    )
