"""The scripts in tests/compat/scripts that need a framework, compared with what they recorded under Ray 2.60."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compat"))
import compat_runs

SCRIPTS = [
    "accelerate_loop",
    "deepspeed_loop",
    "jax_loop",
    "lightgbm_loop",
    "lightning_fit",
    "tensorflow_loop",
    "transformers_fit",
    "v1_lightgbm",
    "v1_xgboost",
    "xgboost_loop",
]
GUIDES = ["keras", "lightgbm", "lightning", "transformers", "xgboost"]
NAMES = Path(__file__).resolve().parents[1] / "compat/names.py"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return compat_runs.run(SCRIPTS, tmp_path_factory.mktemp("compat"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_records_the_same_as_under_ray(name: str, records: dict[str, Any]) -> None:
    assert records[name] == compat_runs.recorded(name)


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_runs_unchanged(name: str, tmp_path: Path) -> None:
    compat_runs.run_guide(f"frameworks_{name}", tmp_path)


def test_every_public_name_and_parameter_of_ray_is_known(tmp_path: Path) -> None:
    """Compared with the installed Ray, each in a process of its own."""
    listed = tmp_path / "names.json"
    with listed.open("wb") as file:
        subprocess.run(
            [sys.executable, NAMES, "list"], stdout=file, check=True, env={**os.environ, "RAY_AUTH_MODE": "disabled"}
        )
    done = subprocess.run([sys.executable, NAMES, "check", listed], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
