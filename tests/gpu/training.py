"""The training functions of the cases. They run in the workers."""

from __future__ import annotations

import os
import signal
import time
import weakref
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import trireme
from trireme import Checkpoint, CheckpointUploadMode
from trireme.torch import get_device, prepare_model

STEPS = 6
FAULT_AT = 3
_first_models: list[weakref.ref[Any]] = []  # a process that is kept keeps its modules


def steps_with_fault(config: dict[str, Any]) -> dict[str, Any]:
    """Trains a small model and fails once, on rank 1 in the middle of a step that rank 0 waits in."""
    context = trireme.get_context()
    device = get_device()
    memory = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    left_over = sum(ref() is not None for ref in _first_models)
    checkpoint = trireme.get_checkpoint()
    state: dict[str, Any] = checkpoint.to_dict() if checkpoint else {"step": 0}
    model = prepare_model(torch.nn.Linear(256, 256))
    _first_models.append(weakref.ref(model))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    marker = Path(f"{context.get_trial_dir()}/failed_once")
    while state["step"] < STEPS:
        if state["step"] == FAULT_AT and context.get_world_rank() == 1 and not marker.exists():
            marker.touch()
            fail(config["fault"], device)
        optimizer.zero_grad()
        model(torch.ones(8, 256, device=device)).sum().backward()
        optimizer.step()
        total = torch.ones(1, device=device)
        dist.all_reduce(total)
        assert total.item() == context.get_world_size()
        state["step"] += 1
        mine = Checkpoint.from_dict(state) if context.get_world_rank() == 0 else None
        trireme.report({"step": state["step"]}, checkpoint=mine)
    return {"steps": state["step"], "memory": memory, "left_over": left_over}


def fail(fault: str, device: torch.device) -> None:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "exception":
        raise ValueError("on purpose")
    elif fault == "device assert":
        torch.arange(4, device=device)[torch.tensor([10], device=device)].sum().item()
    elif fault == "out of memory":
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    elif fault == "hang":
        time.sleep(3600)
    raise AssertionError(f"{fault} did not end this worker")


def sizes(config: dict[str, Any]) -> dict[str, Any]:
    """Runs until the gang has had two sizes, and returns which device rank 0 had in each."""
    context = trireme.get_context()
    checkpoint = trireme.get_checkpoint()
    state: dict[str, Any] = checkpoint.to_dict() if checkpoint else {"sizes": [], "own": []}
    size = context.get_world_size()
    if state["sizes"][-1:] != [size]:
        state["sizes"].append(size)
        state["own"].append(owns_local_rank())
    while len(state["sizes"]) < 2:
        total = torch.ones(1, device=get_device())
        dist.all_reduce(total)
        assert total.item() == size
        trireme.report({"size": size}, checkpoint=Checkpoint.from_dict(state) if dist.get_rank() == 0 else None)
    return state


def owns_local_rank() -> bool:
    """Whether `cuda:LOCAL_RANK` is the device that was reserved for this worker."""
    context = trireme.get_context()
    local_rank = int(os.environ["LOCAL_RANK"])
    visible = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    if get_device().type == "cuda" and (get_device().index, torch.cuda.current_device()) != (local_rank, local_rank):
        return False
    return visible[local_rank] == context._gpus[0]


def local_rank(config: dict[str, Any]) -> dict[str, Any]:
    names: list[Any] = [None] * dist.get_world_size()
    device = get_device()
    uuid = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else os.environ["LOCAL_RANK"]
    # On the CPU, so that it does not depend on the devices.
    dist.all_gather_object(names, (owns_local_rank(), uuid), group=dist.new_group(backend="gloo"))
    return {"own": all(own for own, _ in names), "distinct": len({uuid for _, uuid in names})}


def saves(config: dict[str, Any]) -> dict[str, Any]:
    """The time that report() takes with a state on the device."""
    state = {"x": [torch.ones(config["elements"] // 8, device=get_device()) for _ in range(8)]}
    seconds = {}
    for mode in (CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC):
        dist.barrier()
        began = time.perf_counter()
        mine = Checkpoint.from_dict(state) if dist.get_rank() == 0 else None
        trireme.report({}, checkpoint=mine, checkpoint_upload_mode=mode)
        seconds[mode.name] = time.perf_counter() - began
    return seconds


def mesh(config: dict[str, Any]) -> dict[str, Any]:
    """A group with device_id splits it for every dimension of a mesh, which clones the store."""
    from torch.distributed.device_mesh import init_device_mesh

    device = get_device()
    dist.destroy_process_group()
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    made = init_device_mesh(device.type, (1, dist.get_world_size()), mesh_dim_names=("outer", "inner"))
    total = torch.ones(1, device=device)
    dist.all_reduce(total, group=made["inner"].get_group())
    return {"sum": total.item(), "outer": dist.get_world_size(made["outer"].get_group())}
