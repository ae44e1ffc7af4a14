"""The scripts in tests/compat/scripts that need a framework, compared with what they recorded under Ray 2.60."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compat"))
import compat_runs

# One driver runs all scripts of a group: its warm process imports each framework once.
SCRIPTS = {
    "boosting": ["lightgbm_loop", "v1_lightgbm", "v1_xgboost", "xgboost_loop"],
    "torch": ["accelerate_loop", "deepspeed_loop", "lightning_fit", "lightning_resume"],
    "transformers": ["transformers_data", "transformers_fit"],
    "others": ["jax_loop", "tensorflow_loop"],
}
GUIDES = ["keras", "lightgbm", "lightning", "transformers", "xgboost"]
NAMES = Path(__file__).resolve().parents[1] / "compat/names.py"


@pytest.mark.parametrize("group", SCRIPTS)
def test_scripts_record_the_same_as_under_ray(group: str, tmp_path: Path) -> None:
    assert compat_runs.differences(SCRIPTS[group], tmp_path) == ""


@pytest.mark.skipif(find_spec("horovod") is None, reason="`make horovod` builds the wheel of Horovod")
def test_a_script_for_horovod_records_the_same_as_under_ray(tmp_path: Path) -> None:
    assert compat_runs.differences(["v1_horovod"], tmp_path) == ""


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_runs_unchanged(name: str, tmp_path: Path) -> None:
    compat_runs.run_guide(f"frameworks_{name}", tmp_path)


def test_every_public_name_and_parameter_of_ray_is_known() -> None:
    """Compared with the recorded names of Ray; `python tests/compat/names.py record` records them again."""
    done = subprocess.run([sys.executable, NAMES, "check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
