from __future__ import annotations

from typing import Any

import pytest

from trireme import ScalingConfig
from trireme.torch import TorchTrainer, get_device_mesh

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_a_grid_of_all_workers() -> None:
    def train() -> Any:
        import torch
        import torch.distributed as dist

        mesh = get_device_mesh({"dp": 2, "tp": -1})
        assert mesh.mesh.tolist() == [[0, 1], [2, 3]]
        total = torch.tensor(float(dist.get_rank()))
        dist.all_reduce(total, group=mesh["dp"].get_group())
        for dimensions, words in {
            ("dp", 3): "3 is not the number of workers, 4",
            ("dp", 2, "tp", 3): "2 x 3 = 6 is not the number of workers, 4",
            ("dp", 3, "tp", -1): "3 does not divide the number of workers, 4",
            ("dp", -1, "tp", -1): "only one size can be -1, not those of 'dp' and 'tp'",
            ("dp", 0): "'dp': 0 is not a name and a size",
            ("dp", "4"): "'dp': '4' is not a name and a size",
            (): "expected a dict of names and sizes",
        }.items():
            with pytest.raises(ValueError, match=words):
                get_device_mesh(dict(zip(dimensions[::2], dimensions[1::2], strict=True)))
        return total.item()

    scaling = ScalingConfig(num_workers=4)
    assert TorchTrainer(train, scaling_config=scaling).fit().return_value == 2.0  # of ranks 0 and 2


def test_where_it_cannot_be() -> None:
    with pytest.raises(RuntimeError, match="`get_device_mesh` cannot be used outside"):
        get_device_mesh({"dp": 1})
    local = TorchTrainer(lambda: get_device_mesh({"dp": 1}), scaling_config=ScalingConfig(num_workers=0))
    with pytest.raises(RuntimeError, match=r"needs torch\.distributed"):
        local.fit()
