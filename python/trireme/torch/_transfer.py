"""Moves batches to the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from trireme._device_copy import has_streams


def move(batch: Any, device: torch.device) -> Any:
    """Moves the tensors in mappings, tuples and lists, and other objects that have a to() method."""
    return _map(lambda item: move(item, device), batch, lambda item: item.to(device) if hasattr(item, "to") else item)


def transferred(batches: Iterator[Any], device: torch.device, ahead: bool) -> Iterator[Any]:
    """ahead: if the device is an accelerator with streams, copy a batch while the previous one is processed."""
    if device.type == "cpu":  # loaders create batches on the CPU
        return batches
    if ahead and has_streams(device):
        return _copied_ahead(batches, device)
    return (move(batch, device) for batch in batches)


def _copied_ahead(batches: Iterator[Any], device: torch.device) -> Iterator[Any]:
    stream = torch.Stream(device=device)

    def next_one() -> list[Any]:
        for batch in batches:
            with stream:
                # Returns immediately for pinned memory (DataLoader(pin_memory=True)).
                return [_each_tensor(batch, lambda tensor: tensor.to(device, non_blocking=True))]
        return []

    coming = next_one()
    while coming:
        torch.accelerator.current_stream(device).wait_stream(stream)
        batch = _each_tensor(coming[0], _read_here)
        coming = next_one()
        yield move(batch, device)  # objects with their own to() may use any stream


def _read_here(tensor: torch.Tensor) -> torch.Tensor:
    """The memory was allocated on the other stream and must not be reused while this stream reads it."""
    tensor.record_stream(torch.accelerator.current_stream(tensor.device))
    return tensor


def _each_tensor(batch: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(batch, torch.Tensor):
        return function(batch)
    return _map(lambda item: _each_tensor(item, function), batch, lambda item: item)


def _map(function: Callable[[Any], Any], batch: Any, otherwise: Callable[[Any], Any]) -> Any:
    if hasattr(batch, "to"):  # includes PackedSequence (a tuple) and BatchEncoding (a mapping)
        return otherwise(batch)
    if isinstance(batch, Mapping):
        items = {key: function(value) for key, value in batch.items()}
        return items if type(batch) is dict else _rebuilt(type(batch), items)
    if isinstance(batch, tuple):
        values = [function(value) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else tuple(values)
    if isinstance(batch, list):
        return [function(value) for value in batch]
    return otherwise(batch)


def _rebuilt(kind: Callable[[Any], Any], items: dict[Any, Any]) -> Any:
    try:
        return kind(items)
    except TypeError:  # a mapping that cannot be created from a dict, such as defaultdict
        return items
