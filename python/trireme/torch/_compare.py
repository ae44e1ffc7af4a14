"""Checks that all ranks have the same module and the same data, before collectives hang or corrupt results."""

from __future__ import annotations

import hashlib

import torch
import torch.distributed as dist

from trireme.torch._group import gathered

_SHOWN = 5
# Number of loaders to compare. Scripts that prepare one per epoch would fill the store.
_COMPARED = 64

# Name -> description that must be equal on all ranks.
Signature = dict[str, str]


def check_same_module(model: torch.nn.Module, group: dist.ProcessGroup) -> None:
    """Compares names, order, shapes and types of parameters and buffers on all ranks of the group."""
    mine = _signature(model)
    # Almost always equal: exchange a digest first, independent of the number of parameters.
    digest = hashlib.sha256(repr(list(mine.items())).encode()).hexdigest()
    if len(set(gathered(digest, group))) == 1:
        return
    signatures: list[Signature] = gathered(mine, group)
    ranks = dist.get_process_group_ranks(group)
    lines = [
        line
        for rank, other in zip(ranks[1:], signatures[1:], strict=True)
        for line in _differences(ranks[0], signatures[0], rank, other)
    ]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    raise ValueError(
        "prepare_model(): the ranks have different modules; build the same module on every rank:\n  "
        + "\n  ".join(lines[:_SHOWN] + more)
    )


def check_same_data(number: int, rank: int, mine: str) -> None:
    """Compares the data of the loader with this number. Does not wait: the first rank publishes its data and the other
    ranks compare."""
    if number > _COMPARED or not (dist.is_available() and dist.is_initialized()):
        return
    store = dist.distributed_c10d._get_default_store()
    first = store.compare_set(f"trireme/loader/{number}", "", f"rank {rank} has {mine}").decode()
    if first.partition(" has ")[2] != mine:
        raise ValueError(
            f"prepare_data_loader(): the ranks have different data: {first}, and rank {rank} has {mine}; prepare the "
            "same datasets with the same options in the same order on all ranks; for a loader that only some ranks "
            "have, set add_dist_sampler=False"
        )


def _signature(model: torch.nn.Module) -> Signature:
    found = {
        f"parameter {name}": f"{_kind(parameter)}{'' if parameter.requires_grad else ', frozen'}"
        for name, parameter in model.named_parameters()
    }
    return found | {f"buffer {name}": _kind(buffer) for name, buffer in model.named_buffers()}


def _kind(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _differences(first_rank: int, first: Signature, rank: int, other: Signature) -> list[str]:
    lines = [
        f"{name} is {first[name]} on rank {first_rank} but {other[name]} on rank {rank}"
        for name in first
        if name in other and first[name] != other[name]
    ]
    lines += [f"{name} {first[name]} of rank {first_rank} is not on rank {rank}" for name in first if name not in other]
    lines += [f"{name} {other[name]} of rank {rank} is not on rank {first_rank}" for name in other if name not in first]
    if not lines and list(first) != list(other):
        place = next(index for index, (a, b) in enumerate(zip(first, other, strict=True)) if a != b)
        names = list(first)[place], list(other)[place]
        lines.append(f"item {place} is {names[0]} on rank {first_rank} but {names[1]} on rank {rank}")
    return lines
