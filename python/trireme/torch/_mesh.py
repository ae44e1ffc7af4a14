from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trireme._session import current_session
from trireme.torch._device import devices_of
from trireme.torch._group import process_group_ready

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def get_device_mesh(dimensions: dict[str, int]) -> DeviceMesh:
    """Return a device mesh of all workers. The first dimension varies slowest: {"dp": 2, "tp": 2} puts ranks 0 and 1
    into the same "tp" group.

    One size may be -1: it is computed from the number of workers. Every worker must call this function.
    """
    from torch.distributed.device_mesh import init_device_mesh

    context = current_session("get_device_mesh").context
    sizes = _sizes(dimensions, context.get_world_size())
    process_group_ready("get_device_mesh")
    device = devices_of(context)[0]
    return init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))


def _sizes(dimensions: dict[str, int], workers: int) -> dict[str, int]:
    call = f"get_device_mesh({dimensions!r})"
    if not isinstance(dimensions, dict) or not dimensions:
        raise ValueError(f'{call}: expected a dict of names and sizes, for example {{"dp": 2, "tp": 2}}')
    for name, size in dimensions.items():
        if not isinstance(name, str) or type(size) is not int or (size < 1 and size != -1):
            raise ValueError(f"{call}: {name!r}: {size!r} is not a name and a size of at least 1 (or -1 for the rest)")
    open_ones = [name for name, size in dimensions.items() if size == -1]
    if len(open_ones) > 1:
        raise ValueError(f"{call}: only one size can be -1, not those of {' and '.join(map(repr, open_ones))}")
    given = [size for size in dimensions.values() if size != -1]
    product = math.prod(given)
    if open_ones and workers % product == 0:
        return {name: workers // product if size == -1 else size for name, size in dimensions.items()}
    if open_ones or product != workers:
        arithmetic = " x ".join(map(str, given)) + (f" = {product}" if len(given) > 1 else "")
        fits = "does not divide" if open_ones else "is not"
        raise ValueError(
            f"{call}: {arithmetic} {fits} the number of workers, {workers}; change the sizes, or "
            "ScalingConfig(num_workers=...)"
        )
    return dimensions
