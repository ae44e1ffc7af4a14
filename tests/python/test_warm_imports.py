"""What the warm process imports when nobody waits for it, for the workers that come later."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from trireme import ScalingConfig
from trireme.torch import TorchTrainer

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def settings_of_a_worker() -> tuple[bool, bool]:
    """Whether they were imported before the fork, and one of them that is a variable."""

    def train() -> Any:
        import sys

        before = "torch._dynamo" in sys.modules
        import torch._inductor.config

        return before, torch._inductor.config.size_asserts

    value = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=1)).fit().return_value
    return tuple(value)  # type: ignore[arg-type]


def test_later_workers_find_more_imported_and_yet_have_their_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "TORCHINDUCTOR_SIZE_ASSERTS" not in os.environ
    deadline = time.monotonic() + 60
    while not (found := settings_of_a_worker())[0] and time.monotonic() < deadline:
        time.sleep(1)  # only then it is idle
    assert found == (True, True)
    monkeypatch.setenv("TORCHINDUCTOR_SIZE_ASSERTS", "0")
    assert settings_of_a_worker() == (False, False)
