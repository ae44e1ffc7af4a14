"""Copies from and to an accelerator, with a test device whose streams work asynchronously."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trireme
from cpp_programs import BUILD, checked
from fake_gpu import LIBRARY
from trireme.torch import TorchTrainer

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not LIBRARY.exists(), reason=f"{LIBRARY} is not built: run `make build` with libtorch first"),
]


def fit(train: Any, tmp_path: Path, **checkpoints: Any) -> trireme.Result:
    return TorchTrainer(
        train,
        scaling_config=trireme.ScalingConfig(num_workers=1),
        run_config=trireme.RunConfig(
            name="run", storage_path=str(tmp_path), checkpoint_config=trireme.CheckpointConfig(**checkpoints)
        ),
    ).fit()


def test_an_asynchronous_snapshot_copies_once_and_waits_once(tmp_path: Path) -> None:
    def train() -> list[dict[str, int]]:
        import torch

        from fake_gpu import FakeGpu

        gpu = FakeGpu()
        state = {
            "model": {f"weight {i}": torch.zeros(100, 7).to(gpu.device) for i in range(5)},
            "transposed": torch.zeros(3, 2).to(gpu.device).t(),
            "empty": torch.zeros(0, 3).to(gpu.device),
            "bool": torch.zeros(5, dtype=torch.bool).to(gpu.device),
            "host": torch.ones(3),
        }
        changes = []
        for step in range(3):
            gpu.close_gate()
            for weight in state["model"].values():
                weight.fill_(step)
            state["transposed"].fill_(step)
            state["bool"].fill_(step % 2)
            before = gpu.counts()
            with gpu.opened_by_a_wait():
                trireme.report(
                    {"step": step},
                    checkpoint=trireme.Checkpoint.from_dict(state),
                    checkpoint_upload_mode=trireme.CheckpointUploadMode.ASYNC,
                )
            after = gpu.counts()
            changes.append({name: after[name] - before[name] for name in after})
        return changes

    result = fit(train, tmp_path, max_uploads_in_flight=1)
    assert [change["copies_to_host"] for change in result.return_value] == [7, 7, 7]
    for unwanted in ("copies_to_pageable", "copies_on_first_stream"):
        assert [change[unwanted] for change in result.return_value] == [0, 0, 0]
    assert [change["waits"] for change in result.return_value] == [1, 1, 1]
    assert [change["registered"] for change in result.return_value] == [1, 0, 0]
    assert [metrics["step"] for _, metrics in result.best_checkpoints] == [0, 1, 2]
    for checkpoint, metrics in result.best_checkpoints:
        state = checkpoint.to_dict()
        step = metrics["step"]
        assert all(weight.eq(step).all() and weight.shape == (100, 7) for weight in state["model"].values())
        assert state["transposed"].shape == (2, 3) and state["transposed"].eq(step).all()
        assert state["empty"].shape == (0, 3)
        assert state["bool"].tolist() == [bool(step % 2)] * 5
        assert state["host"].tolist() == [1, 1, 1]


def test_a_synchronous_report_and_save_state_copy_what_was_computed(tmp_path: Path) -> None:
    def train() -> None:
        import torch

        from fake_gpu import FakeGpu

        gpu = FakeGpu()
        weights = [torch.arange(6.0).to(gpu.device) for _ in range(2)]
        gpu.close_gate()
        weights[0].fill_(7)
        with gpu.opened_by_a_wait():
            trireme.report({}, checkpoint=trireme.Checkpoint.from_dict({"weights": weights}))
        gpu.close_gate()
        weights[1].fill_(8)
        with gpu.opened_by_a_wait():
            trireme.save_state(str(tmp_path / "saved"), {"weights": weights})

    result = fit(train, tmp_path, keep_in_memory=False)
    assert result.checkpoint is not None
    assert [each.tolist() for each in result.checkpoint.to_dict()["weights"]] == [[7.0] * 6, list(range(6))]
    assert [each.tolist() for each in trireme.load_state(tmp_path / "saved")["weights"]] == [[7.0] * 6, [8.0] * 6]


def test_a_failed_copy_is_the_error_of_the_report(tmp_path: Path) -> None:
    def train() -> None:
        import torch

        from fake_gpu import FakeGpu
        from trireme import _device_copy

        def broken(copies: object) -> None:
            raise RuntimeError("an illegal memory access was encountered")

        gpu = FakeGpu()
        _device_copy.copy_to_host = broken
        for mode in (trireme.CheckpointUploadMode.ASYNC, trireme.CheckpointUploadMode.SYNC):
            with pytest.raises(RuntimeError, match="illegal memory access"):
                trireme.report(
                    {},
                    checkpoint=trireme.Checkpoint.from_dict({"x": torch.zeros(3).to(gpu.device)}),
                    checkpoint_upload_mode=mode,
                )

    with pytest.raises(trireme.WorkerGroupError, match="illegal memory access"):
        fit(train, tmp_path, keep_in_memory=False)


def test_batches_are_copied_ahead_on_a_separate_stream(tmp_path: Path) -> None:
    def train() -> Any:
        import torch

        from fake_gpu import FakeGpu
        from trireme.torch._transfer import transferred

        gpu = FakeGpu()
        taken = []

        def batches() -> Any:
            for i in range(3):
                taken.append(i)
                yield {"x": torch.full((4,), float(i)).pin_memory(), "names": ["a"]}

        before = gpu.counts()
        seen = []
        for batch in transferred(batches(), gpu.device, True):
            seen.append((batch["x"].device.type, len(taken), batch["x"].cpu().tolist(), batch["names"]))
        after = gpu.counts()
        return seen, after["recorded"] - before["recorded"]

    seen, recorded = fit(train, tmp_path).return_value
    assert [(device, values, names) for device, _, values, names in seen] == [
        ("fakegpu", [float(i)] * 4, ["a"]) for i in range(3)
    ]
    assert [taken for _, taken, _, _ in seen] == [2, 3, 3]  # the next batch is copied while this one is processed
    assert recorded == 3


def test_cpp_snapshots_and_batches() -> None:
    assert checked(BUILD / "tests/torch_device_program").endswith("all right\n")
