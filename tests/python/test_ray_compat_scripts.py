"""The scripts in tests/compat/scripts under compatibility mode, compared with what they recorded under Ray 2.60.

`python tests/compat/record.py` records them again with real Ray.
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
    "data_pipeline",
    "failures",
    "local_mode",
    "preprocessing",
    "resume_by_name",
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
