"""Modules that the warm process imports in the background for later workers."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

import trireme
from cpp_programs import BUILD
from trireme import ScalingConfig
from trireme.torch import TorchTrainer

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def settings_of_a_worker() -> tuple[bool, bool, str | None]:
    """Whether the modules were imported before the fork, the value of a setting read from a variable, and the folder of
    the compiler's files."""

    def train() -> Any:
        import sys

        before = "torch._dynamo" in sys.modules
        import torch._inductor.config

        return before, torch._inductor.config.size_asserts, os.environ.get("TORCHINDUCTOR_CACHE_DIR")

    value = TorchTrainer(train, scaling_config=ScalingConfig(num_workers=1)).fit().return_value
    return tuple(value)  # type: ignore[arg-type]


def test_later_workers_find_more_modules_imported_but_keep_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "TORCHINDUCTOR_SIZE_ASSERTS" not in os.environ
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.delenv("TRIREME_RUN_PRELOAD", raising=False)
    trireme.shutdown()  # the next warm process has not been asked for these modules
    deadline = time.monotonic() + 120
    while not (found := settings_of_a_worker())[0] and time.monotonic() < deadline:
        time.sleep(1)  # it is idle only then
    assert found == (True, True, None)
    # As torch does in a driver that loads its compiler.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/tmp/compiled")
    assert settings_of_a_worker() == (True, True, "/tmp/compiled")
    monkeypatch.setenv("TORCHINDUCTOR_SIZE_ASSERTS", "0")
    assert settings_of_a_worker() == (False, False, "/tmp/compiled")


FAKE_CUDA = BUILD / "tests/fake_driver/libcuda.so.1"


@pytest.mark.skipif(not FAKE_CUDA.exists(), reason=f"{FAKE_CUDA} is not built: run `make build` first")
def test_a_preloaded_module_that_initializes_cuda_is_imported_by_the_workers(script: Any) -> None:
    script.write(f"import ctypes\nassert ctypes.CDLL({str(FAKE_CUDA)!r}).cuInit(0) == 0", "poison.py")
    done = script.run("""
        from trireme import DataParallelTrainer, RunConfig, ScalingConfig

        def train():
            import os, sys
            before = "poison" in sys.modules
            import poison
            return before, "trireme._zygote" in open(f"/proc/{os.getppid()}/cmdline").read()

        if __name__ == "__main__":
            run = RunConfig(preload=["poison", "decimal"])
            for _ in range(2):
                trainer = DataParallelTrainer(train, run_config=run, scaling_config=ScalingConfig(num_workers=2))
                print(trainer.fit().return_value)
    """)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("(")] == ["(False, True)"] * 2
    told = done.stdout + done.stderr
    assert told.count("restarts without poison, which workers import themselves: its import initialized CUDA") == 1


FIRST_SCRIPT = """
import torch
import os, trireme.torch
from trireme import ScalingConfig, torch as from_package
import trireme
import trireme.torch as as_name

def trained(tt):
    model = tt.prepare_model(torch.nn.Linear(1, 1))
    total = model(torch.ones(1, 1)).sum()
    total.backward()
    parent = open(f"/proc/{os.getppid()}/cmdline").read()
    return type(model).__name__, "trireme._zygote" in parent, torch.get_num_threads()

def by_path(config):
    return trained(trireme.torch)

def by_name(config):
    return trained(as_name)

def by_package(config):
    return trained(from_package)

if __name__ == "__main__":
    torch.ones(600, 600) @ torch.ones(600, 600)  # starts threads here
    for train in (by_path, by_name, by_package, by_path):
        scaling = ScalingConfig(num_workers=2)
        trainer = trireme.torch.TorchTrainer(train, train_loop_config={}, scaling_config=scaling)
        print(trainer.fit().return_value)
"""


def test_a_script_may_import_its_framework_first(script: Any) -> None:
    """Workers are forked from a process that has run none of the script, not even a partial import."""
    done = script.run(FIRST_SCRIPT)
    assert done.returncode == 0, done.stderr
    expected = "('DistributedDataParallel', True, 1)"
    assert [line for line in done.stdout.splitlines() if line.startswith("(")] == [expected] * 4


def test_no_worker_has_a_half_imported_package(script: Any) -> None:
    """A module that fails when it is imported early is imported by the workers, and the run continues."""
    (script.folder / "pkg").mkdir()
    script.write("from pkg import part\nimport os\nassert 'READY' in os.environ, 'too early'", "pkg/__init__.py")
    script.write("", "pkg/part.py")
    done = script.run("""
        from trireme import DataParallelTrainer, RunConfig, ScalingConfig

        def train():
            import os
            os.environ["READY"] = "1"
            import pkg
            return pkg.part.__name__

        if __name__ == "__main__":
            run = RunConfig(preload=["pkg", "decimal"])
            scaling = ScalingConfig(num_workers=2)
            print(DataParallelTrainer(train, run_config=run, scaling_config=scaling).fit().return_value)
    """)
    assert done.returncode == 0, done.stderr
    assert "pkg.part" in done.stdout
    assert "restarts without pkg" in done.stdout + done.stderr
    assert "AssertionError: too early" in done.stdout + done.stderr
