"""Which GPUs workers get, and how they see them. No GPU is needed: they are declared, or a fake driver reports them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import trireme
from cpp_programs import BUILD
from trireme import Checkpoint, ConfigError, DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig, collective
from trireme.backend import BackendConfig

FAKE_DRIVER = BUILD / "tests/fake_driver"
MASKS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class Shared(BackendConfig):
    share_cuda_visible_devices = True


@pytest.fixture(autouse=True)
def no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MASKS:
        monkeypatch.delenv(name, raising=False)


def fit(function: Any, workers: int, gpus: float = 1, kind: Any = DataParallelTrainer, **options: Any) -> Any:
    scaling = ScalingConfig(num_workers=workers, use_gpu=True, resources_per_worker={"GPU": gpus})
    return kind(function, scaling_config=scaling, **options).fit().return_value


def seen() -> Any:
    """On rank 0: what each rank sees and holds."""
    context = trireme.get_context()
    folder = context.get_trial_dir()
    held = {
        "list": os.environ["CUDA_VISIBLE_DEVICES"],
        "order": os.environ.get("CUDA_DEVICE_ORDER"),
        "local_rank": context.get_local_rank(),
        "own": list(context._gpus),
    }
    Path(f"{folder}/seen_{context.get_world_rank()}").write_text(json.dumps(held))
    collective.barrier()
    ranks = range(context.get_world_size()) if context.get_world_rank() == 0 else ()
    return [json.loads(Path(f"{folder}/seen_{rank}").read_text()) for rank in ranks]


def lists(ranks: list[dict[str, Any]]) -> list[str]:
    return [rank["list"] for rank in ranks]


def test_a_plain_trainer_isolates_unless_its_backend_shares(declared: Any) -> None:
    declared(num_gpus=4)
    assert lists(fit(seen, 3)) == ["0", "1", "2"]
    assert lists(fit(seen, 2, 2)) == ["0,1", "2,3"]
    assert lists(fit(seen, 3, backend_config=Shared())) == ["0,1,2"] * 3
    ranks = fit(seen, 2, 2, backend_config=Shared())
    assert lists(ranks) == ["0,2,1,3"] * 2
    for rank in ranks:
        assert rank["list"].split(",")[rank["local_rank"]] == rank["own"][0]


def test_fractions_are_isolated_because_a_list_cannot_repeat_a_device(declared: Any) -> None:
    declared(num_gpus=2)
    assert lists(fit(seen, 4, 0.5, backend_config=Shared())) == ["0", "0", "1", "1"]


def test_the_mask_of_the_user_is_a_limit(declared: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5f,6,7")
    declared(num_gpus=4)
    assert lists(fit(seen, 2, 2)) == ["4,GPU-5f", "6,7"]
    declared(num_gpus=6)
    with pytest.raises(ConfigError, match=r"GPU: 6 needed.*4 available"):
        fit(seen, 6)
    assert "num_gpus = 6, but CUDA_VISIBLE_DEVICES allows only 4 devices" in capfd.readouterr().err


def test_the_mask_of_hip_is_a_limit_too(declared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "6,7")
    declared(num_gpus=2)
    ranks = fit(lambda: [os.environ["HIP_VISIBLE_DEVICES"], *lists(seen())], 2)
    assert ranks == ["6", "6", "7"]


def resized(config: dict[str, Any]) -> Any:
    """Reports until the run has had the sizes. On rank 0: the list and the pid for every size."""
    context = trireme.get_context()
    checkpoint = trireme.get_checkpoint()
    held: dict[str, Any] = checkpoint.to_dict() if checkpoint else {"sizes": [], "lists": [], "pids": []}
    size = context.get_world_size()
    if held["sizes"][-1:] != [size]:
        held["sizes"].append(size)
        held["lists"].append(os.environ["CUDA_VISIBLE_DEVICES"])
        held["pids"].append(os.getpid())
    while held["sizes"] != config["sizes"]:
        trireme.report({"size": size}, checkpoint=Checkpoint.from_dict(held) if context.get_world_rank() == 0 else None)
    return held


class Grow(trireme.UserCallback):
    done = False

    def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
        if not self.done:
            self.done = True
            trireme.set_capacity(num_gpus=2)


@pytest.mark.parametrize("share", [True, False])
def test_a_resize_replaces_processes_whose_list_changed(declared: Any, share: bool) -> None:
    """CUDA reads the list once, so a process that was kept would not find the new one."""
    declared(num_gpus=1)
    result = DataParallelTrainer(
        resized,
        train_loop_config={"sizes": [1, 2]},
        backend_config=Shared() if share else None,
        scaling_config=ScalingConfig(num_workers=(1, 2), use_gpu=True),
        run_config=RunConfig(failure_config=FailureConfig(warm_restart=True), callbacks=[Grow()]),
    ).fit()
    held = result.return_value
    assert held["lists"] == (["0", "0,1"] if share else ["0", "0"])
    assert (held["pids"][0] == held["pids"][1]) is not share


SCRIPT = """
import os
import trireme
from trireme import DataParallelTrainer, ScalingConfig

def train():
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER")

if __name__ == "__main__":
    scaling = ScalingConfig(num_workers=1, use_gpu=True, accelerator_type={type!r})
    print("seen", *DataParallelTrainer(train, scaling_config=scaling).fit().return_value)
"""


@pytest.mark.skipif(not FAKE_DRIVER.exists(), reason=f"{FAKE_DRIVER} is not built: run `make build` first")
@pytest.mark.parametrize(
    ("devices", "type", "mask", "expected"),
    [
        ("NVIDIA T4|GPU-aa;NVIDIA H100|GPU-bb", "H100", None, "seen 1 PCI_BUS_ID"),
        ("NVIDIA T4|GPU-aa;NVIDIA H100|GPU-bb", "H100", "GPU-aa,GPU-bb", "seen GPU-bb None"),
        ("NVIDIA H100|GPU-aa|lost;NVIDIA H100|GPU-bb", "H100", None, "seen GPU-bb None"),
        ("NVIDIA H100|GPU-aa|mig=MIG-1:H100 1g.10gb,MIG-2:H100 3g.40gb", "3g.40gb", None, "seen MIG-2 None"),
    ],
)
def test_devices_of_the_driver(script: Any, devices: str, type: str, mask: str | None, expected: str) -> None:
    variables = {"LD_LIBRARY_PATH": str(FAKE_DRIVER), "TRIREME_FAKE_NVML": devices}
    if mask is not None:
        variables["CUDA_VISIBLE_DEVICES"] = mask
    done = script.run(SCRIPT.format(type=type), env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout.splitlines()
    assert ("GPU 0 is not used: GPU is lost" in done.stderr) == ("lost" in devices)


def devices_with_cuda() -> list[str]:
    """What get_device() and get_devices() would return if torch found GPUs."""
    import torch

    from trireme.torch import get_device, get_devices

    torch.cuda.is_available = lambda: True
    mine = [str(get_device()), *map(str, get_devices())]
    folder = trireme.get_context().get_trial_dir()
    rank = trireme.get_context().get_world_rank()
    Path(f"{folder}/devices_{rank}").write_text(json.dumps([*mine, os.environ["LOCAL_RANK"]]))
    collective.barrier()
    return [json.loads(Path(f"{folder}/devices_{r}").read_text()) for r in range(2)] if rank == 0 else []


@pytest.mark.torch
def test_get_device_is_the_local_rank_unless_isolated(declared: Any) -> None:
    from trireme.torch import TorchConfig, TorchTrainer

    declared(num_gpus=4)
    shared = fit(devices_with_cuda, 2, 2, TorchTrainer)
    assert shared == [["cuda:0", "cuda:0", "cuda:2", "0"], ["cuda:1", "cuda:1", "cuda:3", "1"]]
    isolated = TorchConfig(share_cuda_visible_devices=False)
    assert fit(devices_with_cuda, 2, 2, TorchTrainer, torch_config=isolated) == [
        ["cuda:0", "cuda:0", "cuda:1", "0"],
        ["cuda:0", "cuda:0", "cuda:1", "1"],
    ]
    assert fit(devices_with_cuda, 2, 0.5, TorchTrainer) == [["cuda:0", "cuda:0", "0"], ["cuda:0", "cuda:0", "1"]]


@pytest.mark.torch
def test_a_worker_without_gpus_does_not_ask_the_driver() -> None:
    from trireme.torch import TorchTrainer, get_device

    def train() -> str:
        import torch

        def asked() -> bool:
            raise AssertionError("this initializes the driver")

        torch.cuda.is_available = asked
        return str(get_device())

    assert TorchTrainer(train, scaling_config=ScalingConfig(num_workers=1)).fit().return_value == "cpu"


@pytest.mark.torch
def test_torch_without_cuda_on_a_worker_with_a_gpu_warns(declared: Any, capfd: Any) -> None:
    from trireme.torch import TorchTrainer, get_device

    declared(num_gpus=1)
    if fit(lambda: str(get_device()), 1, kind=TorchTrainer) == "cpu":
        assert "this worker holds GPU 0, but torch" in "".join(capfd.readouterr())


@pytest.mark.torch
def test_sharing_must_be_a_bool() -> None:
    from trireme.torch import TorchConfig

    with pytest.raises(ConfigError, match="share_cuda_visible_devices: expected bool, got 'no'"):
        TorchConfig(share_cuda_visible_devices="no")  # type: ignore[arg-type]
