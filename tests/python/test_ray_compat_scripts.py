"""The scripts in tests/compat/scripts under compatibility mode, compared with what they recorded under Ray 2.60.

`python tests/compat/record.py` records them again with real Ray. tests/compat/guides has scripts as Ray's guides write
them, which check themselves.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compat"))
import compat_runs

pytestmark = pytest.mark.torch

# Those of the other frameworks are in tests/frameworks. One driver runs all scripts of a group.
SCRIPTS = {
    "first version": [
        "v1_air_session",
        "v1_callbacks",
        "v1_failures",
        "v1_resume",
        "v1_torch_helpers",
        "v1_tuner",
    ],
    "tasks and actors": [
        "parameter_server",
        "queue_progress",
        "references",
        "task_errors",
        "tasks_and_actors",
        "tune_function",
    ],
    "training": [
        "backend_subclass",
        "checkpoints",
        "collective",
        "context",
        "controller_callbacks",
        "elastic",
        "failures",
        "local_mode",
        "misuse",
        "resume_by_name",
        "torch_ddp",
        "upload_functions",
        "user_callbacks",
        "validation",
    ],
    "data": [
        "csv_training",
        "custom_data_config",
        "data_pipeline",
        "preprocessing",
        "torch_loader",
    ],
}


@pytest.mark.parametrize("group", SCRIPTS)
def test_scripts_record_the_same_as_under_ray(group: str, tmp_path: Path) -> None:
    assert compat_runs.differences(SCRIPTS[group], tmp_path) == ""


@pytest.mark.parametrize(
    "name",
    [
        "torch_data_ingest",
        "torch_fashion_mnist",
        "torch_fault_tolerance",
        "tracking_rank_zero",
        "v1_air_dict_checkpoints",
    ],
)
def test_a_guide_runs_unchanged(name: str, tmp_path: Path) -> None:
    compat_runs.run_guide(name, tmp_path)
