"""The scripts in tests/compat/scripts under compatibility mode, compared with what they recorded under Ray 2.60.

`python tests/compat/record.py` records them again with real Ray. tests/compat/guides has scripts as Ray's guides write
them, which check themselves.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compat"))
import compat_runs

pytestmark = pytest.mark.torch

# Those of the other frameworks are in tests/frameworks.
SCRIPTS = [
    "backend_subclass",
    "checkpoints",
    "collective",
    "context",
    "controller_callbacks",
    "custom_data_config",
    "data_pipeline",
    "elastic",
    "failures",
    "local_mode",
    "misuse",
    "preprocessing",
    "references",
    "resume_by_name",
    "task_errors",
    "tasks_and_actors",
    "torch_ddp",
    "torch_loader",
    "upload_functions",
    "user_callbacks",
    "v1_air_session",
    "v1_callbacks",
    "v1_failures",
    "v1_resume",
    "validation",
]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return compat_runs.run(SCRIPTS, tmp_path_factory.mktemp("compat"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_records_the_same_as_under_ray(name: str, records: dict[str, Any]) -> None:
    assert records[name] == compat_runs.recorded(name)


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
