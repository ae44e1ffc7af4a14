"""What an attempt leaves in a process that is kept: memory, and a device that may be broken."""

from __future__ import annotations

import gc
import os
import signal
import sys
import types
import weakref
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import trireme
from runs import events, fit, pids
from trireme import DataParallelTrainer, _leftovers, collective
from trireme._context import TrainContext
from trireme.backend import Backend, BackendConfig

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class FakeDevice:
    """torch's module of a device, such as torch.cuda. A failed kernel makes every later call raise."""

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken
        self.calls: list[str] = []

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def synchronize(self, index: int) -> None:
        self.calls.append(f"synchronize {index}")
        if self.broken:
            raise RuntimeError("CUDA error: device-side assert triggered")

    def empty_cache(self) -> None:
        self.calls.append("empty_cache")


class Cycle:
    """Like a model that refers to itself."""

    def __init__(self) -> None:
        self.me = self


def test_the_device_is_cleared_after_the_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    dynamo = types.SimpleNamespace(reset=lambda: device.calls.append("dynamo reset"))
    monkeypatch.setitem(sys.modules, "torch._dynamo", dynamo)
    gc.disable()
    try:
        model = Cycle()
        weakref.finalize(model, device.calls.append, "freed")
        del model
        assert device.calls == []
        _leftovers.clear_device(device)
    finally:
        gc.enable()
    assert device.calls == ["dynamo reset", "freed", "synchronize 0", "empty_cache"]


def test_torch_is_not_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    monkeypatch.delitem(sys.modules, "torch")
    assert _leftovers.device_in_use() is None
    _leftovers.collect_garbage()
    assert not {"torch", "torch._dynamo"} & sys.modules.keys()


class WithDevice(Backend):
    def on_start(self, context: TrainContext, session: Any) -> None:
        if context._attempt == 0:
            device = FakeDevice(broken=context.get_world_rank() == self.config.broken_rank)
            torch.utils.rename_privateuse1_backend("fake")
            torch._register_device_module("fake", device)

    def holds(self, context: TrainContext) -> str:
        return "a CUDA context"


@dataclass
class DeviceConfig(BackendConfig):
    broken_rank: int = 2

    @property
    def backend_cls(self) -> type[Backend]:
        return WithDevice


def test_a_worker_with_a_broken_device_is_replaced() -> None:
    def train() -> None:
        context = trireme.get_context()
        if context._attempt == 0:
            collective.barrier()
            if context.get_world_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        elif context.get_world_rank() == 0:
            print("calls", torch.get_device_module("fake").calls)
        collective.barrier()
        trireme.report({})

    trainer = partial(DataParallelTrainer, backend_config=DeviceConfig())
    result = fit(train, 3, max_failures=1, cancel_timeout_s=60.0, trainer_class=trainer)
    before, after = pids(result.path, 0), pids(result.path, 1)
    assert [rank for rank in before if before[rank] == after[rank]] == [0]
    assert len(events(result.path, "attempt_failed")) == 1, "a process that is not kept is not a failure"
    logs = Path(result.path or "", "logs")
    said = (logs / "attempt_0/rank_2.log").read_text()
    assert "replaced for the next attempt: its device is unusable: CUDA error: device-side assert triggered" in said
    assert "calls ['synchronize 0', 'empty_cache']" in (logs / "attempt_1/rank_0.log").read_text()
