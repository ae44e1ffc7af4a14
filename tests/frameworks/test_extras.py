"""A framework that is missing, or of an untested version."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from trireme.horovod import HorovodTrainer

FIRST_USE = {
    "lightning": "from trireme.lightning import DDPStrategy",
    "transformers": "from trireme.transformers import prepare_trainer",
    "accelerate": "from trireme.accelerate import save_state",
    "deepspeed": "from trireme.deepspeed import save_checkpoint",
    "jax": "from trireme.jax import JaxTrainer; JaxTrainer(print)",
    "tensorflow": "from trireme.tensorflow import TensorflowCheckpoint",
    "keras": "from trireme.keras import ReportCheckpointCallback",
}


def run(script: str, *options: str, path: Path) -> subprocess.CompletedProcess[str]:
    """path: a folder in front of the installed packages."""
    command = [sys.executable, *options, "-c", f"import sys; sys.path.insert(0, {str(path)!r})\n{script}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("framework", FIRST_USE)
def test_a_missing_package_names_the_extra(tmp_path: Path, framework: str) -> None:
    missing = {framework, "pytorch_lightning"}
    for installed in Path(sysconfig.get_paths()["platlib"]).iterdir():
        if installed.name.partition("-")[0] not in missing:
            (tmp_path / installed.name).symlink_to(installed)
    done = run(FIRST_USE[framework], "-S", path=tmp_path)  # -S: no other installed packages
    error = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert error.startswith("ModuleNotFoundError: ") and "which is not installed" in error
    assert error.endswith(f': pip install "trireme[{framework}]"')


@pytest.mark.parametrize("framework", FIRST_USE)
def test_an_untested_version_logs_one_warning_and_continues(tmp_path: Path, framework: str) -> None:
    metadata = tmp_path / f"{framework}-9.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {framework}\nVersion: 9.0\n")
    name = FIRST_USE[framework].split()[-1]
    again = f"import importlib, trireme.{framework} as module; importlib.reload(module); print(module.{name})"
    done = run(f"{FIRST_USE[framework]}\n{again}", path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"trireme.{framework} was tested with {framework} ") == 1
    assert "*, and 9.0 is installed" in done.stderr
    assert name.partition("(")[0] in done.stdout


RUN = """
from trireme.accelerate import save_state
from trireme.torch import TorchTrainer
from trireme import ScalingConfig

def train():
    from trireme.accelerate import load_state

if __name__ == "__main__":
    print(TorchTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit().state)
"""


def test_workers_do_not_repeat_the_warning_of_the_driver(tmp_path: Path) -> None:
    metadata = tmp_path / "accelerate-9.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: accelerate\nVersion: 9.0\n")
    script = tmp_path / "script.py"
    script.write_text(RUN)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "TRIREME_RESULTS": str(tmp_path / "results")}
    done = subprocess.run(
        [sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 and "finished" in done.stdout, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("was tested with accelerate") == 1


def test_a_missing_horovod_names_the_script_that_builds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trireme.horovod._trainer.find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r"needs the package horovod.*: tools/horovod_wheel.sh in Trireme's"):
        HorovodTrainer(print)
